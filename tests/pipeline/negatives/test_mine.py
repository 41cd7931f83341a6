import json
import resource

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from searched import write_collection

from pipeline.data.barred import FREE, REASONS, ById
from pipeline.data.collection import train_positives
from pipeline.data.runs import writer
from pipeline.errors import InputError
from pipeline.negatives.mine import MineConfig, ceiling, first_rows, mine, pool, rankings
from pipeline.negatives.ranking import Ranking, sample_places
from pipeline.notices import read_notices
from tasks.notices import with_notices
from tasks.stages import STAGES

CONFIG = MineConfig(depth=6, number=3, margin_absolute=None, margin_relative=None, seed=0, page_questions=2)
SCORES = np.array([9, 8, 7, 6, 5, 4, 3], dtype=np.float32)
RANKING = Ranking("q", ["a", "b", "c", "d", "e", "f", "g"], SCORES)


def pool_of(config, judged=("c",), **barred):
    """(ids of the pool, number of passages that a margin drops)."""
    known = dict.fromkeys(judged, "judged") | barred
    reasons = [known.get(passage_id) for passage_id in RANKING.passage_ids[: config.depth]]
    reason_N = np.array([REASONS.index(reason) if reason else FREE for reason in reasons])
    places, below = pool(RANKING, set(judged), reason_N, config)
    return "".join(RANKING.passage_ids[i] for i in places), below


def test_depth_and_judged_passages():
    assert pool_of(CONFIG) == ("abdef", 0)
    assert pool_of(CONFIG, judged=("c", "g", "a")) == ("bdef", 0)


def test_copies_and_the_question_itself_are_not_in_the_pool():
    assert pool_of(CONFIG, e="duplicate", b="question") == ("adf", 0)


def test_margins():
    absolute = CONFIG.model_copy(update={"margin_absolute": 1.0})
    assert pool_of(absolute) == ("def", 2)
    relative = CONFIG.model_copy(update={"margin_relative": 0.25})
    assert pool_of(relative) == ("ef", 3)
    assert pool_of(absolute, judged=("c", "e")) == ("df", 2)  # the best judged passage counts
    assert pool_of(absolute, judged=("elsewhere",)) == ("", 6)


def test_ceiling_uses_the_stricter_margin_and_accepts_negative_scores():
    assert ceiling(10, None, None) is None
    assert ceiling(10, 1, 0.2) == 8
    assert ceiling(-10, None, 0.2) == -12


@given(st.integers(0, 60), st.integers(1, 40), st.integers(0, 9), st.text())
def test_samples_are_distinct_and_repeatable(size, number, seed, query):
    places = np.arange(size) * 2
    chosen = sample_places(places, number, seed, query)
    assert len(chosen) == min(number, size)
    assert np.isin(chosen, places).all()
    assert (np.diff(chosen) > 0).all()
    np.testing.assert_array_equal(chosen, sample_places(places, number, seed, query))


@pytest.fixture
def small(tmp_path):
    """(collection, run): two training questions, one of another split; passage p5 has the text of p0."""
    texts = ["same", "b", "c", "d", "e", "same", "g", "h"]
    passages = [(f"p{i}", f"p{i}", "", text) for i, text in enumerate(texts)]
    question_rows = [(f"q{i}", split, f"question {i}") for i, split in enumerate(("train", "train", "test"))]
    judged = [("train", "q0", "p0", 1), ("train", "q0", "p2", 0), ("train", "q1", "p1", 2), ("test", "q2", "p3", 1)]
    collection, run = write_collection(tmp_path / "collection", passages, question_rows, judged), tmp_path / "run"
    run.mkdir()
    with writer(run) as write:
        for split, queries in (("test", ["q2"]), ("train", ["q0", "q1"])):
            ids = [query for query in queries for _ in range(8)]
            order = [5, 0, 1, 2, 3, 4, 6, 7]
            write(split, ids, [f"p{i}" for i in order] * len(queries), np.tile(8.0 - np.arange(8.0), len(queries)))
    return collection, run


def test_mined_negatives_and_their_counts(small, work):
    collection, run = small
    done, again = work("one"), work("two")
    config = CONFIG.model_copy(update={"number": 4})
    metrics = mine(config, collection, run, done)
    assert metrics == {
        "questions": 2,
        "negatives": 8,
        "questions_short": 0,
        "questions_empty": 0,
        "questions_absent": 0,
        "negatives_above_positive": 2,  # p5 and p0 before q1's p1
        "dropped_judged": 2,
        "dropped_duplicate": 1,
        "dropped_question": 0,
        "dropped_margin": 0,
        "notice": "negatives dropped, copies of a positive: 1 (first: p5 for q0)",
    }
    table = pq.read_table(done.out / "negatives.parquet").to_pandas()
    assert table.columns.tolist() == ["query_id", "passage_id", "source", "rank", "score"]
    first = table[table.query_id == "q0"]
    assert set(first.passage_id) == {"p1", "p2", "p3", "p4"}  # a passage of grade 0 is not a positive
    assert first["rank"].tolist() == [3, 4, 5, 6]
    assert first["score"].tolist() == [6, 5, 4, 3]
    assert set(table.source) == {"mined"}
    assert "q2" not in set(table.query_id)
    del metrics["notice"]  # is only printed
    assert json.loads((done.out / "negatives.json").read_text()) == metrics
    mine(config, collection, run, again)
    for name in ("negatives.parquet", "negatives.json", "negatives.html"):
        assert (done.out / name).read_bytes() == (again.out / name).read_bytes()


