"""The process that holds Java: `python -m pipeline.bm25_process JOB`, started by pipeline.bm25 alone.

JOB is JSON. `{"do": "build", ...}` makes the whole artifact, `{"do": "answer", ...}` answers questions that come as
JSON lines on stdin until it ends. Reports are JSON lines on what was stdout; whatever Java prints goes to stderr.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import java, runs
from pipeline.collection import passage_batches, passage_count, read_qrels, read_queries
from pipeline.errors import InputError
from pipeline.parent import die_with_parent
from pipeline.processes import Say, reporter

FIELD = "contents"
BUFFER = 256
"""MiB of Lucene's index buffer, inside Java's heap."""
QUERY_CHARACTERS = 20_000
"""What is read of a question. A 1 MB question would hold Lucene for minutes and say no more."""
QUESTIONS = 512
"""Questions searched between two writes."""

IDENTIFIER = re.compile(r"_|(?<=[^\W\d])\.(?=[^\W\d])|(?<=[a-z0-9])(?=[A-Z])")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Search = Callable[[str, int], tuple[list[str], list[float]]]


def contents(title: str, text: str, job: Mapping[str, Any]) -> str:
    """What is indexed of a passage."""
    return words("\n".join([title] * job["titles"] + [text]).strip(), job)


def cleaned(text: str, job: Mapping[str, Any]) -> str:
    """A question as Lucene gets it: cut, and control characters and lone surrogates (no UTF-8) made spaces."""
    return words(CONTROL.sub(" ", text[:QUERY_CHARACTERS]), job)


def words(text: str, job: Mapping[str, Any]) -> str:
    """The text with its identifiers split, where the job says so: `io.TextWrapper` becomes `io Text Wrapper`."""
    return IDENTIFIER.sub(" ", text) if job["split_identifiers"] else text


def index(autoclass: Any, collection: Path, folder: Path, job: Mapping[str, Any], say: Say) -> Counter[str]:
    """Index the passages that are not empty into `folder`. Counts `passages` and `passages_empty`."""
    # fmt: off
    indexer = autoclass("io.anserini.index.SimpleIndexer")([
        "-input", "", "-collection", "JsonCollection", "-index", str(folder), "-stemmer", job["stemmer"],
        "-threads", str(job["threads"]), "-memoryBuffer", str(BUFFER),
    ])
    # fmt: on
    counts: Counter[str] = Counter(passages=0, passages_empty=0)
    total = passage_count(collection)
    for batch in passage_batches(collection, ["passage_id", "title", "text"]):
        texts = [contents(title, text, job) for title, text in zip(batch["title"], batch["text"], strict=True)]
        rows = zip(batch["passage_id"], texts, strict=True)
        documents = [json.dumps({"id": passage_id, FIELD: text}) for passage_id, text in rows if text]
        if indexer.addRawDocuments(documents) != len(documents):
            raise RuntimeError("Lucene refused a passage")
        counts["passages"] += len(documents)
        counts["passages_empty"] += len(texts) - len(documents)
        say({"progress": [counts.total(), total, "passages"]})
    indexer.close()
    (folder / "write.lock").unlink(missing_ok=True)
    if counts["passages"] == 0:
        raise InputError(f"{collection / 'passages.parquet'}: no passage holds any text")
    return counts


def opened(autoclass: Any, folder: Path, job: Mapping[str, Any]) -> Search:
    """A function (text, k) -> passage ids and scores, best first; equal scores in the index's own order.

    Safe to call from several threads. Lucene is asked directly, not by Anserini's searcher, which cuts scores to four
    decimals and lowers the equal ones to tell them apart.
    """
    from jnius import cast

    directory = autoclass("org.apache.lucene.store.FSDirectory").open(
        autoclass("java.nio.file.Paths").get(str(folder.resolve()))
    )
    reader = autoclass("org.apache.lucene.index.DirectoryReader").open(directory)
    IndexSearcher = autoclass("org.apache.lucene.search.IndexSearcher")
    IndexSearcher.setMaxClauseCount(QUERY_CHARACTERS)
    lucene = IndexSearcher(cast("org.apache.lucene.index.IndexReader", reader))
    lucene.setSimilarity(autoclass("org.apache.lucene.search.similarities.BM25Similarity")(job["k1"], job["b"]))
    analyser = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newStemmingInstance(job["stemmer"])
    generator = autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")()
    ScoredDocs = autoclass("io.anserini.search.ScoredDocs")

    def search(text: str, k: int) -> tuple[list[str], list[float]]:
        query = generator.buildQuery(FIELD, analyser, cleaned(text, job))
        hits = ScoredDocs.fromTopDocs(lucene.search(query, k), lucene)
        return hits.docids, hits.scores

    return search


def best(search: Search, text: str, depth: int, row: Mapping[str, int]) -> tuple[list[str], list[float]]:
    """The first `depth` by score, then passage order (`row`), also where `depth` cuts through equal scores."""
    asked = depth + 16
    while True:
        ids, scores = search(text, asked)
        if len(ids) < asked or scores[-1] < scores[depth - 1]:
            break
        asked *= 2
    by = sorted(range(len(ids)), key=lambda i: (-scores[i], row[ids[i]]))[:depth]
    return [ids[i] for i in by], [scores[i] for i in by]


def build(autoclass: Any, job: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Write the whole artifact into `job["out"]` and return its counts."""
    collection, out = Path(job["collection"]), Path(job["out"])
    counts = index(autoclass, collection, out / "index", job, say)
    search = opened(autoclass, out / "index", job)
    row = {i: n for n, i in enumerate(i for b in passage_batches(collection, ["passage_id"]) for i in b["passage_id"])}
    positives = {q: {p for p, grade in judged.items() if grade > 0} for q, judged in read_qrels(collection).items()}
    queries = [q for q in read_queries(collection) if q.split != "train" or positives.get(q.query_id)]
    counts.update(questions=0, questions_cut=0, questions_without_hits=0, negatives=0)
    with (
        runs.writer(out) as write,
        pq.ParquetWriter(out / "negatives.parquet", runs.NEGATIVES, compression="zstd") as negatives,
        ThreadPoolExecutor(job["threads"]) as pool,
    ):
        for split, depth in (("train", job["negatives_depth"]), ("dev", job["depth"]), ("test", job["depth"])):
            members = [q for q in queries if q.split == split]
            for piece in (members[i : i + QUESTIONS] for i in range(0, len(members), QUESTIONS)):
                found = list(pool.map(lambda q: best(search, q.text, depth, row), piece))  # noqa: B023
                ids = [q.query_id for q in piece]
                write(split, *columns(ids, found))
                counts["questions"] += len(piece)
                counts["questions_cut"] += sum(len(q.text) > QUERY_CHARACTERS for q in piece)
                counts["questions_without_hits"] += sum(not passages for passages, _ in found)
                if split == "train":
                    rows = list(unjudged(ids, found, positives))
                    counts["negatives"] += len(rows)
                    if rows:
                        negatives.write_table(pa.table(list(zip(*rows, strict=True)), schema=runs.NEGATIVES))
                say({"progress": [counts["questions"], len(queries), "questions"]})
    return dict(counts)


