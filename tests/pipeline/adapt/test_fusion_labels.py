"""Soft labels by the fusion of two runs."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from world import World

from pipeline.adapt import teacher
from pipeline.adapt.fusion_labels import EQUAL, fusion_labels, look_up
from pipeline.data.collection import write_table
from pipeline.data.runs import SCHEMA, Run, ranked
from pipeline.errors import InputError
from pipeline.evaluate.fusion.fuse import fuse
from pipeline.finetune.pools import read_pools
from pipeline.finetune.soft_label_pairs import SoftLabelsConfig
from pipeline.finetune.soft_targets import teacher_scores

CONFIG = SoftLabelsConfig(negatives_from="bm25", negative_depth=None)


def write_run(folder: Path, seed: int) -> Path:
    """Twelve random passages for each training question of the world but the last."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    rows = []
    for question in range(23):
        passages = rng.permutation(60)[:12]
        rows += [("train", f"q{question}", f"d{d}-0", rank, 30.0 - rank) for rank, d in enumerate(passages, 1)]
    write_table(folder / "run.parquet", SCHEMA, rows)
    return folder


def as_run(folder: Path) -> Run:
    rows = pq.read_table(folder / "run.parquet").to_pylist()
    question_R = np.array([int(row["query_id"][1:]) for row in rows])
    passage_R = np.array([2 * int(row["passage_id"][1:-2]) for row in rows])
    return ranked(question_R, passage_R, np.array([row["score"] for row in rows]))


@pytest.fixture
def runs(world: World, tmp_path: Path) -> tuple[Path, Path]:
    bm25, run = write_run(tmp_path / "bm25", 1), write_run(tmp_path / "run", 2)
    (bm25 / "negatives.parquet").write_bytes((world.bm25 / "negatives.parquet").read_bytes())
    return bm25, run


def test_labels_are_the_fusions_scores_and_fine_tuning_reads_them(world: World, runs, work) -> None:
    done = work()
    metrics = fusion_labels(CONFIG, world.collection, *runs, None, done)
    rows = pq.read_table(done.out / "scores.parquet").to_pylist()
    fused = fuse([as_run(folder) for folder in runs], EQUAL)
    expected = {(int(q), int(p)): s for q, p, s in zip(fused.question_R, fused.passage_R, fused.score_R, strict=True)}
    listed = 0
    for row in rows:
        question, (document, part) = int(row["query_id"][1:]), row["passage_id"][1:].split("-")
        lowest = min([score for (q, _), score in expected.items() if q == question], default=0.0)
        key = (question, 2 * int(document) + int(part))
        listed += key in expected
        assert row["score"] == pytest.approx(expected.get(key, lowest), abs=1e-6)
    assert listed > 20
    assert metrics["unlisted_share"] == pytest.approx(1 - listed / len(rows))
    assert (metrics["questions"], metrics["pairs"]) == (24, len(rows))
    assert 0 < metrics["judged_first"] < 1
    pools = read_pools(world.collection, runs[0], bm25=runs[0])
    assert teacher_scores(done.out / "scores.parquet", world.collection, pools) is not None


def test_a_run_without_training_questions_is_one_line(world: World, runs, work, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    write_table(tmp_path / "none" / "run.parquet", SCHEMA, [("test", "q40", "d1-0", 1, 1.0)])
    with pytest.raises(InputError, match=r"search\.splits must have train"):
        fusion_labels(CONFIG, world.collection, runs[0], tmp_path / "none", None, work())


def test_the_fusion_is_that_of_the_adaptation() -> None:
    assert teacher.EQUAL == EQUAL


def test_pairs_are_looked_up_in_any_order() -> None:
    run = Run(np.array([0, 0, 2, 2]), np.array([9, 4, 4, 1]), np.array([3.0, 1.0, 5.0, -2.0]))
    scores, listed = look_up(run, np.array([2, 0, 1, 2, 0]), np.array([1, 9, 4, 7, 50]))
    assert scores.tolist() == [-2.0, 3.0, 0.0, -2.0, 1.0]
    assert listed.tolist() == [True, True, False, False, False]
    none = Run(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    assert look_up(none, np.array([1]), np.array([1]))[0].tolist() == [0.0]
