"""Scoring in shards, the scores artifact, and negatives denoised with it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crossed import CONFIG, make_cross_encoder
from machines import make_machine

from pipeline.cross_encoder.lengths import read_lengths
from pipeline.cross_encoder.pairs import pair_rows, read_pair_form, score_rows
from pipeline.cross_encoder.score_pairs import relevance, score
from pipeline.cross_encoder.soft_labels import soft_labels
from pipeline.errors import InputError
from pipeline.finetune.score_table import find, read_scores
from pipeline.finetune.soft_label_pairs import SoftLabelsConfig
from pipeline.modeling.checkpoint import load_classifier
from pipeline.negatives.denoise import DenoiseConfig, denoise
from pipeline.notices import read_notices
from pipeline.runtime.work import Work
from pipeline.tokenization.token_files import Tokens

SETTINGS = SoftLabelsConfig(negatives_from="bm25", negative_depth=None)


@pytest.fixture
def mined(tmp_path, write_negatives):
    """Some of BM25's negatives again, some others, and one judged passage."""
    rows = [(f"q{q}", f"d{d}-{d % 2}", "mined", d - 29, 1.0) for q in range(20) for d in range(30, 35)]
    write_negatives(tmp_path / "mined" / "negatives.parquet", [*rows, ("q3", "d3-1", "mined", 6, 1.0)])
    return tmp_path / "mined"


def run(world, teacher, work, mined=None, **fields):
    settings = SETTINGS.model_copy(update=fields)
    metrics = soft_labels(settings, world.collection, world.tokens, world.bm25, mined, work, cross_encoder=teacher)
    return metrics, pq.read_table(work.out / "scores.parquet").to_pylist()


def plain(world, teacher, pairs):
    """Logits of (query_id, passage_id), each row scored separately."""
    tokens = Tokens.open(world.tokens)
    passages = pq.read_table(world.collection / "passages.parquet")["passage_id"].to_pylist()
    form = read_pair_form(teacher, read_lengths(teacher), tokens.specials)
    query_N, passage_N = [int(q[1:]) for q, _ in pairs], [passages.index(p) for _, p in pairs]
    return score_rows(load_classifier(teacher), pair_rows(tokens, query_N, passage_N, form), 1)


def test_each_passage_of_a_question_is_scored_once_in_question_order(world, teacher, mined, work, inline):
    metrics, rows = run(world, teacher, work(), mined)
    expected = defaultdict(list)
    for d in range(24):
        expected[f"q{d}"] += [f"d{d}-0", f"d{d}-1"]
    for source in (world.bm25, mined):
        for row in pq.read_table(source / "negatives.parquet").to_pylist():
            if row["query_id"] in expected and row["passage_id"] not in expected[row["query_id"]]:
                expected[row["query_id"]].append(row["passage_id"])
    pairs = [(query, passage) for query, passages in expected.items() for passage in passages]
    assert [(row["query_id"], row["passage_id"]) for row in rows] == pairs
    score_N = np.array([row["score"] for row in rows])
    np.testing.assert_allclose(score_N, plain(world, teacher, pairs), atol=2e-5)
    assert (metrics["questions"], metrics["pairs"], metrics["questions_cut"]) == (24, len(pairs), 0)
    best = {query: max((r for r in rows if r["query_id"] == query), key=lambda r: r["score"]) for query in expected}
    first = np.mean([row["passage_id"].split("-")[0] == f"d{query[1:]}" for query, row in best.items()])
    assert metrics["judged_first"] == pytest.approx(first)


def test_depth_and_no_mined_negatives(world, teacher, work, inline):
    metrics, rows = run(world, teacher, work(), negative_depth=4)
    assert metrics["pairs"] == 24 * (2 + 4)
    assert [row["passage_id"] for row in rows[:2]] == ["d0-0", "d0-1"]