@pytest.mark.parametrize("depth", [1, 6, 20])
def test_the_rule_is_applied_once(small, work, monkeypatch, depth):
    applied, reasons = [], ById.reasons

    def counted(rule, query_ids, passage_ids):
        applied.extend(zip(query_ids, passage_ids, strict=True))
        return reasons(rule, query_ids, passage_ids)

    monkeypatch.setattr(ById, "reasons", counted)
    metrics = mine(CONFIG.model_copy(update={"depth": depth, "number": 1}), *small, work(str(depth)))
    assert len(applied) == len(set(applied)) == 2 * min(depth, 8)
    assert (metrics["dropped_judged"], metrics["dropped_duplicate"]) == ((0, 1) if depth == 1 else (2, 1))


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"number": 5}, ["questions left with fewer negatives than 5: 1 (first: q0); mine.depth, mine.number"]),
        ({"depth": 4}, ["questions left with fewer negatives than 3: 1 (first: q0); mine.depth, mine.number"]),
        (
            {"margin_absolute": 1.0, "depth": 3},
            [
                "negatives dropped, which score too close to the positive: 2 (first: of q1)",
                "questions without a candidate below the margin: 1 (first: q1); raise mine.depth, or lower "
                "mine.margin_absolute; training takes other negatives for them",
                "questions left with fewer negatives than 3: 1 (first: q0); mine.depth, mine.number",
            ],
        ),
    ],
)
def test_no_count_is_reported_twice(changes, lines, small, work):
    collection, run = small
    config = CONFIG.model_copy(update=changes)
    notices = read_notices(with_notices(STAGES["mine"].notices, mine(config, collection, run, work()), "mine"))
    assert notices == ["negatives dropped, copies of a positive: 1 (first: p5 for q0)", *lines]


def test_the_number_of_shards_does_not_limit_it(work, inline, tmp_path, monkeypatch):
    """macOS allows a process 256 open files."""
    queries = [f"q{i}" for i in range(120)]
    passages = [(f"p{i}", f"p{i}", "", f"text {i}") for i in range(4)]
    rows = [(query, "train", f"question {query}") for query in queries]
    collection = write_collection(tmp_path / "collection", passages, rows, [("train", q, "p0", 1) for q in queries])
    with writer(tmp_path) as write:
        for query in queries:
            write("train", [query] * 4, ["p3", "p2", "p1", "p0"], np.arange(4.0, 0.0, -1.0))
    monkeypatch.setattr("pipeline.negatives.mine.QUESTIONS", 1)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds() + 60, before[1]))
    try:
        assert mine(CONFIG, collection, tmp_path, work())["questions"] == 120
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("workers", [1, 3])
def test_shards_change_no_byte_and_are_kept(workers, work, inline, tmp_path, monkeypatch):
    """Twelve questions, some unjudged: in one piece, in shards of five, and again with the shards left by a kill."""
    question_rows = [(f"q{i}", "dev" if i == 5 else "train", f"question {i}") for i in range(13)]
    passages = [(f"p{i}", f"p{i}", "", f"text {i % 17}") for i in range(40)]
    judged = [(split, query, f"p{i}", 1) for i, (query, split, _) in enumerate(question_rows) if i % 4]
    collection = write_collection(tmp_path / "collection", passages, question_rows, judged)
    with writer(tmp_path) as write:
        for i, (query, split, _) in enumerate(question_rows):
            ids = np.random.default_rng(i).permutation(40)[: 9 + i]
            write(split, [query] * len(ids), [f"p{j}" for j in ids], np.arange(len(ids), 0.0, -1.0))
    config = CONFIG.model_copy(update={"depth": 15, "margin_relative": 0.1, "page_questions": 3})
    whole, cut, again = work("whole"), work("cut", workers=workers), work("again", workers=workers)
    expected = mine(config, collection, tmp_path, whole)
    monkeypatch.setattr("pipeline.negatives.mine.QUESTIONS", 5)
    assert mine(config, collection, tmp_path, cut) == expected
    (again.checkpoints / "shards").mkdir()
    for number in (0, 2):
        name = f"shards/shard-0000{number}.npy"
        (again.checkpoints / name).write_bytes((cut.checkpoints / name).read_bytes())
    inodes = {path: path.stat().st_ino for path in (again.checkpoints / "shards").iterdir()}
    assert mine(config, collection, tmp_path, again) == expected
    assert inodes.items() <= {path: path.stat().st_ino for path in (again.checkpoints / "shards").iterdir()}.items()
    for path in whole.out.iterdir():
        assert path.read_bytes() == (cut.out / path.name).read_bytes() == (again.out / path.name).read_bytes()


