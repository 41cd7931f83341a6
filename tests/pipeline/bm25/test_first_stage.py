"""The first stage of another system: its run file, or its passages and questions in pyserini's JSON."""

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from searched import CONFIG, build, hits_of, rows, write_collection

from pipeline.bm25 import other_systems
from pipeline.bm25.bm25 import BM25Config, missing
from pipeline.bm25.index_process import QUERY_TERMS, other_documents, query, read_topics, runs_of_letters
from pipeline.bm25.lucene import document_lists
from pipeline.bm25.searcher import Searcher
from pipeline.data.collection import read_queries, schemas, write_table
from pipeline.errors import InputError
from pipeline.notices import METRIC, Examples

IDS = [f"p{n}" for n in range(200)]
QUERIES = [
    ("t0", "train", "first"),
    ("t1", "train", "nobody judged it"),
    ("d0", "dev", "Flying?"),
    ("e0", "test", "flying things"),
    ("e1", "test", "of the"),
]
JUDGED = [("train", "t0", "p1", 1), ("train", "t0", "p2", 0), ("dev", "d0", "p3", 1)]


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> Path:
    passages = [(i, i, "", f"passage {i}") for i in IDS]
    return write_collection(tmp_path_factory.mktemp("first") / "collection", passages, QUERIES, JUDGED)


def config(**fields) -> BM25Config:
    return CONFIG.model_copy(update=fields)


def lines_of(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def json_of(path: Path, *objects: dict) -> Path:
    return lines_of(path, *map(json.dumps, objects))


def hits_by_question(out: Path) -> dict[str, list[tuple[str, float]]]:
    hits: dict[str, list[tuple[str, float]]] = {}
    for row in rows(out):
        hits.setdefault(row["query_id"], []).append((row["passage_id"], row["score"]))
    return hits


# A run file


def trec(question: str, passages: list[str], scores: list[float]) -> list[str]:
    return [f"{question} Q0 {p} {n} {s} other" for n, (p, s) in enumerate(zip(passages, scores, strict=True), 1)]


def test_a_run_file_becomes_the_first_stage(collection, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "jnius", raising=False)  # of another test
    far = [f"p{n}" for n in range(100, 140)]
    run = tmp_path / "run.gz"
    lines = [
        *trec("e0", ["p9", "p4", "p7"], [0.5, 1.5, 0.5]),  # ordered by score, then by line
        *trec("t0", IDS[:10], list(range(10, 0, -1))),
        *trec("elsewhere", ["p1"], [1]),
        *trec("t1", ["p1"], [1]),
        *trec("d0", far, list(range(40, 0, -1))),
        *trec("e0", ["p5"], [-1e-3]),  # the rows of a question need not be adjacent
        *trec("d0", [f"p{n}" for n in range(50)], list(range(0, -50, -1))),
        "d0 Q0 unknown 1 99 other",
    ]
    with gzip.open(run, "wt") as file:
        file.write("\n".join(lines) + "\n")
    counts = build(collection, tmp_path / "out", config(run=run))
    assert counts.pop(METRIC).splitlines() == [
        "questions without hits: 1 (first: e1)",
        "rows left out, of unknown questions, or of training questions without a relevant passage: 2 "
        "(first: elsewhere, t1); bm25.run",
        "rows left out, of unknown passages: 1 (first: unknown); bm25.run",
    ]
    assert counts == {
        "rows": 107,
        "rows_of_other_questions": 2,
        "rows_of_unknown_passages": 1,
        "questions": 4,
        "questions_without_hits": 1,
        "negatives": 5,
        "dropped_judged": 1,
        "dropped_duplicate": 0,
        "dropped_question": 0,
    }
    hits = hits_by_question(tmp_path / "out")
    assert hits["e0"] == [("p4", 1.5), ("p9", 0.5), ("p7", 0.5), ("p5", -1e-3)]
    assert [p for p, _ in hits["d0"]] == far[:10]
    assert [p for p, _ in hits["t0"]] == IDS[:6]
    assert set(hits) == {"t0", "d0", "e0"}
    negatives = pq.read_table(tmp_path / "out" / "negatives.parquet").to_pylist()
    assert [(n["passage_id"], n["rank"]) for n in negatives] == [("p0", 1), ("p2", 3), ("p3", 4), ("p4", 5), ("p5", 6)]
    trec_ids = [line.split()[0] for line in (tmp_path / "out" / "run.trec").read_text().splitlines()]
    assert Counter(trec_ids) == {"d0": 10, "e0": 4}
    assert "jnius" not in sys.modules


def test_run_file_in_the_columns_of_ms_marco(collection, tmp_path):
    run = lines_of(tmp_path / "run.tsv", "e0\tp7\t1", "e0\tp3\t2")
    build(collection, tmp_path / "out", config(run=run))
    assert hits_by_question(tmp_path / "out") == {"e0": [("p7", -1.0), ("p3", -2.0)]}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["e0 Q0 p1 1 1.0 x", "e0 Q0 p2 2 0.5"], r"run:2: 6 columns expected .*, 5 found"),
        (["e0 p1 1", "e0 Q0 p2 2 0.5 x"], r"run:2: 3 columns expected .*, 6 found"),
        (["e0 Q0 p1 1 nan x"], r"run:1: score 'nan' is not a number"),
        (["e0 Q0 p1 1 1e39 x"], r"run:1: score '1e39' is not a number"),
        (trec("e0", IDS[:3], [float(np.finfo(np.float32).min)] * 3), r"run:1: score '-3.40\d+e\+38' is not a number"),
        (["e0 Q0 p1 1 high x"], r"run:1: score 'high' is not a number"),
        (["d0 Q0 p1 1 1 x", "", "e0 Q0 p1 1 2 x", "d0 Q0 p1 2 0 x"], r"run:4: this passage appears twice"),
        (["e0 Q0 p1 1 2 x", "e0 Q0 new 2 1 x"], r"run:2: unknown passage id 'new' \(1 of 2 rows"),
        (["other Q0 p1 1 2 x"], r"run: none of its questions"),
        ([], r"run: empty file"),
    ],
)
def test_bad_run_files_are_refused(lines, message, collection, tmp_path):
    run = lines_of(tmp_path / "run", *lines)
    with pytest.raises(InputError, match=message) as error:
        build(collection, tmp_path / "out", config(run=run))
    assert "\n" not in str(error.value)