def test_workers_do_not_change_a_byte(world, teacher, work, inline, monkeypatch):
    monkeypatch.setattr("pipeline.cross_encoder.score_pairs.SHARD", 50)
    reports = []
    one, three = work("one"), work("three", workers=3, progress=lambda *a: reports.append(a))
    total = run(world, teacher, one)[0]["pairs"]
    run(world, teacher, three)
    assert (one.out / "scores.parquet").read_bytes() == (three.out / "scores.parquet").read_bytes()
    assert reports[-1][:3] == (total, total, "pairs")


def test_finished_shards_are_kept(world, teacher, work, inline, monkeypatch):
    monkeypatch.setattr("pipeline.cross_encoder.score_pairs.SHARD", 50)
    whole = run(world, teacher, work("whole"))[1]
    second = work("second")
    (second.checkpoints / "pairs").mkdir()
    np.save(second.checkpoints / "pairs" / "shard-00001.npy", np.full(50, 7, np.float32))
    (second.checkpoints / "pairs" / "shard-00002.part").write_bytes(b"cut off")
    again = run(world, teacher, second)[1]
    assert {row["score"] for row in again[50:100]} == {7.0}
    assert again[:50] + again[100:] == whole[:50] + whole[100:]
    low = replace(work("low"), checkpoints=second.checkpoints, machine=make_machine(precision="bfloat16"))
    assert 7.0 not in {row["score"] for row in run(world, teacher, low)[1]}  # those of float32 stay apart


def test_scores_are_found_by_positions(world, teacher, mined, work, inline):
    done = work()
    _, rows = run(world, teacher, done, mined)
    ids = [pa.array([*sorted({row[name] for row in rows}), "unknown"]) for name in ("query_id", "passage_id")]
    known = [column.to_pylist() for column in ids]
    positions = [
        np.array([known[i].index(row[name]) for row in rows]) for i, name in enumerate(("query_id", "passage_id"))
    ]
    order = np.random.default_rng(0).permutation(len(rows))
    table = read_scores(done.out / "scores.parquet", *ids)
    score_N = find(table, positions[0][order], positions[1][order])
    np.testing.assert_array_equal(score_N, np.array([row["score"] for row in rows], np.float32)[order])
    last = len(ids[1]) - 1
    assert np.isnan(find(table, positions[0][:1], np.array([last]))).all()


def denoised(scored, mined, work, threshold):
    metrics = denoise(DenoiseConfig(threshold=threshold), mined, scored, work)
    return metrics, pq.read_table(work.out / "negatives.parquet")


def test_denoised_negatives(world, teacher, mined, work, inline):
    scored = work("scores")
    _, rows = run(world, teacher, scored, mined)
    score_of = {(row["query_id"], row["passage_id"]): row["score"] for row in rows}
    before = pq.read_table(mined / "negatives.parquet")
    probabilities = [1 / (1 + np.exp(-score_of[n["query_id"], n["passage_id"]])) for n in before.to_pylist()]
    threshold = float(np.median(probabilities))
    metrics, table = denoised(scored.out, mined, work("half"), threshold)
    kept = [row for row, probability in zip(before.to_pylist(), probabilities, strict=True) if probability <= threshold]
    assert table.to_pylist() == kept
    assert table.schema == before.schema
    assert (metrics["negatives"], metrics["dropped"]) == (len(kept), len(before) - len(kept))
    assert 0 < metrics["dropped"] < len(before)
    remaining = {row["query_id"] for row in kept}
    assert (metrics["questions"], metrics["questions_without_negatives"]) == (20, 20 - len(remaining))
    lines = [line.split("; ")[0] for line in read_notices(metrics)]
    dropped = [f"{n['passage_id']} for {n['query_id']}" for n in before.to_pylist() if n not in kept]
    lost = [q for q in dict.fromkeys(before["query_id"].to_pylist()) if q not in remaining]
    assert lines[0].endswith(f": {len(dropped)} (first: {', '.join(dropped[:3])})")
    assert [line.partition(": ")[2] for line in lines[1:]] == (
        [f"{len(lost)} (first: {', '.join(lost[:3])})"] if lost else []
    )
    assert denoised(scored.out, mined, work("all"), 1.0)[1].equals(before)
    with pytest.raises(InputError, match=r"denoise.threshold: none of 101 negatives scores at most 0.0"):
        denoised(scored.out, mined, work("none"), 0.0)


