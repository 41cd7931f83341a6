"""Sends a training's figures to TensorBoard, Weights & Biases and MLflow. No failure there stops or slows a training.

Each has its own thread in the flow's process. The figures come from the progress of child processes, and after the
training from the history in its artifact.
"""

import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, field_validator
from rich.markup import escape

from pipeline.config import Config
from pipeline.data.parquet import read_parquet
from pipeline.runtime.checkpoints import saved_state
from pipeline.runtime.work import Progress, silent
from pipeline.training.history_file import history_file
from tasks.terminal import print_line
from tasks.trackers import MLflow, Point, TensorBoard, TrackedNode, Tracker, WeightsAndBiases

UNTRACKED = ("step", "seconds_left")
"""Figures of a training's progress that are not tracked for each update."""
QUEUED = 10_000
"""Updates that may wait for a slow tracker. More are dropped, and sent when the training ends."""
SECONDS_TO_COMPLETE = 600.0
SECONDS_TO_STOP = 10.0
"""End of a training that failed or was interrupted."""
FOLDER = re.compile(r"[\w.-]+|.*[/\\].*")
"""Characters of a folder's name for MLflow: `localhost:5000` is not a folder, but an address without its beginning."""
ADDRESSES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "file", "databricks")
"""Schemes of addresses that MLflow accepts, without `+DRIVER`."""
RESUMED = "tracking.json"
"""File in STORE/work/KEY, next to the checkpoints: the name of the log that a resumed training continues."""


class Tracking(Config):
    """Where trainings are tracked. It changes no result and is in no key."""

    tensorboard: bool
    """Whether event files of each training are written to STORE/logs/RECIPE/TIME/NODE."""
    wandb: str | None = Field(min_length=1)
    """A project of Weights & Biases; null: not used."""
    mlflow: str | None = Field(min_length=1)
    """An MLflow server's address, such as http://127.0.0.1:5000, or a folder for a SQLite file; null: not used."""

    @field_validator("mlflow")
    @classmethod
    def _address_or_folder(cls, where: str | None) -> str | None:
        if where is not None and not (is_address(where) if "://" in where else FOLDER.fullmatch(where)):
            raise ValueError("write a server's address (http://HOST:PORT), or a folder (one word, or with a slash)")
        return where


@dataclass(frozen=True)
class Logs:
    """Where the logs of a run are written."""

    tracking: Tracking
    root: Path
    """STORE/logs."""
    run: str
    """RECIPE/TIME."""


def is_address(where: str) -> bool:
    """Whether MLflow accepts the address; a server's address has a host."""
    try:
        url = urlsplit(where)
        served = bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is not a number
        return False
    known = url.scheme.partition("+")[0] in ADDRESSES and not re.search(r"\s", where)
    return known and (served or not url.scheme.startswith("http"))


def missing(tracking: Tracking) -> list[str]:
    """Returns a line for each package that a field needs and that is not installed."""
    packages = {
        "tensorboard": (tracking.tensorboard, "TensorBoard", "tensorboard", "false"),
        "wandb": (tracking.wandb, "Weights & Biases", "'cocondenser[tracking]'", "null"),
        "mlflow": (tracking.mlflow, "MLflow", "'cocondenser[tracking]'", "null"),
    }
    return [
        f"tracking.{package}: {name} is not installed: pip install {what}, or set it to {off}"
        for package, (wanted, name, what, off) in packages.items()
        if wanted and not installed(package)
    ]


