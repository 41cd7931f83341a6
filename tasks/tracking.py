"""What a training tells TensorBoard, Weights & Biases and MLflow. Best effort: none of them fails or slows a training.

Each is served by a thread of its own, in the process of the flow; the figures come from its children's progress, and
when the training has ended from the history in its artifact.
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
"""Figures of a training's progress that are not followed by update."""
QUEUED = 10_000
"""Updates that may wait for a slow tracker; the training's end brings what was dropped."""
SECONDS_TO_COMPLETE = 600.0
SECONDS_TO_STOP = 10.0
"""Where the training failed or was interrupted."""
FOLDER = re.compile(r"[\w.-]+|.*[/\\].*")
"""Of MLflow's file: `localhost:5000` is none, but an address that lacks its beginning."""
ADDRESSES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "file", "databricks")
"""How what MLflow can talk to begins, `+DRIVER` aside."""
RESUMED = "tracking.json"
"""In STORE/work/KEY, beside the checkpoints: where the log is that a killed training goes on with."""


class Tracking(Config):
    """Changes no result and enters no key."""

    tensorboard: bool
    """Event files of each training in STORE/logs/RECIPE/TIME/NODE."""
    wandb: str | None = Field(min_length=1)
    """A project of Weights & Biases; null: none."""
    mlflow: str | None = Field(min_length=1)
    """An MLflow server's address, such as http://127.0.0.1:5000, or a folder for a SQLite file; null: none."""

    @field_validator("mlflow")
    @classmethod
    def _address_or_folder(cls, where: str | None) -> str | None:
        if where is not None and not (is_address(where) if "://" in where else FOLDER.fullmatch(where)):
            raise ValueError("write a server's address (http://HOST:PORT), or a folder (one word, or with a slash)")
        return where


@dataclass(frozen=True)
class Logs:
    """Where the logs of a run go."""

    tracking: Tracking
    root: Path
    """STORE/logs."""
    run: str
    """RECIPE/TIME."""


def is_address(where: str) -> bool:
    """Whether MLflow could talk to it; a server's has a host."""
    try:
        url = urlsplit(where)
        served = bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is no number
        return False
    known = url.scheme.partition("+")[0] in ADDRESSES and not re.search(r"\s", where)
    return known and (served or not url.scheme.startswith("http"))


def missing(tracking: Tracking) -> list[str]:
    """A line for each package that a field asks for and that is not installed."""
    asked = {
        "tensorboard": (tracking.tensorboard, "TensorBoard", "tensorboard", "false"),
        "wandb": (tracking.wandb, "Weights & Biases", "'cocondenser[tracking]'", "null"),
        "mlflow": (tracking.mlflow, "MLflow", "'cocondenser[tracking]'", "null"),
    }
    return [
        f"tracking.{package}: {name} is not installed: pip install {what}, or set it to {off}"
        for package, (wanted, name, what, off) in asked.items()
        if wanted and not installed(package)
    ]


def installed(package: str) -> bool:
    """A folder of that name, as Weights & Biases leaves one where it works, is no package."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


@contextmanager
def tracked_progress(
    logs: Logs | None, node: str, stage: str, config: Mapping[str, Any], checkpoints: Path, out: Path
) -> Iterator[Progress]:
    """Follows what is built in `out`: a training by update, an evaluation at its end; of other stages nothing."""
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
        if not begun:
            begun.append(True)
            followers.extend(_best_effort(begin) or [])
        figures = {name: value for name, value in numbers.items() if name not in UNTRACKED}
        for follower in followers:
            follower.add(int(numbers["step"]), figures)

    begun: list[bool] = []
    failed = True
    try:
        yield progress
        failed = False
        rows, more = _best_effort(lambda: finished(out, stage, bool(begun))) or ([], [])
        if more and not begun:
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
    """(all updates of a training, further figures: its validation, or an evaluation's measures) of an artifact."""
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
    """{SPLIT/SYSTEM MEASURE: mean} of an evaluation's metrics.json, by judgements and by answers."""
    return {
        f"{split}/{metrics['labels'].get(system, system)} {measure}": figure["mean"]
        for split, of_split in metrics["splits"].items()
        for systems in (of_split["systems"], of_split.get("answers", {}).get("systems", {}))
        for system, figures in systems.items()
        for measure, figure in figures.items()
        if figure["mean"] is not None
    }


class Follower:
    """A tracker in a thread of its own, which it opens. What it raises is one warning, and its end."""

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
    """The log that the training had when it was killed, if that is still there."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        name = str(json.loads((work / RESUMED).read_text())["log"])
        if len(name.split("/")) == 3 and ".." not in name.split("/") and (logs.root / name).is_dir():
            return name
    return None


_said: set[tuple[Path, str]] = set()


def _say_once(logs: Logs) -> None:
    """Where the logs of a run can be seen, at its first training."""
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