def columns(
    query_ids: Sequence[str], found: Sequence[tuple[list[str], list[float]]]
) -> tuple[list[str], list[str], np.ndarray]:
    """Hits of each question as the rows of a run."""
    return (
        [q for q, (ids, _) in zip(query_ids, found, strict=True) for _ in ids],
        [i for ids, _ in found for i in ids],
        np.array([s for _, scores in found for s in scores], np.float32),
    )


def unjudged(
    query_ids: Sequence[str], found: Sequence[tuple[list[str], list[float]]], positives: Mapping[str, set[str]]
) -> Iterator[tuple[str, str, str, int, float]]:
    """Rows of negatives.parquet: hits that are no positive, with their rank among all hits."""
    for query_id, (ids, scores) in zip(query_ids, found, strict=True):
        for rank, (passage_id, score) in enumerate(zip(ids, scores, strict=True), start=1):
            if passage_id not in positives[query_id]:
                yield query_id, passage_id, "bm25", rank, score


def answer(autoclass: Any, job: Mapping[str, Any], say: Say) -> None:
    """Answer {"text", "k"} lines from stdin with {"ids", "scores"} lines until stdin ends."""
    search = opened(autoclass, Path(job["index"]), job)
    say({"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        ids, scores = search(question["text"], question["k"])
        say({"ids": ids, "scores": scores})


def main() -> None:
    job = json.loads(sys.argv[1])
    if job["do"] == "build":
        die_with_parent()
    say = reporter()
    try:
        autoclass = java.start()
        if job["do"] == "build":
            say({"result": build(autoclass, job, say)})
        else:
            answer(autoclass, job, say)
    except InputError as error:
        say({"input_error": str(error)})
        sys.exit(2)
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}".strip().splitlines()[0]})
        raise


if __name__ == "__main__":
    main()