def installed(package: str) -> bool:
    """Whether a package is installed. A folder of that name, such as Weights & Biases creates, is not a package."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


@contextmanager
def tracked_progress(
    logs: Logs | None, node: str, stage: str, config: Mapping[str, Any], checkpoints: Path, out: Path
) -> Iterator[Progress]:
    """Follows what is built in `out`: a training by update, an evaluation at its end. Other stages are not tracked."""
    if logs is None or not (logs.tracking.tensorboard or logs.tracking.wandb or logs.tracking.mlflow):
        yield silent
        return
    state = saved_state(checkpoints)
    followers: list[Follower] = []

    def begin() -> list[Follower]:
        work = checkpoints.parent
        before = _resumed(logs, work)
        name = before or f"{logs.run}/{node}"
        (logs.root / name).mkdir(parents=True, exist_ok=True)
        (work / RESUMED).write_text(json.dumps({"log": name}))
        done = state["step"] if state else 0
        of = TrackedNode(logs.root / name, name, stage, config, done if before else None)
        _say_once(logs)
        return [Follower(what, open_it) for what, open_it in _wanted(logs.tracking, of)]

    def progress(done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
        if not numbers or "learning_rate" not in numbers:
            return
        if not started:
            started.append(True)
            followers.extend(_best_effort(begin) or [])
        figures = {name: value for name, value in numbers.items() if name not in UNTRACKED}
        for follower in followers:
            follower.add(int(numbers["step"]), figures)

    started: list[bool] = []
    failed = True
    try:
        yield progress
        failed = False
        rows, more = _best_effort(lambda: finished(out, stage, bool(started))) or ([], [])
        if more and not started:
            followers.extend(_best_effort(begin) or [])
        for follower in followers:
            follower.complete(rows, more)
    finally:
        for follower in followers:
            follower.close(failed)
        end = time.monotonic() + (SECONDS_TO_STOP if failed else SECONDS_TO_COMPLETE)
        for follower in followers:
            follower.join(end - time.monotonic())


def finished(out: Path, stage: str, trained: bool) -> tuple[list[Point], list[Point]]:
    """Returns (a training's updates, further figures: its validation, or an evaluation's measures) of an artifact."""
    if stage == "evaluate":
        return [], [(0, measures(json.loads((out / "metrics.json").read_text("utf-8"))))]
    history = history_file(out)
    validation = out / "validation.parquet"
    rows = read_parquet(history).to_pylist() if history and trained else []
    judged = read_parquet(validation).to_pylist() if validation.is_file() and trained else []
    return [_point(row) for row in rows], [_point(row, "dev ") for row in judged]


def _point(row: Mapping[str, Any], before: str = "") -> Point:
    return int(row["step"]), {f"{before}{name}": row[name] for name in row if name not in (*UNTRACKED, "epoch")}


def measures(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Returns {SPLIT/SYSTEM MEASURE: mean} of an evaluation's metrics.json, by judgements and by answers."""
    return {
        f"{split}/{metrics['labels'].get(system, system)} {measure}": figure["mean"]
        for split, of_split in metrics["splits"].items()
        for systems in (of_split["systems"], of_split.get("answers", {}).get("systems", {}))
        for system, figures in systems.items()
        for measure, figure in figures.items()
        if figure["mean"] is not None
    }


class Follower:
    """Runs a tracker in its own thread. An error gives one warning and ends the tracking."""

    def __init__(self, what: str, open_it: Callable[[], Tracker]) -> None:
        self.what, self.open_it = what, open_it
        self.waiting: queue.Queue[Callable[[Tracker], None]] = queue.Queue(QUEUED)
        self.thread = threading.Thread(target=copy_context().run, args=(self._follow,), daemon=True)
        self.ended = False
        self.thread.start()

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        if not self.ended:
            with suppress(queue.Full):
                self.waiting.put_nowait(lambda tracker: tracker.add(step, figures))

    def complete(self, rows: Sequence[Point], more: Sequence[Point]) -> None:
        self._put(lambda tracker: tracker.complete(rows, more))

    def close(self, failed: bool) -> None:
        def last(tracker: Tracker) -> None:
            tracker.close(failed)
            self.ended = True

        self._put(last)

    def join(self, seconds: float) -> None:
        self.thread.join(max(seconds, 0.0))
        if self.thread.is_alive():
            _warn(f"{self.what}: not done in time; its log is not complete")

    def _put(self, what: Callable[[Tracker], None]) -> None:
        if not self.ended:
            with suppress(queue.Full):
                self.waiting.put(what, timeout=SECONDS_TO_STOP)

    def _follow(self) -> None:
        try:
            tracker = self.open_it()
            while not self.ended:
                self.waiting.get()(tracker)
        except Exception as error:
            self.ended = True
            _warn(f"{self.what}: no longer tracked ({_short(error)})")


def _wanted(tracking: Tracking, of: TrackedNode) -> Iterator[tuple[str, Callable[[], Tracker]]]:
    if tracking.tensorboard:
        yield "TensorBoard", partial(TensorBoard, of)
    if tracking.wandb:
        yield "Weights & Biases", partial(WeightsAndBiases, of, tracking.wandb)
    if tracking.mlflow:
        yield "MLflow", partial(MLflow, of, tracking.mlflow)


def _resumed(logs: Logs, work: Path) -> str | None:
    """Returns the log of the training before it was killed, if it still exists."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        name = str(json.loads((work / RESUMED).read_text())["log"])
        if len(name.split("/")) == 3 and ".." not in name.split("/") and (logs.root / name).is_dir():
            return name
    return None


_said: set[tuple[Path, str]] = set()


def _say_once(logs: Logs) -> None:
    """Prints where the logs of a run are, at its first training."""
    if (logs.root, logs.run) in _said:
        return
    _said.add((logs.root, logs.run))
    tracking = logs.tracking
    places = [f"tensorboard --logdir {logs.root}"] if tracking.tensorboard else []
    places += [f"Weights & Biases, project {tracking.wandb}"] if tracking.wandb else []
    places += [f"MLflow, {tracking.mlflow}"] if tracking.mlflow else []
    print_line(f"  logs: {escape('; '.join(places))}")


def _best_effort(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        _warn(f"not tracked: {_short(error)}")
        return None


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _warn(text: str) -> None:
    from prefect import get_run_logger

    with suppress(Exception):
        get_run_logger().warning(text)
    print_line(f"  [yellow]{escape(text)}[/]")
