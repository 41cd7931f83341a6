"""The logs of TensorBoard, Weights & Biases and MLflow after a training, also after one that was killed and resumed."""

import json
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime.work import Progress
from tasks import trackers, tracking
from tasks.tracking import Logs, Tracking

STEPS = 9


def row(step: int) -> dict[str, float]:
    return {"step": step, "loss": 1.0 / step, "gradient_norm": 2.0 * step, "skipped": 0.0, "learning_rate": 0.1 / step}


def write_history(out: Path, steps: int = STEPS) -> None:
    import pandas as pd

    out.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame([row(step) for step in range(1, steps + 1)])
    table.astype({"step": int}).to_parquet(out / "history.parquet")


class Training:
    """A training in its own store: it reports some of its updates, and is killed or ends."""

    def __init__(self, store: Path, printed: list[str], **where: Any) -> None:
        self.root, self.work, self.printed = store / "logs", store / "work" / "KEY", printed
        self.where = Tracking(**{"tensorboard": False, "wandb": None, "mlflow": None, **where})
        (self.work / "checkpoints").mkdir(parents=True)

    def run(self, steps: list[int], run: str = "tiny/20261122T100000.000000Z", killed_with: int | None = None) -> None:
        try:
            with tracking.tracked_progress(
                Logs(self.where, self.root, run),
                "stage1",
                "finetune",
                {"epochs": 1},
                self.checkpoints,
                self.work / "out",
            ) as progress:
                self.report(progress, steps)
                if killed_with is not None:
                    raise InterruptedError
                write_history(self.work / "out")
        except InterruptedError:
            folder = self.checkpoints / f"step-{killed_with}"
            folder.mkdir()
            (folder / "state.json").write_text(json.dumps({"step": killed_with}))

    def report(self, progress: Progress, steps: list[int]) -> None:
        for step in steps:
            progress(step, STEPS, "updates", {**row(step), "tokens_per_second": 100.0 * step, "seconds_left": 1.0})

    @property
    def checkpoints(self) -> Path:
        return self.work / "checkpoints"


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(tracking, "print_line", lines.append)
    return lines


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """{tag: {step: value}}, as TensorBoard reads the folder; no step appears twice."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    series = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert all([step for step, _ in points] == sorted({step for step, _ in points}) for points in series.values())
    return {tag: dict(points) for tag, points in series.items()}


def losses(steps: int = STEPS) -> dict[int, Any]:
    return {step: pytest.approx(1.0 / step) for step in range(1, steps + 1)}


def test_every_update_is_in_tensorboards_log_although_few_were_reported_live(
    tmp_path: Path, printed: list[str]
) -> None:
    training = Training(tmp_path, printed, tensorboard=True)
    training.run([1, 4, STEPS])
    series = scalars(tmp_path / "logs/tiny/20261122T100000.000000Z/stage1")
    assert series["loss"] == losses()
    assert series["learning_rate"][4] == pytest.approx(0.025)
    assert series["tokens_per_second"] == {1: 100.0, 4: 400.0, STEPS: 900.0}
    assert "seconds_left" not in series
    assert printed == [f"  logs: tensorboard --logdir {tmp_path / 'logs'}"]


def test_a_killed_training_continues_in_its_log(tmp_path: Path, printed: list[str]) -> None:
    training = Training(tmp_path, printed, tensorboard=True)
    training.run([1, 4, 6], killed_with=3)
    folder = tmp_path / "logs/tiny/20261122T100000.000000Z/stage1"
    assert scalars(folder)["loss"].keys() == {1, 4, 6}
    training.run([5, STEPS], run="tiny/20261123T100000.000000Z")
    series = scalars(folder)
    assert series["loss"] == losses()
    # What was reported after the checkpoint is removed from the log.
    assert series["tokens_per_second"].keys() == {1, 5, STEPS}
    assert [path.name for path in (tmp_path / "logs/tiny").iterdir()] == ["20261122T100000.000000Z"]


def test_a_resumed_log_forgets_updates_after_the_checkpoint_at_once(tmp_path: Path, printed: list[str]) -> None:
    training = Training(tmp_path, printed, tensorboard=True)
    training.run([1, 2, 3, 4, 5], killed_with=3)
    training.run([4], killed_with=4, run="tiny/20261123T100000.000000Z")
    assert scalars(tmp_path / "logs/tiny/20261122T100000.000000Z/stage1")["loss"].keys() == {1, 2, 3, 4}


def test_points_keep_their_times_and_points_between_them_get_one(tmp_path: Path, printed: list[str]) -> None:
    training = Training(tmp_path, printed, tensorboard=True)
    started = time.time()
    training.run([1, STEPS])
    (path,) = trackers.event_files(tmp_path / "logs/tiny/20261122T100000.000000Z/stage1")
    when = [moment for moment, _ in trackers.read_points([path]).values()]
    assert started <= when[0] <= when[-1] <= time.time()
    assert when == sorted(when)


def write_validation(out: Path) -> None:
    import pandas as pd

    out.mkdir()
    pd.DataFrame({"epoch": [1, 2], "step": [5, 9], "RR@10": [0.25, 0.5]}).to_parquet(out / "validation.parquet")


def test_validation_and_an_evaluations_measures_are_tracked(tmp_path: Path, printed: list[str]) -> None:
    training = Training(tmp_path, printed, tensorboard=True)
    out = training.work / "out"
    write_validation(out)
    training.run([1])
    series = scalars(tmp_path / "logs/tiny/20261122T100000.000000Z/stage1")
    assert series["dev RR@10"] == {5: 0.25, 9: 0.5}
    systems = {"stage1": {"RR@10": {"mean": 0.5, "low": 0.25, "high": 0.75}}}
    hits = {"stage1": {"hits@20": {"mean": 0.75, "low": 0.5, "high": 1.0}}}
    metrics = {
        "labels": {"stage1": "stage 1"},
        "splits": {
            "dev": {"systems": systems, "answers": {"systems": hits}},
            "test": {"systems": {}, "answers": {"systems": hits}},
        },
    }
    (out / "metrics.json").write_text(json.dumps(metrics))
    logs = Logs(training.where, training.root, "tiny/20261122T100000.000000Z")
    checkpoints = tmp_path / "work" / "OTHER" / "checkpoints"
    checkpoints.mkdir(parents=True)
    with tracking.tracked_progress(logs, "evaluate", "evaluate", {}, checkpoints, out):
        pass
    assert scalars(training.root / logs.run / "evaluate") == {
        "dev/stage 1 RR@10": {0: 0.5}, "dev/stage 1 hits@20": {0: 0.75}, "test/stage 1 hits@20": {0: 0.75},
    }  # fmt: skip


def test_a_stage_without_training_or_trackers_leaves_no_folder(tmp_path: Path, printed: list[str]) -> None:
    Training(tmp_path / "off", printed).run([1, STEPS])
    assert not (tmp_path / "off/logs").exists()
    other = Training(tmp_path / "other", printed, tensorboard=True)
    write_history(other.work / "out")  # for example of an existing checkpoint
    logs = Logs(other.where, other.root, "tiny/now")
    with tracking.tracked_progress(logs, "encode", "encode", {}, other.checkpoints, other.work / "out") as progress:
        progress(1, 2, "passages", {"passages_per_second": 3.0})
    assert not (tmp_path / "other/logs").exists()
    assert printed == []


def test_a_full_disk_or_a_closed_folder_gives_one_warning(
    tmp_path: Path, printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
        Training(tmp_path / "full", printed, tensorboard=True).run([1, 2, STEPS])
    assert [line for line in printed if "yellow" in line] == [
        "  [yellow]TensorBoard: no longer tracked (OSError: [Errno 28] No space left on device)[/]"
    ]
    printed.clear()
    training = Training(tmp_path / "closed", printed, tensorboard=True)
    training.root.write_text("a file is in the way")
    training.run([1, 2, STEPS])
    assert [line.partition(":")[0] for line in printed] == ["  [yellow]not tracked"]


def test_a_tracker_that_hangs_does_not_delay_a_training(
    tmp_path: Path, printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "SECONDS_TO_COMPLETE", 0.2)
    monkeypatch.setattr(tracking, "TensorBoard", lambda of: threading.Event().wait())
    started = time.monotonic()
    Training(tmp_path, printed, tensorboard=True).run(list(range(1, STEPS + 1)))
    assert time.monotonic() - started < 20
    assert "TensorBoard: not done in time" in printed[-1]


def test_a_tracker_that_is_not_installed_is_reported_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Tracking(tensorboard=True, wandb="project", mlflow=None)
    assert tracking.missing(settings) == []
    monkeypatch.setattr(tracking, "installed", lambda package: False)
    assert tracking.missing(settings) == [
        "tracking.tensorboard: TensorBoard is not installed: pip install tensorboard, or set it to false",
        "tracking.wandb: Weights & Biases is not installed: pip install 'cocondenser[tracking]', or set it to null",
    ]
    assert tracking.missing(Tracking(tensorboard=False, wandb=None, mlflow=None)) == []


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home and a working folder, in which nothing may be written."""
    for name in ("home", "cwd"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "unused"))
        monkeypatch.delenv(f"WANDB_{name}_DIR")
    monkeypatch.chdir(tmp_path / "cwd")
    yield tmp_path
    assert not [*(tmp_path / "home").rglob("*"), *(tmp_path / "cwd").rglob("*")]