def test_a_run_file_cannot_answer_single_questions(collection, tmp_path):
    build(collection, tmp_path / "out", config(run=lines_of(tmp_path / "run", "e0 p7 1")))
    with pytest.raises(InputError, match=r"run file \(bm25\.run\), which cannot answer single questions"):
        Searcher(tmp_path / "out")


# Expanded passages and questions


def test_expanded_passages_and_questions(collection, tmp_path):
    folder = tmp_path / "expanded"
    (folder / "b").mkdir(parents=True)
    json_of(folder / "b" / "2.jsonl", {"id": "p3", "contents": "zebras fly fly"}, {"id": "p4", "contents": "  "})
    (folder / "1.json").write_text(json.dumps([{"id": "p5", "contents": "zebra"}, {"id": "new", "contents": "fly"}]))
    (folder / "README.txt").write_text("no passages")
    topics = lines_of(tmp_path / "topics.tsv", "d0\tzebras flying", "e0\tzebra\x07", "t1\tzebra", "e1\tof the")
    counts = build(collection, tmp_path / "out", config(passages=folder, topics=topics))
    assert counts.pop(METRIC).splitlines() == [
        "questions without a term after the analyser: 1 (first: e1)",
        "questions whose control characters became spaces: 1 (first: e0)",
        "questions that the file lacks, without hits: 1 (first: t0); bm25.topics",
        "questions of the file left out, unknown, or of training without a relevant passage: 1 (first: t1); "
        "bm25.topics",
        "passages not indexed, without text: 1 (first: p4)",
        "passages that the files lack, never found: 197 (first: p0, p1, p2); bm25.passages",
        "passages of the files left out, unknown to the collection: 1 (first: new); bm25.passages",
    ]
    assert counts == {
        "passages": 2,
        "passages_empty": 1,
        "passages_unknown": 1,
        "passages_missing": 197,
        "topics_not_asked": 1,
        "questions": 4,
        "questions_cut": 0,
        "questions_with_control_characters": 1,
        "questions_without_topic": 1,
        "questions_without_terms": 2,
        "questions_without_hits": 2,
        "negatives": 0,
        "dropped_judged": 0,
        "dropped_duplicate": 0,
        "dropped_question": 0,
    }
    hits = {question: [p for p, _ in ranked] for question, ranked in hits_by_question(tmp_path / "out").items()}
    assert hits == {"d0": ["p3", "p5"], "e0": ["p5", "p3"]}


# Weights


