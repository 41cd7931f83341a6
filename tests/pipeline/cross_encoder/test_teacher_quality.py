"""A teacher compared with its student on dev questions, and the warning if it is below."""

import shutil

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pipeline.cross_encoder import teacher_quality as module
from pipeline.cross_encoder.soft_labels import soft_labels
from pipeline.cross_encoder.teacher_quality import teacher_quality
from pipeline.data.runs import writer
from pipeline.finetune.soft_label_pairs import SoftLabelsConfig
from pipeline.notices import read_notices

DEV = 18


@pytest.fixture(scope="module")
def run(world, tmp_path_factory):
    """A run of every dev question, the judged passages at ranks 2 and 4 of 12; of the last one there is none."""
    folder = tmp_path_factory.mktemp("run")
    ids = pq.read_table(world.collection / "passages.parquet")["passage_id"].to_pylist()
    queries = pq.read_table(world.collection / "queries.parquet").to_pylist()
    with writer(folder) as write:
        for query_id in [q["query_id"] for q in queries if q["split"] == "dev"][:-1]:
            d = int(query_id[1:])
            others = [passage for n, passage in enumerate(ids) if n // 2 != d][:10]
            listed = [others[0], f"d{d}-1", others[1], f"d{d}-0", *others[2:]]
            write("dev", [query_id] * 12, listed, np.linspace(9, 1, 12))
    return folder


def perfect(query_N, passage_N):
    return (passage_N // 2 == query_N).astype(np.float32)


def test_a_better_teacher_is_measured_without_a_warning(world, run):
    assert teacher_quality(perfect, world.collection, run) == {
        "dev_questions": DEV,
        "dev_RR@10": pytest.approx((DEV - 1) / DEV),
        "student_dev_RR@10": pytest.approx((DEV - 1) / DEV / 2),
    }


def test_a_teacher_below_its_student_is_reported_in_one_line(world, run):
    metrics = teacher_quality(lambda q, p: -perfect(q, p), world.collection, run)
    assert metrics["dev_RR@10"] == 0  # ranks 11 and 12
    (line,) = read_notices(metrics)
    student = f"{(DEV - 1) / DEV / 2:.3f}"
    assert line.startswith("the cross-encoder is below its student on dev: MRR@10 0.000 where the student's order of")
    assert f"has {student} ({DEV} questions); take another one" in line


def test_only_the_first_candidates_of_some_questions_are_scored(world, run, monkeypatch):
    monkeypatch.setattr(module, "CANDIDATES", 3)
    monkeypatch.setattr(module, "QUESTIONS", 5)
    pairs = []

    def score(query_N, passage_N):
        pairs.extend(zip(query_N.tolist(), passage_N.tolist(), strict=True))
        return -perfect(query_N, passage_N)

    metrics = teacher_quality(score, world.collection, run)
    questions = {query for query, _ in pairs}
    assert len(pairs) == 3 * len(questions)
    assert metrics["dev_questions"] == 5
    assert metrics["dev_RR@10"] == pytest.approx(len(questions) / 5 / 3)
    assert len({*pairs}) == len(pairs)


def test_without_dev_questions_nothing_is_measured(world, run, tmp_path):
    def score(query_N, passage_N):
        raise AssertionError

    nothing = {"dev_questions": 0}
    assert teacher_quality(score, world.collection, None) == nothing
    table = pq.read_table(run / "run.parquet")
    pq.write_table(table.slice(0, 0), tmp_path / "run.parquet")
    assert teacher_quality(score, world.collection, tmp_path) == nothing
    collection = shutil.copytree(world.collection, tmp_path / "collection")
    qrels = pq.read_table(collection / "qrels.parquet")
    pq.write_table(qrels.filter(pc.not_equal(qrels["split"], "dev")), collection / "qrels.parquet")
    assert teacher_quality(score, collection, run) == nothing


def test_the_stage_measures_its_teacher(world, run, teacher, work, inline):
    config = SoftLabelsConfig(negatives_from="bm25", negative_depth=2)
    given = config, world.collection, world.tokens, world.bm25, None
    plain, measured = work("plain"), work("measured")
    assert soft_labels(*given, plain, cross_encoder=teacher)["dev_questions"] == 0
    metrics = soft_labels(*given, measured, run=run, cross_encoder=teacher)
    assert metrics["dev_questions"] == DEV
    assert 0 < metrics["dev_RR@10"] < 1
    below = metrics["dev_RR@10"] < metrics["student_dev_RR@10"]
    assert below == any(line.startswith("the cross-encoder is below") for line in read_notices(metrics))
    assert (plain.out / "scores.parquet").read_bytes() == (measured.out / "scores.parquet").read_bytes()
