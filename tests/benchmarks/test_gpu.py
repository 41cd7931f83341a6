"""The benchmark of a GPU, on a processor with a tiny model: its results, its time limit, its simulation."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from fake_cuda.device import missing

from benchmarks.gpu import run as runs
from benchmarks.gpu import searching, targets
from benchmarks.gpu.clock import Computed, OutOfTime, Timing, Way
from benchmarks.gpu.compare import compare
from benchmarks.gpu.inputs import BASE
from benchmarks.gpu.parts import Part

ROOT = Path(__file__).parents[2]


def benchmark(out, *arguments):
    program = [sys.executable, "-m", "benchmarks.gpu", "--shape", "tiny", "--out", str(out), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stdout


@pytest.mark.slow
def test_the_results_have_figures_baselines_and_targets(tmp_path):
    parts = ["cocondenser_cached", "finetuning_untied", "encoding", "search", "kernels"]
    started = time.monotonic()
    results, printed = benchmark(tmp_path / "gpu.json", "--device", "cpu", "--seconds", "60", "--only", *parts)
    assert time.monotonic() - started < 60
    assert (results["simulated"], results["device"], results["shape"]) == (False, "cpu", "tiny")
    assert results["torch"] == torch.__version__
    assert set(results["parts"]) == set(parts)
    assert [results["parts"][name]["status"] for name in parts] == ["done"] * 4 + ["skipped"]
    compared = [results["parts"][name] for name in parts[:3]] + [results["parts"]["encoding"]["from_texts"]]
    for part in compared:
        assert {"ms", "host_ms", "peak_GiB", "tokens_per_second", "mfu"} <= set(part["ours"])
        for baseline in part["baselines"].values():
            assert baseline["equal_work"] is True
            assert baseline["ratio"] == pytest.approx(baseline["ms"] / part["ours"]["ms"])
            assert baseline["cosine"] > 0.9999
    assert set(results["parts"]["cocondenser_cached"]["baselines"]) == {"published, eager", "published, sdpa"}
    assert results["parts"]["search"]["k=1000"]["questions_per_second"] > 0
    judged = {row["work"]: row["result"] for row in results["targets"]}
    assert len(judged) == len(targets.TARGETS)
    assert judged["Condenser: MFU"] == "not measured"
    assert judged["encoding: MFU"] != "not measured"
    assert printed.startswith("| cpu |")
    assert targets.overview(results["parts"]) in printed


@pytest.mark.skipif(missing() is not None, reason=f"no fake CUDA device: {missing()}")
def test_the_simulation_counts_kernels_and_says_that_it_is_one(tmp_path):
    results, printed = benchmark(tmp_path / "gpu.json", "--simulate", "--only", "finetuning_8x8", "search")
    assert (results["simulated"], results["device"]) == (True, "simulated H100 SXM")
    figures = results["parts"]["finetuning_8x8"]["ours"]
    assert figures["kernels"] > 100
    assert figures["ms"] == max(figures["device_ms"], figures["host_ms"])
    assert figures["device_ms"] >= 2e-3 * figures["kernels"]  # 2 microseconds each at least
    assert 0 < figures["mfu"] < 1
    assert results["parts"]["search"]["k=210"]["marco_minutes"] > 0
    assert printed.startswith("| simulated, ")


def test_the_page_has_the_tables_of_the_simulated_figures():
    results = json.loads((ROOT / "benchmarks" / "gpu_simulated.json").read_text())
    page = (ROOT / "docs" / "gpu.md").read_text()
    assert results["simulated"] is True
    assert targets.table(targets.judge(results["parts"]), "simulated, H100, BERT base") in page
    assert targets.overview(results["parts"]) in page


def failing(stop):
    raise RuntimeError("no memory\nand more lines")


def endless(stop):
    while True:
        time.sleep(0.01)


def test_a_part_that_fails_or_does_not_end_leaves_the_others():
    chosen = {
        "failing": Part(1, failing),
        "endless": Part(1, endless),
        "good": Part(4, lambda stop: {"ours": {"ms": 1.0}}),
        "skipped": Part(1, lambda stop: {"skipped": "not here"}),
    }
    started = time.monotonic()
    found = dict(runs.measured(chosen, started + 1.0))
    assert time.monotonic() - started < 1.0
    assert {name: figures["status"] for name, figures in found.items()} == {
        "failing": "failed",
        "endless": "stopped",
        "good": "done",
        "skipped": "skipped",
    }
    assert found["failing"]["error"] == "RuntimeError: no memory"
    assert found["good"]["ours"] == {"ms": 1.0}


def test_parts_without_time_are_listed_as_skipped():
    slow = Part(1, lambda stop: time.sleep(0.2) or {"ours": {}})
    found = dict(runs.measured({"first": slow, "second": slow}, time.monotonic() + 0.22))
    assert [figures["status"] for figures in found.values()] == ["stopped", "skipped"]


def test_the_file_is_written_after_every_part(tmp_path, monkeypatch):
    out = tmp_path / "gpu.json"
    seen = []

    def reading(stop):
        seen.append(sorted(json.loads(out.read_text())["parts"]) if out.exists() else [])
        return {"ours": {}}

    monkeypatch.setattr(runs, "parts", lambda size, device: {name: Part(1, reading) for name in "abc"})
    monkeypatch.setattr(runs, "STARTED", time.monotonic())
    runs.run("tiny", "cpu", 10, out)
    assert seen == [[], ["a"], ["a", "b"]]


def way(seconds, loss, gradient):
    work = {"tokens": 10.0, "operations": 10.0}
    return Way(lambda: Timing(seconds, None, None, work), lambda: Computed(loss, torch.tensor(gradient)))


def test_a_ratio_counts_only_if_both_ways_compute_the_same():
    def impossible():
        raise RuntimeError("out of memory")

    others = {
        "equal": lambda: way(3.0, 1.0, [1.0, 2.0]),
        "other loss": lambda: way(3.0, 1.1, [1.0, 2.0]),
        "other gradient": lambda: way(3.0, 1.0, [2.0, 1.0]),
        "half the gradient": lambda: way(3.0, 1.0, [0.5, 1.0]),
        "impossible": impossible,
    }
    ours, found = compare(way(1.5, 1.0, [1.0, 2.0]), others, "cpu", 3, time.monotonic())
    assert (ours["ms"], ours["turns"]) == (1500, 1)  # the time was over after the first
    assert [found[name].get("ratio") for name in others] == [2.0, None, None, None, None]
    assert found["impossible"] == {"error": "RuntimeError: out of memory"}


def test_a_slow_baseline_leaves_our_figures():
    def too_slow():
        raise OutOfTime

    others = {"quick": lambda: way(3.0, 1.0, [1.0]), "slow": too_slow, "later": lambda: way(3.0, 1.0, [1.0])}
    ours, found = compare(way(1.5, 1.0, [1.0]), others, "cpu", 3, time.monotonic())
    assert ours["ms"] == 1500
    assert [figures["error"] for figures in found.values()] == ["no time left"] * 3


@pytest.mark.parametrize(("value", "result"), [
    (0.29, "floor not reached"), (0.30, "floor reached"), (0.35, "aim reached"), (None, "not measured"),
])  # fmt: skip
def test_a_target_is_reached_from_its_floor_on(value, result):
    rows = targets.judge({"cocondenser_cached": {"ours": {"mfu": value}}})
    assert rows[0]["result"] == result


@pytest.mark.parametrize(("minutes", "result"), [(3.1, "floor not reached"), (3, "floor reached"), (2, "aim reached")])
def test_less_is_better_for_times(minutes, result):
    rows = targets.judge({"search": {"k=210": {"marco_minutes": minutes}}})
    assert next(row["result"] for row in rows if "minutes" in row["work"]) == result


def test_the_time_for_marco_grows_with_vectors_and_lists():
    batches = searching.QUESTIONS / BASE.queries
    by_list_only = searching.marco_seconds(2.0, 2.0, 0.0, BASE)
    assert by_list_only == pytest.approx(2.0 * batches)
    by_vector_only = searching.marco_seconds(1.0, 2.0, 0.0, BASE)
    assert by_vector_only == pytest.approx(2.0 * batches * searching.PASSAGES / BASE.searched)


def test_an_unknown_part_is_one_line():
    with pytest.raises(SystemExit, match="--only serch: no such part; there are encoding, search"):
        runs.check_names(["serch"], {"encoding": 1, "search": 2})


def test_a_failed_part_is_an_error():
    runs.end_if_failed({"encoding": {"status": "done"}, "search": {"status": "skipped"}})
    with pytest.raises(SystemExit, match="failed: condenser"):
        runs.end_if_failed({"condenser": {"status": "failed", "error": "ValueError: "}, "search": {"status": "done"}})