@pytest.fixture(scope="module")
def weights() -> dict[str, dict[str, int]]:
    """Weights of some of 30 terms in 150 of the 200 passages, so small that sums are often equal."""
    rng = np.random.default_rng(0)
    terms = ["flying", "##ing", ",", "Ünïcode", *(f"w{n}" for n in range(26))]
    return {i: {t: int(w) for t, w in zip(terms, rng.integers(0, 4, 30), strict=True)} for i in IDS[:150]}


@pytest.fixture(scope="module")
def built(collection, weights, tmp_path_factory) -> tuple[Path, dict, dict]:
    folder = tmp_path_factory.mktemp("weights")
    vectors = json_of(folder / "v.jsonl", *({"id": i, "contents": "x", "vector": v} for i, v in weights.items()))
    topic_vectors = {"d0": {"w0": 3, "##ing": 200, "Ünïcode": 1}, "e0": {"w1": 1, "absent": 7}, "t0": {",": 2, "w3": 1}}
    topics = json_of(folder / "topics.jsonl", *({"id": q, "vector": v} for q, v in topic_vectors.items()))
    out = folder / "out"
    settings = config(passages=vectors, topics=topics, depth=20, negatives_depth=20)
    return out, topic_vectors, build(collection, out, settings)


def products(question: dict[str, int], weights: dict[str, dict[str, int]]) -> list[tuple[str, float]]:
    """All passages that hold a term, ordered by the sum of products, then by passage order."""
    scores = [(i, float(sum(w * v.get(t, 0) for t, w in question.items()))) for i, v in weights.items()]
    return sorted((hit for hit in scores if hit[1] > 0), key=lambda hit: -hit[1])


def test_weights_score_by_their_products(built, weights):
    out, topic_vectors, counts = built
    assert hits_by_question(out) == {q: products(vector, weights)[:20] for q, vector in topic_vectors.items()}
    assert (counts["passages"], counts["passages_missing"], counts["questions_without_topic"]) == (150, 50, 1)
    assert counts["negatives"] == len([p for p, _ in hits_by_question(out)["t0"] if p != "p1"])


def test_single_questions_to_an_index_of_weights_are_split_into_words(built, weights):
    out, _, _ = built
    with Searcher(out) as searcher:
        hits = hits_of(searcher, "Flying, flying w5?", 200)
    assert sorted(hits) == sorted(products({"flying": 2, "w5": 1}, weights))


def test_an_error_in_the_java_process_is_reported_in_one_line(collection, tmp_path):
    passages = json_of(tmp_path / "v.jsonl", {"id": "p1", "vector": {"a": 1}}, {"id": "p2", "vector": {"a": 0.5}})
    with pytest.raises(InputError, match=r"v\.jsonl:2: weight 0\.5 of 'a' is not an integer") as error:
        build(collection, tmp_path / "out", config(passages=passages))
    assert "\n" not in str(error.value)


# Contents of files


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([{"id": "p1"}], r"f\.jsonl:1: no text in field 'contents'"),
        ([{"contents": "x"}], r"f\.jsonl:1: no text in field 'id'"),
        ([{"id": "p1", "vector": [0.5]}], r"f\.jsonl:1: field 'vector' is not an object"),
        ([{"id": "p1", "vector": {"a b": 1}}], r"f\.jsonl:1: term 'a b' is empty, holds white space"),
        ([{"id": "p1", "vector": {"a": -1}}], r"f\.jsonl:1: weight -1 of 'a' is not an integer from 0"),
        ([{"id": "p1", "vector": {"a": True}}], r"f\.jsonl:1: weight True of 'a'"),
        ([{"id": "p1", "vector": {"a": 70_000}}], r"f\.jsonl:1: weight 70000 of 'a'"),
        ([{"id": "p1", "contents": "a\ud800"}], r"f\.jsonl:1: holds half of a surrogate pair"),
        ([{"id": "p1", "contents": "a"}, {"id": "p2", "vector": {}}], r"f\.jsonl:2: 'contents' in some rows"),
    ],
)
def test_bad_rows_are_refused(objects, message, tmp_path):
    with pytest.raises(InputError, match=message):
        list(other_systems.passages(json_of(tmp_path / "f.jsonl", *objects)))