def test_short_pools_are_counted(small, work):
    config = CONFIG.model_copy(update={"depth": 3, "number": 2})
    metrics = mine(config, *small, work())
    assert (metrics["negatives"], metrics["questions_short"]) == (3, 1)


def test_a_question_with_only_positive_candidates_is_counted(small, work, tmp_path):
    collection, done = small[0], work()
    with writer(tmp_path) as write:
        write("train", ["q0", "q0", "q1", "q1"], ["p5", "p0", "p1", "p2"], np.array([2.0, 1.0, 2.0, 1.0]))
    metrics = mine(CONFIG, collection, tmp_path, done)
    assert (metrics["questions_empty"], metrics["questions_short"], metrics["negatives"]) == (1, 2, 1)
    assert (metrics["dropped_judged"], metrics["dropped_duplicate"]) == (2, 1)
    assert "No negative is left." in (done.out / "negatives.html").read_text()


def test_no_negative_at_all_is_refused(small, work):
    config = CONFIG.model_copy(update={"margin_absolute": 100.0})
    with pytest.raises(InputError, match="left; dropped: duplicate 1, judged 2, margin 9, question 0"):
        mine(config, *small, work())


def test_a_positive_outside_the_run_leaves_no_negative_below_a_margin_and_the_notice_says_so(small, work, tmp_path):
    collection, _ = small
    with writer(tmp_path) as write:
        write("train", ["q0"] * 3 + ["q1"] * 3, ["p3", "p4", "p6", "p1", "p3", "p4"], np.tile([9.0, 5.0, 1.0], 2))
    metrics = mine(CONFIG.model_copy(update={"margin_relative": 0.1}), collection, tmp_path, work())
    assert metrics["questions_empty"] == 1
    assert (
        "questions without a candidate below the margin, as no positive is in the run: 1 (first: q0); "
        "raise search.train_depth and mine.depth; training takes other negatives for them"
    ) in read_notices(metrics)


def test_questions_that_the_run_lacks_are_counted(small, work, tmp_path):
    with writer(tmp_path) as write:
        write("train", ["q1"], ["p6"], np.array([1.0]))
    metrics = mine(CONFIG, small[0], tmp_path, work())
    assert (metrics["questions"], metrics["questions_absent"]) == (1, 1)


def test_questions_without_a_judged_passage_are_skipped(small, work, tmp_path):
    """A run lists them for pseudo-labels."""
    with writer(tmp_path) as write:
        write("train", ["q9", "q1"], ["p3", "p6"], np.array([1.0, 1.0]))
    done = work()
    assert mine(CONFIG, small[0], tmp_path, done)["questions"] == 1
    assert pq.read_table(done.out / "negatives.parquet")["query_id"].to_pylist() == ["q1"]


def test_the_rows_of_a_question_can_span_two_batches(tmp_path):
    questions, length = 700, 100  # 70,000 rows; batches hold 65,536
    with writer(tmp_path) as write:
        for q in range(questions):
            split = "dev" if q % 7 == 3 else "train"
            write(split, [f"q{q}"] * length, [f"p{q}-{i}" for i in range(length)], 500.0 - q - np.arange(length) / 100)
    path = tmp_path / "run.parquet"
    all_rankings = list(rankings(path))
    first_Q = first_rows(path)
    assert first_Q.tolist() == [q * length for q in range(questions) if q % 7 != 3] + [questions * length]
    for start, stop in ((0, 1), (560, 600), (100, 562), (599, 600)):
        part = list(rankings(path, first_Q[start], first_Q[stop]))
        assert [r.query_id for r in part] == [r.query_id for r in all_rankings[start:stop]]
        assert [r.passage_ids for r in part] == [r.passage_ids for r in all_rankings[start:stop]]
    assert [r.query_id for r in all_rankings] == [f"q{q}" for q in range(questions) if q % 7 != 3]
    for ranking in all_rankings:
        q = int(ranking.query_id[1:])
        assert ranking.passage_ids == [f"p{q}-{i}" for i in range(length)]
        np.testing.assert_array_equal(ranking.scores, 500.0 - q - np.arange(length) / 100)


def test_positives_are_those_of_training_questions_in_the_order_of_the_table(small):
    assert train_positives(small[0]) == {"q0": ("p0",), "q1": ("p1",)}


def test_a_run_without_training_questions_is_refused(small, work, tmp_path):
    (tmp_path / "empty").mkdir()
    with writer(tmp_path / "empty") as write:
        write("test", ["q2"], ["p3"], np.array([1.0]))
    with pytest.raises(InputError, match="no training questions"):
        mine(CONFIG, small[0], tmp_path / "empty", work())


def test_no_page_is_written_if_none_is_requested(small, work):
    done = work()
    mine(CONFIG.model_copy(update={"page_questions": 0}), *small, done)
    assert sorted(p.name for p in done.out.iterdir()) == ["negatives.json", "negatives.parquet"]
