"""One rule for all negatives: each source of negatives is tested with each kind of passage that is barred."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given as given_examples
from hypothesis import strategies as st
from searched import write_collection

from pipeline.bm25 import first_stage
from pipeline.cross_encoder.lengths import Lengths
from pipeline.data import barred
from pipeline.data.collection import passage_ids, read_queries, schemas, write_table
from pipeline.data.ids import hash_id
from pipeline.data.near_duplicates.groups import Groups, write_groups
from pipeline.data.runs import NEGATIVES, SCHEMA, writer
from pipeline.data.text.same_words import same_words
from pipeline.errors import InputError
from pipeline.finetune import examples
from pipeline.finetune.pools import load_pools, read_pools, save_pools
from pipeline.finetune.training_pools import pool_counts
from pipeline.finetune.validation import ValidationConfig, read_candidates
from pipeline.negatives import pseudo_labels
from pipeline.negatives.denoise import DenoiseConfig, denoise
from pipeline.negatives.from_file import NegativesFileConfig, negatives_file
from pipeline.negatives.mine import MineConfig, mine
from pipeline.notices import read_notices

QUESTION = "What is  an Élan?"
LONG = f"{' '.join(f'word{n}' for n in range(30))} and a sudden vigour that soon"


class Kind(NamedTuple):
    """A passage `x` that is not a negative of the question, and the positives of the question."""

    reason: str
    title: str
    text: str
    passage_id: str = "x"
    positives: Sequence[tuple[str, str]] = (("", "A sudden vigour."),)
    near: bool = False
    """Ingest has found that it almost equals the first positive."""


KINDS = {
    "a copy": Kind("duplicate", "", "A sudden vigour."),
    "a copy with white space": Kind("duplicate", "", " A sudden vigour.\n\u00a0"),
    "a copy under another title": Kind("duplicate", "Vigour", "A sudden vigour."),
    "a title alone": Kind("duplicate", "Élan", "", positives=[("Élan ", " ")]),
    "a copy of the second positive": Kind("duplicate", "", "two", positives=[("", "one"), ("", "two")]),
    "almost a copy": Kind("duplicate", "", f"{LONG} fades.", positives=[("", f"{LONG} vanishes.")], near=True),
    "the question's id": Kind("question", "", "Something else.", "q"),
    "the question's words": Kind("question", "", QUESTION),
    "its words in another case": Kind("question", "", "\twhat is an élan? "),
    "its words in another Unicode form": Kind("question", "", "What is an E\u0301lan?"),
    "its words in full width": Kind("question", "", "ＷＨＡＴ　is an Élan？"),
    "its words as a title alone": Kind("question", QUESTION, ""),
}
OTHERS = [
    ("n0", "", "a sudden vigour."),  # in another case
    ("n1", "A sudden vigour.", "Its title alone is a copy."),
    ("n2", QUESTION, "A page with the question as its title answers it."),
    ("n3", "", f"{QUESTION} A sudden vigour."),
    ("n4", "", "Far off."),
]
FREE = {passage_id for passage_id, _, _ in OTHERS}
LISTED = ["x", "q", "p0", "p1", *sorted(FREE)]


@pytest.mark.parametrize(
    ("text", "other"),
    [("ＡＢ　ｃ", "ab C"), ("ﬁne", "FINE"), ("Straße", "STRASSE"), ("ΐ", "Ϊ́"), ("ｶﾞ", "ガ"), ("a\u00a0b", "A B")],
)
def test_texts_with_the_same_words(text, other):
    assert same_words(text) == same_words(other)
    assert same_words(text) != same_words(f"{other}2")


@pytest.fixture(params=list(KINDS))
def kind(request) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def collection(kind, tmp_path) -> Path:
    return make_collection(tmp_path / "collection", kind)


def make_collection(folder: Path, kind: Kind, judged: bool = True) -> Path:
    """A training question, a dev question with the same text, their positives, `x` and OTHERS."""
    positives = [(f"p{n}", *texts) for n, texts in enumerate(kind.positives)]
    passages = [
        (i, i, title, text) for i, title, text in [*positives, (kind.passage_id, kind.title, kind.text), *OTHERS]
    ]
    relevant = [(split, query, p[0], 1) for split, query in (("train", "q"), ("dev", "d")) for p in positives]
    questions = [("q", "train", QUESTION), ("d", "dev", QUESTION)]
    write_collection(folder, passages, questions, relevant if judged else [])
    if kind.near:
        write_groups(folder, Groups(np.array([0, len(positives)]), np.array([0, 0])))
    return folder


def listed(collection: Path) -> list[str]:
    """All passages. Those that must not be taken come first."""
    known = passage_ids(collection)
    return [passage_id for passage_id in LISTED if passage_id in known]


def write_run(folder: Path, split: str, query: str, passages: list[str]) -> Path:
    folder.mkdir()
    with writer(folder) as write:
        write(split, [query] * len(passages), passages, 99.0 - np.arange(len(passages)))
    return folder


def taken(folder: Path) -> set[str]:
    return set(pq.read_table(folder / "negatives.parquet")["passage_id"].to_pylist())


def check(metrics: dict, kind: Kind, judged_is_reported: bool, judged: int | None = None) -> None:
    """One passage is counted and reported with its reason. So are the positives if `judged_is_reported`."""
    judged = len(kind.positives) if judged is None else judged
    other = {"duplicate": "question", "question": "duplicate"}[kind.reason]
    assert [metrics[f"dropped_{reason}"] for reason in ("judged", kind.reason, other)] == [judged, 1, 0]
    lines = [line for line in read_notices(metrics) if line.startswith("negatives dropped")]
    assert f"negatives dropped, {barred.DESCRIPTIONS[kind.reason]}: 1 (first: {kind.passage_id} for q)" in lines
    assert len(lines) == 1 + bool(judged and judged_is_reported)


def barred_passages(collection: Path) -> dict[str, dict[str, str]]:
    """{question: {passage: reason}} of all that is barred."""
    rule, ids = barred.by_id(collection), passage_ids(collection)
    reasons_by_question = {q.query_id: rule.of(q.query_id, ids) for q in read_queries(collection)}
    return {
        query_id: {ids[i]: barred.REASONS[reason_N[i]] for i in np.flatnonzero(reason_N != barred.FREE)}
        for query_id, reason_N in reasons_by_question.items()
        if (reason_N != barred.FREE).any()
    }


def test_judged_passages_copies_and_the_question_itself_are_barred(collection, kind):
    expected = {f"p{n}": "judged" for n in range(len(kind.positives))} | {kind.passage_id: kind.reason}
    assert barred_passages(collection) == {"q": expected}


def test_negatives_of_the_first_stage(collection, kind, work):
    """Negatives from the hits of BM25."""
    done, dropped, ids = work(), barred.Dropped(), listed(collection)
    hits = (ids, [float(-n) for n in range(len(ids))])
    no_negatives, depths = barred.by_id(collection), {"train": 100}
    questions = [q for q in read_queries(collection) if q.split == "train"]
    first_stage.write_first_stage(
        done.out, questions, no_negatives, dropped, depths, lambda piece, depth: [hits], done.progress
    )
    assert taken(done.out) == FREE
    ranks = pq.read_table(done.out / "negatives.parquet")["rank"].to_pylist()
    assert ranks == [ids.index(p) + 1 for p in ids if p in FREE]
    assert dropped.counts[kind.reason] == 1


def test_negatives_of_a_run_file(collection, kind, work, tmp_path):
    lines = [f"q Q0 {p} {n} {100 - n} other\n" for n, p in enumerate(listed(collection), 1)]
    (tmp_path / "run.trec").write_text("".join(lines))
    done = work()
    metrics = first_stage.from_run(tmp_path / "run.trec", {"train": 100, "dev": 9, "test": 9}, collection, done)
    assert taken(done.out) == FREE
    check(metrics, kind, judged_is_reported=False)


@pytest.mark.parametrize("number", [3, 100])
def test_mined_negatives(number, collection, kind, work, tmp_path):
    run, done = write_run(tmp_path / "run", "train", "q", listed(collection)), work()
    config = MineConfig(depth=100, number=number, margin_absolute=None, margin_relative=None, seed=0, page_questions=1)
    metrics = mine(config, collection, run, done)
    assert taken(done.out) <= FREE
    assert metrics["negatives"] == min(number, len(FREE))
    check(metrics, kind, judged_is_reported=False)


def test_negatives_of_a_file(collection, kind, work, tmp_path):
    (tmp_path / "n.tsv").write_text("".join(f"q\t{p}\n" for p in listed(collection)))
    done = work()
    metrics = negatives_file(
        NegativesFileConfig(file=tmp_path / "n.tsv", number=None, seed=0, page_questions=0), collection, done
    )
    assert taken(done.out) == FREE
    check(metrics, kind, judged_is_reported=True)


def test_triples_at_ingest(collection, kind, ingested, tmp_path):
    """Triples of MS MARCO. Its documents are lines of id, address, title and text."""
    rows = pq.read_table(collection / "passages.parquet").to_pylist()
    files = {
        "collection": [(row["passage_id"], "", row["title"], " ".join(row["text"].split("\n"))) for row in rows],
        "train_queries": [("q", QUESTION)],
        "train_qrels": [("q", "0", f"p{n}", "1") for n in range(len(kind.positives))],
        "negatives": [("q", "p0", passage_id) for passage_id in listed(collection)],
    }
    paths = {name: tmp_path / f"{name}.tsv" for name in files}
    for name, lines in files.items():
        text = "".join("\t".join(cell.replace("\t", " ") for cell in line) + "\n" for line in lines)
        paths[name].write_text(text, encoding="utf-8")
    absent = dict.fromkeys(["titles", "dev_queries", "dev_qrels", "test_queries", "test_qrels"])
    fields = {"reader": "msmarco", "layout": "documents", "metadata": [], "negatives_per_query": 50}
    fields["near_duplicates"] = 0.8 if kind.near else None
    result = ingested(**fields, **absent, **paths)
    assert set(result.negatives["q"]) == FREE
    check(result.counts | {"notice": "\n".join(result.notices)}, kind, judged_is_reported=True)


@pytest.fixture
def negatives_folder(collection, tmp_path) -> Callable[..., Path]:
    """A function that writes unfiltered negatives, as of an older artifact, or triples, which have no ranks."""

    def write(name: str, source: str = "") -> Path:
        (tmp_path / name).mkdir()
        rows = [("q", p, source, n, 1.0) for n, p in enumerate(listed(collection), 1)]
        path = tmp_path / name / "negatives.parquet"
        write_table(path, *((NEGATIVES, rows) if source else (schemas()["negatives"], [row[:2] for row in rows])))
        return tmp_path / name

    return write


@pytest.mark.parametrize("source", ["", "bm25"])
@pytest.mark.parametrize("depth", [None, 100])
def test_first_negatives_in_training(source, depth, collection, kind, negatives_folder):
    """Triples and first negatives, for bi-encoders, cross-encoders and soft labels."""
    dropped = barred.Dropped()
    pools = read_pools(collection, negatives_folder("first", source), depth, dropped=dropped)
    ids = passage_ids(collection)
    assert {ids[row] for row in pools.negatives[0][0]} == FREE
    check(pool_counts(pools, 1, dropped), kind, judged_is_reported=True)


@pytest.mark.parametrize("pooled", [False, True])
def test_second_negatives_in_training(pooled, collection, kind, negatives_folder):
    pools = read_pools(
        collection, negatives_folder("first", "bm25"), mined=negatives_folder("mined", "mined"), pooled=pooled
    )
    ids = passage_ids(collection)
    assert [{ids[row] for row in kind_of[0]} for kind_of in pools.negatives] == [FREE] * (1 if pooled else 2)


def test_depth_counts_the_remaining_triples(collection, negatives_folder):
    pools = read_pools(collection, negatives_folder("first"), depth=2)
    ids = passage_ids(collection)
    assert [ids[row] for row in pools.negatives[0][0]] == sorted(FREE)[:2]


def test_negatives_drawn_from_the_whole_collection(collection, kind, tmp_path):
    (tmp_path / "none").mkdir()
    write_table(tmp_path / "none" / "negatives.parquet", NEGATIVES, [])
    pools = read_pools(collection, tmp_path / "none")
    save_pools(pools, tmp_path / "pools.npz")
    ids = passage_ids(collection)
    for loaded in (pools, load_pools(tmp_path / "pools.npz")):
        draw = examples.Draw(len(FREE), None, seed=3)
        for epoch in range(3):
            _, passages = examples.example(loaded, epoch, 0, draw)
            assert {ids[row] for row in passages[1:]} == FREE


def test_positives_of_other_questions_in_a_batch(collection, kind, tmp_path):
    """A positive of another question is masked if it is barred for this question, like a judged passage."""
    ids = passage_ids(collection)
    queries = pq.read_table(collection / "queries.parquet").to_pylist()
    rows = [(q["query_id"], q["split"], q["text"]) for q in queries] + [("r", "train", "Which other?")]
    write_table(collection / "queries.parquet", schemas()["queries"], [(*row, []) for row in rows])
    qrels = [tuple(row.values()) for row in pq.read_table(collection / "qrels.parquet").to_pylist()]
    write_table(collection / "qrels.parquet", schemas()["qrels"], [*qrels, ("train", "r", kind.passage_id, 1)])
    write_table(tmp_path / "negatives.parquet", NEGATIVES, [])
    pools = read_pools(collection, tmp_path)
    batch = examples.draw_batch(pools, 0, np.array([0, 1]), examples.Draw(0, None, seed=0))
    assert ids[batch.passages_QN[1, 0]] == kind.passage_id
    assert batch.excluded_QP[0].tolist() == [False, True]


def test_denoised_mined_negatives(collection, kind, work, tmp_path):
    """Denoised negatives are a subset of the mined ones."""
    run, mined = write_run(tmp_path / "run", "train", "q", listed(collection)), work("mined")
    config = MineConfig(depth=100, number=100, margin_absolute=None, margin_relative=None, seed=0, page_questions=0)
    mine(config, collection, run, mined)
    ids = listed(collection)
    scores = pa.table([pa.array(["q"] * len(ids)), pa.array(ids), pa.array([-1.0] * len(ids), pa.float32())],
                      names=["query_id", "passage_id", "score"])  # fmt: skip
    pq.write_table(scores, tmp_path / "scores.parquet")
    done = work("denoised")
    denoise(DenoiseConfig(threshold=0.5), mined.out, tmp_path, done)
    assert taken(done.out) == FREE


@pytest.fixture
def label(tmp_path, monkeypatch, work) -> Callable[..., tuple[dict, list[str]]]:
    """Returns (metrics, scored passages) of pseudo-labels. The cross-encoder scores only `relevant` ones highly."""

    def run(collection: Path, ranked: list[str], relevant: set[str], negatives: int | None) -> tuple[dict, list[str]]:
        ids, scored = passage_ids(collection), []

        def score(cross_encoder, tokens, query_N, passage_N, work, name) -> np.ndarray:
            scored.extend(ids[row] for row in passage_N)
            return np.array([9.0 if ids[row] in relevant else -9.0 for row in passage_N], np.float32)

        monkeypatch.setattr("pipeline.cross_encoder.score_pairs.score", score)
        monkeypatch.setattr(pseudo_labels, "check_cross_encoder", lambda *_: Lengths(1, 1, 1))
        monkeypatch.setattr(pseudo_labels, "count_cut", lambda *_: {})
        monkeypatch.setattr(
            "pipeline.tokenization.token_files.Tokens.open", lambda folder: SimpleNamespace(queries=None)
        )
        config = pseudo_labels.PseudoLabelsConfig(
            depth=100, positive_above=0.9, negative_below=0.1, positives=None, negatives=negatives
        )
        folder = write_run(tmp_path / "run", "train", "q", ranked)
        done = work("pseudo")
        metrics = pseudo_labels.pseudo_labels(config, collection, tmp_path, folder, done, cross_encoder=tmp_path)
        return metrics, scored

    return run


@pytest.mark.parametrize("limit", [None, 2])
def test_pseudo_labels(limit, kind, label, tmp_path):
    collection = make_collection(tmp_path / "collection", kind, judged=False)
    ranked = listed(collection)
    metrics, _ = label(collection, ranked, {"p0", "p1"}, limit)
    out = tmp_path / "pseudo" / "out"
    assert taken(out) == set(sorted(FREE, key=ranked.index)[:limit])
    assert set(pq.read_table(out / "qrels.parquet")["passage_id"].to_pylist()) == {"p0", "p1"} & set(ranked)
    check(metrics, kind, judged_is_reported=True, judged=0)


@pytest.mark.parametrize("name", ["the question's id", "the question's words", "its words as a title alone"])
def test_the_question_itself_is_not_a_pseudo_positive(name, label, tmp_path):
    collection = make_collection(tmp_path / "collection", KINDS[name], judged=False)
    _, scored = label(collection, [KINDS[name].passage_id, "p0", "n4"], {KINDS[name].passage_id, "p0"}, None)
    assert scored == ["p0", "n4"]


def test_validation_candidates(kind, tmp_path):
    """A copy of the judged passage would tie with it. The dev question has the id `d`."""
    if kind.passage_id == "q":
        kind = kind._replace(passage_id="d")
    collection = make_collection(tmp_path / "collection", kind)
    ids = passage_ids(collection)
    config = ValidationConfig(questions=1, candidates=1 + len(FREE), keep="last")
    write_table(tmp_path / "run.parquet", SCHEMA, [("dev", "d", p, n, 9.0 - n) for n, p in enumerate(ids, 1)])
    candidates = read_candidates(config, collection, tmp_path, seed=0)
    assert ids[candidates.passages_VC[0][0]] == "p0"
    assert {ids[row] for row in candidates.passages_VC[0][1:]} == FREE


def test_too_few_passages_for_candidates_or_negatives_are_refused_at_once(tmp_path):
    collection = make_collection(tmp_path / "collection", KINDS["a copy"])
    write_table(tmp_path / "run.parquet", SCHEMA, [])
    config = ValidationConfig(questions=1, candidates=2 + len(FREE), keep="last")
    with pytest.raises(InputError, match=r"validation\.candidates: 7 is too many: .* only 5 of the 7"):
        read_candidates(config, collection, tmp_path, seed=0)


def test_nothing_is_barred_without_training_questions(tmp_path):
    passages = [("a", "a", "", "same"), ("b", "b", "", "same")]
    collection = write_collection(tmp_path / "c", passages, [("a", "dev", "same")], [("dev", "a", "b", 1)])
    assert barred_passages(collection) == {}


def test_a_question_without_judgements_is_not_a_negative_of_itself(tmp_path):
    passages = [("a", "a", "", "same"), ("b", "b", "", "other")]
    collection = write_collection(tmp_path / "c", passages, [("q", "train", "Same")], [])
    assert barred_passages(collection) == {"q": {"a": "question"}}


def test_texts_are_hashed_once_while_their_file_is_unchanged(tmp_path, monkeypatch):
    passages = [("a", "a", "", "same"), ("b", "b", "", "other")]
    collection = write_collection(tmp_path / "c", passages, [("q", "train", "Same")], [])
    hashed: list[str] = []
    monkeypatch.setattr(barred, "hash_id", lambda text: hashed.append(text) or hash_id(text))
    first = barred.read_texts(collection)
    assert barred.read_texts(collection) is first
    assert hashed == ["same", "same", "other", "other"]
    write_table(collection / "passages.parquet", schemas()["passages"], passages[1:])
    assert barred.read_texts(collection).text_P.tolist() == [hash_id("other")]
    (collection / "passages.parquet").unlink()
    with pytest.raises(InputError, match=r"passages\.parquet: no such file"):
        barred.read_texts(collection)


@st.composite
def few_texts(draw):
    """(texts of passages, texts of questions, rows with the ids of questions, positives) of few distinct texts."""
    passage_texts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=9))
    question_texts = draw(st.lists(st.integers(3, 7), max_size=4))
    rows = st.integers(0, len(passage_texts) - 1)
    same_id = [draw(st.one_of(st.just(-1), rows)) for _ in question_texts]
    positives = [(n, p) for n in range(len(question_texts)) for p in draw(st.lists(rows, max_size=3))]
    return passage_texts, question_texts, same_id, positives


@given_examples(few_texts())
def test_the_rule_by_texts_equals_the_rule_by_pairs(example):
    """`reasons`, `barred_pairs` and `numbers_barred` give for all pairs what the definition gives for each."""
    passage_texts, question_texts, same_id, positives = example
    text_P, judging, judged = np.array(passage_texts, np.uint64), [n for n, _ in positives], [p for _, p in positives]
    texts = barred.Texts(text_P * 10, text_P // 2 * 2)  # two texts may have the same words
    pairs = np.array(judging, np.int64), np.array(judged, np.int64)
    rule = barred.between(texts, np.array(question_texts, np.uint64), np.array(same_id, np.int64), *pairs)

    def reason(question: int, passage: int) -> int:
        if (question, passage) in positives:
            return 0
        if passage_texts[passage] in [passage_texts[p] for n, p in positives if n == question]:
            return 1
        return 2 if same_id[question] == passage or question_texts[question] == texts.words_P[passage] else barred.FREE

    grid = [(n, p) for n in range(len(question_texts)) for p in range(len(passage_texts))]
    question_N, passage_N = (np.array([pair[i] for pair in grid], np.int64) for i in (0, 1))
    reason_N = barred.reasons(rule, question_N, passage_N)
    assert reason_N.tolist() == [reason(*pair) for pair in grid]
    barred_grid = [pair for pair, code in zip(grid, reason_N, strict=True) if code != barred.FREE]
    positions = barred.barred_pairs(rule, np.arange(len(question_texts)), np.arange(len(passage_texts)))
    assert list(zip(*(position.tolist() for position in positions), strict=True)) == barred_grid
    counts = np.bincount([n for n, _ in barred_grid], minlength=len(question_texts)) if question_texts else []
    assert barred.numbers_barred(rule).tolist() == list(counts)
    assert (barred.reasons(rule, np.array([-1, 0]), np.array([0, -1])) == barred.FREE).all()


@pytest.mark.parametrize(("questions", "positives", "copies"), [(1, 2000, 2000), (1000, 1, 100_000), (300, 300, 9000)])
def test_copies_are_not_listed_by_pairs(questions, positives, copies):
    """Positives with one text that has many copies: up to 1e8 pairs, but memory only for passages and positives."""
    text_P = np.zeros(copies + 5, np.uint64)
    text_P[-5:] = np.arange(1, 6)
    texts, question_n = barred.Texts(text_P, text_P + 10), np.arange(100, 100 + questions, dtype=np.uint64)
    pairs = np.arange(questions).repeat(positives), np.tile(np.arange(positives), questions)
    rule = barred.between(texts, question_n, np.full(questions, -1), *pairs)
    assert sum(array.nbytes for array in rule) < 16 * (copies + questions * (positives + 2) + 10)
    assert (barred.numbers_barred(rule) == copies).all()
    last_N = np.full(3, questions - 1), np.array([0, copies - 1, copies])
    assert barred.reasons(rule, *last_N).tolist() == [0, int(copies > positives), barred.FREE]