def test_ids_of_passages_are_checked(tmp_path):
    row = {i: n for n, i in enumerate(IDS)}
    job = {"split_identifiers": False}

    def read(*ids: str) -> Counter[str]:
        passages = json_of(tmp_path / "f.jsonl", *({"id": i, "contents": "x"} for i in ids))
        counts: Counter[str] = Counter()
        examples: Examples = {}
        kept = [i for i, _ in other_documents(job | {"passages": str(passages)}, row, counts, examples)]
        assert kept == [i for i in ids if i in row]
        assert examples.get("passages_unknown", []) == [i for i in ids if i not in row]
        return counts

    assert read("p1", "new", "p0", "newer") == {"passages_unknown": 2, "passages_missing": 198}
    with pytest.raises(InputError, match=r"f\.jsonl:4: unknown passage id 'c', one of more than 1 %"):
        read("p1", "a", "b", "c")
    with pytest.raises(InputError, match=r"f\.jsonl:3: passage id 'p1' appears twice"):
        read("p1", "p0", "p1")


def test_a_folder_without_passages_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no \.json or \.jsonl file in this folder"):
        other_systems.passages(tmp_path)


@pytest.mark.parametrize(
    ("scores", "lines", "message"),
    [
        ("bm25", ['{"id": "d0", "vector": {"a": 1}}'], r"t\.jsonl:1: a question with weights, but"),
        ("weights", ['{"id": "d0", "contents": "a"}'] * 2, r"t\.jsonl:2: question id 'd0' appears twice"),
        ("bm25", ['{"id": "other", "contents": "a"}'], r"t\.jsonl: none of its questions"),
    ],
)
def test_bad_topics_are_refused(scores, lines, message, collection, tmp_path):
    job = {"topics": str(lines_of(tmp_path / "t.jsonl", *lines)), "scores": scores}
    with pytest.raises(InputError, match=message):
        read_topics(job, read_queries(collection), Counter(), {})


def test_the_weight_of_a_term_in_a_topic_is_its_number_of_occurrences(collection, tmp_path):
    job = {"topics": str(lines_of(tmp_path / "t.tsv", "d0\tfly ##ing fly")), "scores": "weights"}
    topics = read_topics(job, read_queries(collection), Counter(), {})
    assert topics == {"d0": {"fly": 2, "##ing": 1}}
    counts: Counter[str] = Counter()
    assert query("d0", topics["d0"], job, counts, {}) == "fly fly ##ing"
    assert len(query("d0", {f"w{n}": 1 for n in range(QUERY_TERMS + 1)}, job, counts, {}).split()) == QUERY_TERMS
    assert counts["questions_cut"] == 1


def test_pieces_are_cut_by_characters(monkeypatch):
    monkeypatch.setattr("pipeline.bm25.lucene.CHARACTERS", 10)
    assert [len(piece) for piece in document_lists([("a", "x" * 4)] * 7)] == [3, 3, 1]


# The configuration


def test_a_run_file_excludes_topics():
    fields = CONFIG.model_dump() | {"run": "a", "topics": "b"}
    with pytest.raises(ValidationError, match="run is a complete first stage"):
        BM25Config.model_validate(fields)


def test_missing_checks_the_first_row_of_each_file(tmp_path):
    good = json_of(tmp_path / "good.jsonl", {"id": "p1", "contents": "x"})
    bad = lines_of(tmp_path / "bad.jsonl", "{")
    run = lines_of(tmp_path / "run", "one two")
    assert missing(config(passages=good, topics=tmp_path / "absent")) == []  # the caller reports missing files
    lines = missing(config(passages=bad, topics=good))
    assert len(lines) == 1
    assert lines[0].startswith(f"bm25.passages: {bad}:1: invalid JSON")
    assert missing(config(run=run))[0].startswith(f"bm25.run: {run}:1: 6 columns expected")


@pytest.mark.parametrize(
    ("text", "reported"),
    [("ภาษาไทยไม่มีช่องว่าง", 2), ("ພາສາລາວບໍ່ມີຊ່ອງຫວ່າງ", 2), ("ភាសាខ្មែរ", 2), ("中文没有空格", 0), ("plain ไทย words", 0)],
)
def test_a_script_that_the_analyser_cannot_split_is_reported(tmp_path, text, reported):
    rows = [("p0", "p0", "", text), ("p1", "p1", "", text), ("p2", "p2", "", "plain words")]
    write_table(tmp_path / "passages.parquet", schemas()["passages"], rows)
    lines = runs_of_letters(tmp_path)
    assert len(lines) == bool(reported)
    assert all("in a sample of 3: 2 (first: p0, p1)" in line for line in lines)
