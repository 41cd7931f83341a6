"""Reranked runs, and questions labelled by a cross-encoder."""

import shutil
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from crossed import CONFIG, make_cross_encoder

from pipeline.cross_encoder.lengths import read_lengths
from pipeline.cross_encoder.pairs import pair_rows, read_pair_form, score_rows
from pipeline.cross_encoder.rerank import STEP, RerankConfig, rerank
from pipeline.data.runs import writer
from pipeline.errors import InputError
from pipeline.modeling.checkpoint import load_classifier
from pipeline.negatives.pseudo_labels import PseudoLabelsConfig, pseudo_labels
from pipeline.tokenization.token_files import Tokens

SETTINGS = RerankConfig(splits=["dev", "test"], depth=15)
DEPTH = 30
PSEUDO = PseudoLabelsConfig(depth=20, positive_above=0.6, negative_below=0.45, positives=2, negatives=3)


@pytest.fixture(scope="module")
def first_run(world, tmp_path_factory):
    """A run of every question, its judged passages at ranks 5 and 10."""
    folder = tmp_path_factory.mktemp("run")
    queries = pq.read_table(world.collection / "queries.parquet").to_pylist()
    ids = pq.read_table(world.collection / "passages.parquet")["passage_id"].to_pylist()
    rng = np.random.default_rng(3)
    with writer(folder) as write:
        for split in ("train", "dev", "test"):
            for query in (q for q in queries if q["split"] == split):
                d = int(query["query_id"][1:])
                others = [ids[i] for i in rng.permutation(120) if i // 2 != d][: DEPTH - 2]
                listed = [*others[:4], f"d{d}-0", *others[4:8], f"d{d}-1", *others[8:]]
                write(split, [query["query_id"]] * DEPTH, listed, np.linspace(9, 1, DEPTH).astype(np.float32))
    return folder


def lists(folder):
    """{(split, question): [(passage, score)]}, best first."""
    result = {}
    for row in pq.read_table(folder / "run.parquet").to_pylist():
        result.setdefault((row["split"], row["query_id"]), []).append((row["passage_id"], row["score"]))
        assert row["rank"] == len(result[row["split"], row["query_id"]])
    return result


def run(world, first_run, work, *teachers, **fields):
    settings = SETTINGS.model_copy(update=fields)
    cross_encoders = {f"cross_encoder{i}": teacher for i, teacher in enumerate(teachers)}
    metrics = rerank(settings, world.collection, world.tokens, first_run, work, **cross_encoders)
    return metrics, lists(work.out)


def plain(world, teacher, query_id, passages):
    """Logits of a question's passages, each row scored separately."""
    tokens = Tokens.open(world.tokens)
    ids = pq.read_table(world.collection / "passages.parquet")["passage_id"].to_pylist()
    form = read_pair_form(teacher, read_lengths(teacher), tokens.specials)
    rows = pair_rows(tokens, [int(query_id[1:])] * len(passages), [ids.index(p) for p in passages], form)
    return score_rows(load_classifier(teacher), rows, 1)


def perfect(cross_encoder, tokens, query_N, passage_N, work, name="pairs"):
    return (passage_N // 2 == query_N).astype(np.float32)


def test_a_perfect_teacher_puts_the_judged_passages_first(world, first_run, teacher, work, monkeypatch):
    monkeypatch.setattr("pipeline.cross_encoder.score_pairs.score", perfect)
    before = lists(first_run)
    done = work()
    metrics, after = run(world, first_run, done, teacher)
    assert after.keys() == {key for key in before if key[0] != "train"}
    assert (metrics["questions"], metrics["pairs"], metrics["cross_encoders"]) == (36, 36 * 15, 1)
    ids = pq.read_table(world.collection / "passages.parquet")["passage_id"].to_pylist()
    for (split, query_id), ranked in after.items():
        passages, scores = (np.array(x) for x in zip(*ranked, strict=True))
        assert passages[:2].tolist() == [f"d{query_id[1:]}-0", f"d{query_id[1:]}-1"]
        old = [passage for passage, _ in before[split, query_id]]
        ties = [passage for passage in old[:15] if passage.split("-")[0] != f"d{query_id[1:]}"]
        assert passages[2:15].tolist() == sorted(ties, key=ids.index)  # equal scores: passage order
        assert passages[15:].tolist() == old[15:]
        np.testing.assert_allclose(scores[15:], -STEP * np.arange(1, 16))
    trec = [line.split() for line in (done.out / "run.trec").read_text().splitlines()]
    assert [line[2] for line in trec[:2]] == [passage for passage, _ in next(iter(after.values()))[:2]]


def test_scores_are_those_of_the_cross_encoder(world, first_run, teacher, work, inline):
    before = lists(first_run)
    metrics, after = run(world, first_run, work(), teacher)
    assert metrics["questions_cut"] == 0
    for key in [*after][:6]:
        passages = [passage for passage, _ in before[key][:15]]
        expected = dict(zip(passages, plain(world, teacher, key[1], passages), strict=True))
        actual = dict(after[key][:15])
        assert actual.keys() == expected.keys()
        for passage in passages:
            assert actual[passage] == pytest.approx(expected[passage], abs=2e-5)
        scores = [score for _, score in after[key]]
        assert scores[:15] == sorted(scores[:15], reverse=True)
        assert all(a > b for a, b in pairwise(scores[14:]))
        assert [passage for passage, _ in after[key][15:]] == [passage for passage, _ in before[key][15:]]


def test_a_list_shorter_than_the_depth_is_reranked_completely(world, first_run, teacher, work, inline):
    metrics, after = run(world, first_run, work(), teacher, depth=1000, splits=["dev"])
    assert metrics["pairs"] == sum(map(len, after.values())) == 18 * DEPTH
    assert {split for split, _ in after} == {"dev"}


def test_an_ensemble_is_the_mean_of_logits(world, first_run, teacher, pair_start, work, inline, tmp_path):
    other = make_cross_encoder(pair_start, tmp_path / "other", seed=8)
    alone = [run(world, first_run, work(str(i)), one)[1] for i, one in enumerate((teacher, other))]
    metrics, both = run(world, first_run, work("both"), teacher, other)
    assert metrics["cross_encoders"] == 2
    for key, ranked in both.items():
        one, two = (dict(reranked[key][:15]) for reranked in alone)
        for passage, score in ranked[:15]:
            assert score == pytest.approx((one[passage] + two[passage]) / 2, abs=1e-5)
    swapped = run(world, first_run, work("swapped"), other, teacher)[1]
    assert swapped == both


def test_equal_inputs_give_equal_bytes(world, first_run, teacher, work, inline, monkeypatch):
    monkeypatch.setattr("pipeline.cross_encoder.score_pairs.SHARD", 100)
    one, two = work("one"), work("two", workers=3)
    for each in (one, two):
        run(world, first_run, each, teacher)
    for name in ("run.parquet", "run.trec"):
        assert (one.out / name).read_bytes() == (two.out / name).read_bytes()
    assert sorted(path.name for path in one.out.iterdir()) == ["run.parquet", "run.trec"]


def test_a_run_without_the_splits_is_reported_in_one_line(world, first_run, teacher, work, tmp_path):
    table = pq.read_table(first_run / "run.parquet")
    pq.write_table(table.filter(pc.equal(table["split"], "train")), tmp_path / "run.parquet")
    with pytest.raises(InputError, match=r"run\.parquet: no question of dev or test"):
        run(world, tmp_path, work(), teacher)


def test_a_bi_encoder_is_refused(world, first_run, teacher, work):
    with pytest.raises(InputError, match=r"pairs\.json: cannot be read"):
        run(world, first_run, work(), teacher, world.checkpoint)


@pytest.fixture(scope="module")
def unjudged(world, tmp_path_factory):
    """The world's collection without the judgements of training questions 0 to 9."""
    folder = tmp_path_factory.mktemp("unjudged") / "collection"
    shutil.copytree(world.collection, folder)
    qrels = pq.read_table(folder / "qrels.parquet")
    removed = pc.is_in(qrels["query_id"], value_set=pa.array([f"q{i}" for i in range(10)]))
    pq.write_table(qrels.filter(pc.invert(removed)), folder / "qrels.parquet")
    return folder


def test_pseudo_labels(world, first_run, teacher, unjudged, work, inline):
    ranked = [
        hits[:20] for (split, query), hits in lists(first_run).items() if split == "train" and int(query[1:]) < 10
    ]
    logits = [plain(world, teacher, f"q{q}", [passage for passage, _ in hits]) for q, hits in enumerate(ranked)]
    probabilities = 1 / (1 + np.exp(-np.array(logits, float)))
    above, below = float(np.quantile(probabilities, 0.93)), float(np.quantile(probabilities, 0.15))
    done, config = work(), PSEUDO.model_copy(update={"positive_above": above, "negative_below": below})
    metrics = pseudo_labels(config, unjudged, world.tokens, first_run, done, cross_encoder=teacher)
    qrels, negatives, counts = [], [], {"none": 0, "bare": 0}
    for q, (hits, probability) in enumerate(zip(ranked, probabilities, strict=True)):
        positive = sorted(np.flatnonzero(probability > above), key=(-probability).__getitem__)[:2]
        negative = np.flatnonzero(probability < below)[:3] if len(positive) else []
        qrels += [("train", f"q{q}", hits[i][0], 1) for i in positive]
        negatives += [(f"q{q}", hits[i][0], "pseudo", i + 1, hits[i][1]) for i in negative]
        counts["none"] += not len(positive)
        counts["bare"] += len(positive) > 0 and not len(negative)
    assert counts["none"] > 0
    rows = [tuple(row.values()) for row in pq.read_table(done.out / "qrels.parquet").to_pylist()]
    assert rows == qrels
    assert [tuple(row.values()) for row in pq.read_table(done.out / "negatives.parquet").to_pylist()] == negatives
    assert len(negatives) > 0
    assert metrics["questions"] == 10
    assert metrics["questions_without_positives"] == counts["none"] == 10 - metrics["questions_labelled"]
    assert metrics["questions_without_negatives"] == counts["bare"]
    first = [f"q{q}" for q, probability in enumerate(probabilities) if probability.max() <= above][:3]
    assert f"questions without a pseudo-label: {counts['none']} (first: {', '.join(first)}); " in metrics["notice"]
    assert (metrics["positives"], metrics["negatives"]) == (len(qrels), len(negatives))


def test_pseudo_labels_of_folds_are_those_of_the_mean_logits(
    world, first_run, teacher, pair_start, unjudged, work, monkeypatch, tmp_path
):
    """Questions without a judged passage are in no training, so every fold counts."""
    other = make_cross_encoder(pair_start, tmp_path / "other", seed=8)
    sides = {teacher: 9.0, other: -5.0}  # relevant by the mean alone
    monkeypatch.setattr(
        "pipeline.cross_encoder.score_pairs.score", lambda folder, tokens, q, p, *_: np.full(len(p), sides[folder])
    )
    config = PSEUDO.model_copy(update={"positives": None, "positive_above": 0.85})
    members = {"cross_encoder_1": teacher, "cross_encoder_2": other}
    metrics = pseudo_labels(config, unjudged, world.tokens, first_run, work(), **members)
    assert metrics["positives"] == metrics["questions"] * config.depth
    with pytest.raises(InputError, match=r"no passage scores above 0\.85"):
        pseudo_labels(config, unjudged, world.tokens, first_run, work("one"), cross_encoder=other)


def test_all_labels_are_kept_if_no_number_is_set(world, first_run, teacher, unjudged, work, inline):
    done = work()
    settings = PSEUDO.model_copy(
        update={"positives": None, "negatives": None, "positive_above": 0.5, "negative_below": 0.5}
    )
    metrics = pseudo_labels(settings, unjudged, world.tokens, first_run, done, cross_encoder=teacher)
    labelled = metrics["questions_labelled"]
    assert metrics["positives"] + metrics["negatives"] == 20 * labelled


def test_a_result_without_labels_is_reported_in_one_line(world, first_run, teacher, unjudged, work, inline):
    with pytest.raises(InputError, match=r"run\.parquet: no training question without a judged passage"):
        pseudo_labels(PSEUDO, world.collection, world.tokens, first_run, work("judged"), cross_encoder=teacher)
    strict = PSEUDO.model_copy(update={"positive_above": 1.0})
    with pytest.raises(InputError, match=r"pseudo_labels.positive_above: no passage scores above 1.0"):
        pseudo_labels(strict, unjudged, world.tokens, first_run, work("sure"), cross_encoder=teacher)


def test_thresholds_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match="negative_below"):
        PseudoLabelsConfig(**{**PSEUDO.model_dump(), "negative_below": 0.7})
    with pytest.raises(ValueError, match="depth"):
        RerankConfig(splits=["dev"], depth=0)


def test_the_lengths_of_the_cross_encoder_are_used(world, first_run, pair_start, work, inline, tmp_path):
    short = make_cross_encoder(pair_start, tmp_path / "short", config=CONFIG.model_copy(update={"question_tokens": 4}))
    metrics, _ = run(world, first_run, work(), short)
    assert metrics["questions_cut"] == (Tokens.open(world.tokens).queries.lengths[24:] > 2).sum() > 0
