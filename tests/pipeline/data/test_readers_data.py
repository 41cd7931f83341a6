"""Readers on the real collections of ../shared/data."""

import gzip
import shutil
from collections import Counter

import pytest

pytestmark = pytest.mark.data

# passages, documents, queries of train, dev and test: from each collection's README
BEIR = {
    "adi": (82, 82, 0, 0, 35),
    "scifact": (5183, 5183, 728, 81, 300),
    "nfcorpus": (3395, 3395, 2563, 324, 323),
    "squad_open": (7731, 2542, 26273, 1353, 10570),
    "nq_wiki": (81639, 81639, 0, 300, 1355),
}


LARGE = ("squad_open", "nq_wiki")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in BEIR])
def test_beir(name, shared_data, ingested):
    document_key = "doc" if name == "squad_open" else ""
    metadata = ["source"] if name == "squad_open" else []
    result = ingested(reader="beir", folder=shared_data / name, document_key=document_key, metadata=metadata)
    counted = ("passages", "documents", "train_queries", "dev_queries", "test_queries")
    assert tuple(result.counts[name_of_count] for name_of_count in counted) == BEIR[name]
    assert result.counts["unknown_qrels"] == result.counts["empty_passages"] == result.counts["duplicate_qrels"] == 0
    grades = {grade for judged in result.qrels.values() for grade in judged.values()}
    assert grades == ({1, 2} if name == "nfcorpus" else {1})
    if name == "squad_open":
        assert all(query.answers for query in result.queries)
        sources = Counter(values["source"] for values in result.metadata)
        assert sources == {"squad11_dev": 2067, "amazon_reviews": 2050, "reddit": 2033, "new_wiki": 1581}
    if name == "nq_wiki":
        query = next(query for query in result.queries if query.text == "who got the first nobel prize in physics")
        assert query.answers == ["Wilhelm Conrad Röntgen , of Germany", "Wilhelm Conrad Röntgen"]


def test_msmarco_dev_small_and_trec(shared_data, tmp_path, ingested):
    """The official judgements, with a collection of exactly the ids that they name."""
    pieces = shared_data / "msmarco_pieces"
    with gzip.open(pieces / "qrels.dev.small.tsv.gz", "rt") as file:
        passage_ids = {line.split()[2] for line in file}
    passage_ids |= {line.split()[2] for line in (pieces / "2019qrels-pass.txt").read_text().splitlines()}
    collection = tmp_path / "collection.tsv"
    collection.write_text("".join(f"{i}\tpassage {i}\n" for i in sorted(passage_ids)))
    topics = tmp_path / "topics.dl19.tsv"
    shutil.copyfile(pieces / "topics.dl19-passage.txt", topics)
    result = ingested(
        reader="msmarco",
        metadata=[],
        collection=collection,
        layout="passages",
        titles=None,
        train_queries=None,
        train_qrels=None,
        dev_queries=pieces / "queries.dev.small.tsv.gz",
        dev_qrels=pieces / "qrels.dev.small.tsv.gz",
        test_queries=topics,
        test_qrels=pieces / "2019qrels-pass.txt",
        negatives=None,
        negatives_per_query=30,
    )
    assert (result.counts["dev_queries"], result.counts["dev_qrels"]) == (6980, 7437)
    assert (result.counts["test_queries"], result.counts["test_qrels"]) == (43, 9260)
    assert result.qrels["300674"] == {"7067032": 1}
    assert {grade for query in result.queries[-43:] for grade in result.qrels[query.query_id].values()} == {0, 1, 2, 3}