@pytest.mark.slow
def test_mlflow_has_every_update_once_also_of_a_killed_training(
    elsewhere: Path, printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    monkeypatch.setattr(tracking, "SECONDS_TO_STOP", 100.0)  # so that a killed one ends before the next one begins
    training = Training(elsewhere, printed, mlflow=str(elsewhere / "ml"))
    write_validation(training.work / "out")
    training.run([1, 4, 6], killed_with=3)
    training.run([5, STEPS], run="tiny/20261123T100000.000000Z")
    training.run([STEPS], run="tiny/20261124T100000.000000Z")  # killed again after everything was sent
    client = MlflowClient(tracking_uri=f"sqlite:///{elsewhere / 'ml' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny")
    assert experiment
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params) == ("stage1", "FINISHED", {"epochs": "1"})
    history = client.get_metric_history(run.info.run_id, "loss")
    assert sorted((point.step, point.value) for point in history) == [(s, 1.0 / s) for s in range(1, STEPS + 1)]
    judged = client.get_metric_history(run.info.run_id, "dev RR_10")
    assert sorted((point.step, point.value) for point in judged) == [(5, 0.25), (9, 0.5)]
    assert not (elsewhere / "logs/tiny/20261123T100000.000000Z").exists()


@pytest.mark.slow
def test_weights_and_biases_has_every_update_once_also_of_a_killed_training(
    elsewhere: Path, printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "SECONDS_TO_STOP", 100.0)
    training = Training(elsewhere, printed, wandb="project")
    training.run([1, 4, 6], killed_with=3)
    training.run([5, STEPS], run="tiny/20261123T100000.000000Z")
    files = sorted((elsewhere / "logs/tiny/20261122T100000.000000Z/stage1/wandb").rglob("run-*.wandb"))
    assert len(files) == 2  # one file per session, both of one run
    assert len({path.name for path in files}) == 1
    end = time.monotonic() + 30
    while len(rows := [row for path in files for row in logged(path)]) < STEPS and time.monotonic() < end:
        time.sleep(0.2)  # its service writes later
    assert sorted((row["update"], row["loss"]) for row in rows) == [(s, 1.0 / s) for s in range(1, STEPS + 1)]
    assert [line for line in printed if "yellow" in line] == []


def logged(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows in an offline file of Weights & Biases: protocol buffers in LevelDB's log format, after 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # the rest of a block is too short for a header
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last of its parts
            parsed, record = Record.FromString(record), b""
            if parsed.WhichOneof("record_type") == "history":
                yield {
                    item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in parsed.history.item
                }