def test_a_negative_without_a_score_is_reported_in_one_line(world, teacher, mined, work, inline):
    scored = work("scores")
    run(world, teacher, scored)
    with pytest.raises(InputError, match=r"no score of passage 'd\d+-\d' for query 'q0'.*score these") as error:
        denoised(scored.out, mined, work("denoised"), 0.5)
    assert "\n" not in str(error.value)


def test_relevance_is_the_sigmoid():
    logit = np.array([-800, -3, 0, 2, 800], np.float32)
    np.testing.assert_allclose(relevance(logit)[1:4], 1 / (1 + np.exp(-logit[1:4].astype(float))), rtol=1e-12)
    assert relevance(logit)[[0, 4]].tolist() == [0.0, 1.0]


def test_long_questions_are_cut_and_counted(world, pair_start, work, inline, tmp_path):
    short = make_cross_encoder(pair_start, tmp_path / "short", config=CONFIG.model_copy(update={"question_tokens": 4}))
    metrics, _ = run(world, short, work())
    lengths = Tokens.open(world.tokens).queries.lengths[:24]
    assert metrics["questions_cut"] == (lengths > 2).sum() > 0


def test_a_cross_encoder_of_another_vocabulary_is_reported_first(world, teacher, work, tmp_path, monkeypatch):
    shutil.copytree(world.tokens, tmp_path / "tokens")
    specials = json.loads((tmp_path / "tokens" / "specials.json").read_text())
    (tmp_path / "tokens" / "specials.json").write_text(json.dumps({**specials, "vocab_size": 999}))
    monkeypatch.setattr("pipeline.finetune.pools.read_pools", None)  # fails if anything is read before the check
    with pytest.raises(InputError, match=r"cross_encoder: .* 305 tokens, but the tokenizer has 999"):
        soft_labels(SETTINGS, world.collection, tmp_path / "tokens", world.bm25, None, work(), cross_encoder=teacher)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_scores_as_a_cpu(world, teacher, work):
    query_N, passage_N = np.arange(60).repeat(20), np.tile(np.arange(20), 60)
    cpu, gpu = (score(teacher, world.tokens, query_N, passage_N, work(d, device=d)) for d in ("cpu", "cuda"))
    assert np.abs(cpu - gpu).max() < 0.1 * np.ptp(cpu)  # bfloat16
    assert np.corrcoef(cpu, gpu)[0, 1] > 0.99


@pytest.mark.slow
def test_scoring_resumes_after_kill_9(world, teacher, work):
    """A run that is killed midway and started again does not repeat finished shards."""
    query_N, passage_N = np.arange(60).repeat(120), np.tile(np.arange(120), 60)
    killed = work("killed", workers=2)
    program = (
        "import numpy as np; from pathlib import Path; import pipeline.cross_encoder.score_pairs as s;"
        "from pipeline.runtime.work import *;"
        "s.SHARD = 20; query, passage = np.arange(60).repeat(120), np.tile(np.arange(120), 60);"
        f"work = Work(Path({str(killed.out)!r}), Path({str(killed.checkpoints)!r}),"
        f" Machine(**{killed.machine.model_dump()}), silent);"
        f"np.save({str(killed.out / 'scores.npy')!r},"
        f" s.score(Path({str(teacher)!r}), Path({str(world.tokens)!r}), query, passage, work))"
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    shards = killed.checkpoints / "pairs"
    while len(list(shards.glob("shard-*.npy"))) < 5:
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(1)
    kept = {path.name: path.stat().st_mtime_ns for path in shards.glob("shard-*.npy")}
    assert 5 <= len(kept) < 360
    subprocess.run([sys.executable, "-c", program], check=True)
    for name, modified in kept.items():
        assert os.stat(shards / name).st_mtime_ns == modified
    whole = Work(killed.out, killed.checkpoints / "whole", make_machine(token_budget=512), killed.progress)
    expected = score(teacher, world.tokens, query_N, passage_N, whole)
    np.testing.assert_allclose(np.load(killed.out / "scores.npy"), expected, atol=2e-5)
