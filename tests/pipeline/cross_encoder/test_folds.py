"""Folds: each training question is scored by the cross-encoder that was trained without it."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crossed import CONFIG, make_cross_encoder
from encoders import SUBSET

from pipeline.cross_encoder.cross_encoder import check_training, cross_encoder, smaller_settings
from pipeline.cross_encoder.folds import check_folds, divide, fold_numbers, read_fold, without_fold, write_fold
from pipeline.cross_encoder.soft_labels import soft_labels
from pipeline.data import barred
from pipeline.data.judged import read_judged
from pipeline.errors import InputError
from pipeline.finetune.pools import read_pools
from pipeline.finetune.soft_label_pairs import SoftLabelsConfig

SETTINGS = SoftLabelsConfig(negatives_from="bm25", negative_depth=None)
FOLDED = CONFIG.model_copy(update={"folds": 3})


@pytest.fixture(scope="module")
def members(pair_start, tmp_path_factory) -> dict:
    """Untrained cross-encoders of the folds, each with weights of its own, by parameter."""
    folder = tmp_path_factory.mktemp("folds")
    made = {}
    for fold in divide(3, CONFIG.seed):
        made[f"cross_encoder_{fold.number}"] = make_cross_encoder(pair_start, folder / str(fold.number), fold.number)
        write_fold(fold, folder / str(fold.number))
    return made


def train(world, start, work, **arguments):
    metrics = cross_encoder(FOLDED, SUBSET, world.collection, world.tokens, start, world.bm25, None, work, **arguments)
    return metrics, work.out


def label(world, work, **cross_encoders):
    metrics = soft_labels(SETTINGS, world.collection, world.tokens, world.bm25, None, work, **cross_encoders)
    return metrics, pq.read_table(work.out / "scores.parquet").to_pylist()


def test_folds_divide_all_questions_by_their_words(world, tmp_path):
    rows = np.arange(60)
    numbers = fold_numbers(world.collection, rows, 4, 1)
    assert {*numbers} == {1, 2, 3, 4}
    np.testing.assert_array_equal(fold_numbers(world.collection, rows[::-1], 4, 1), numbers[::-1])
    np.testing.assert_array_equal(fold_numbers(world.collection, rows.repeat(2), 4, 1), numbers.repeat(2))
    assert (fold_numbers(world.collection, rows, 4, 2) != numbers).any()
    table = pq.read_table(world.collection / "queries.parquet")
    again = table.set_column(0, "query_id", pa.array([f"other{i}" for i in rows]))
    again = again.set_column(2, "text", pa.array([f" {text.upper()}" for text in table["text"].to_pylist()]))
    pq.write_table(again, tmp_path / "queries.parquet")
    np.testing.assert_array_equal(fold_numbers(tmp_path, rows, 4, 1), numbers)


def test_a_fold_is_left_out_of_the_pools(world):
    """What is left has the same lists and barred passages as before, question by question."""
    whole = read_pools(world.collection, world.bm25)
    number_n, seen, passages = fold_numbers(world.collection, whole.queries, 3, 5), [], np.arange(whole.passages)
    for fold in divide(3, 5):
        part = without_fold(whole, world.collection, fold)
        assert part.queries.tolist() == whole.queries[number_n != fold.number].tolist()
        seen += [*part.queries]
        for n, row in enumerate(part.queries):
            before = whole.queries.tolist().index(row)
            assert part.judged[n].tolist() == whole.judged[before].tolist()
            assert part.negatives[0][n].tolist() == whole.negatives[0][before].tolist()
            one, other = (
                barred.reasons(pools.barred, np.full(len(passages), place), passages)
                for pools, place in ((part, n), (whole, before))
            )
            np.testing.assert_array_equal(one, other)
            assert (one != barred.FREE).any()
    assert sorted(seen) == sorted([*whole.queries] * 2)


def test_a_cross_encoder_is_trained_without_its_fold(world, pair_start, work, inline):
    metrics, outs = [], []
    for fold in divide(3, FOLDED.seed)[:2]:
        one, out = train(world, pair_start, work(str(fold.number)), fold=fold)
        metrics.append(one)
        outs.append(out)
        assert read_fold(out) == fold
    number_N = fold_numbers(world.collection, np.arange(24), 3, FOLDED.seed)
    assert [one["queries"] for one in metrics] == [(number_N != 1).sum(), (number_N != 2).sum()]
    first, second = ((out / "model.safetensors").read_bytes() for out in outs)
    assert first != second


def test_without_folds_nothing_changes(world, pair_start, work, inline):
    metrics, out = train(world, pair_start, work())
    assert metrics["queries"] == 24
    assert read_fold(out) is None
    assert not (out / "fold.json").exists()


def test_each_question_is_scored_by_the_cross_encoder_that_has_not_seen_it(world, members, work, inline):
    metrics, rows = label(world, work("folds"), **members)
    alone = [label(world, work(name), cross_encoder=folder)[1] for name, folder in members.items()]
    number_N = fold_numbers(world.collection, np.array([int(row["query_id"][1:]) for row in rows]), 3, CONFIG.seed)
    assert {*number_N} == {1, 2, 3}
    assert metrics["pairs"] == len(rows) == len(alone[0])
    for i, (row, number) in enumerate(zip(rows, number_N, strict=True)):
        assert row["score"] == pytest.approx(alone[number - 1][i]["score"], abs=2e-5)
        assert len({one[i]["score"] for one in alone}) == 3


def test_cross_encoders_that_are_not_the_folds_of_one_division_are_refused(world, members, teacher, work, tmp_path):
    one, two, three = members.values()
    other = shutil.copytree(three, tmp_path / "other")
    write_fold(divide(3, CONFIG.seed + 1)[2], other)
    lists = [one, two], [one, two, other], [two, one, three], [one, two, teacher], [teacher, one, two]
    for i, wrong in enumerate(lists):
        with pytest.raises(InputError, match=r"not the folds 1, 2, \.\.\. of one division") as error:
            label(world, work(str(i)), **{f"cross_encoder_{n}": folder for n, folder in enumerate(wrong)})
        assert "\n" not in str(error.value)
    (other / "fold.json").write_text(json.dumps({"number": 0}))
    with pytest.raises(InputError, match=r"fold\.json: cannot be read"):
        read_fold(other)


def test_a_fold_without_training_questions_is_refused_with_fewer_folds_as_advice(world):
    known = read_judged(world.collection, "train")
    few = SUBSET.model_copy(update={"queries": 2})
    config = CONFIG.model_copy(update={"folds": 5})
    check_training(config, SUBSET, world.collection, known)
    with pytest.raises(InputError, match=r"folds: fold \d of 5 has none of the 2 training questions"):
        check_training(config, few, world.collection, known)
    assert [change["folds"] for change in smaller_settings(config, few, known) if change] == [4, 3, 2, None]
    check_folds(world.collection, np.arange(1), None, 0)


def test_a_fold_with_all_questions_leaves_nothing_to_train_on(world):
    pools = read_pools(world.collection, world.bm25, max_queries=1)
    number = int(fold_numbers(world.collection, pools.queries, 2, 0)[0])
    with pytest.raises(InputError, match=f"cross_encoder.folds: all training questions are in fold {number} of 2"):
        without_fold(pools, world.collection, divide(2, 0)[number - 1])
