"""The trackers of a training's figures: TensorBoard's event files, Weights & Biases, MLflow.

While a training runs, a tracker receives a sample of its updates. `complete` sends the rest. In the end each update
appears once, also if the training was killed and resumed.
"""

import hashlib
import itertools
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline.paths import expand_home

Figures = Mapping[str, float]
Point = tuple[int, Figures]
"""An update, from 1, and its figures by name."""

BATCH = 25
"""Updates sent to MLflow before they are recorded as sent."""
FIGURES = 500
"""Figures in one request to MLflow, which accepts 1,000."""
LONGEST_PARAMETER = 500
"""Characters that every version of MLflow accepts."""


@dataclass(frozen=True)
class TrackedNode:
    """The node that is tracked."""

    folder: Path
    """The existing folder of its logs."""
    name: str
    """RECIPE/TIME/NODE: the folder's path below STORE/logs."""
    stage: str
    config: Mapping[str, Any]
    first: int | None
    """Finished updates of a resumed training; None: it starts from the beginning."""


class Tracker(Protocol):
    def add(self, step: int, figures: Figures) -> None:
        """Adds one update while the training runs."""

    def complete(self, rows: Sequence[Point], more: Sequence[Point]) -> None:
        """Adds all updates of the finished training, and figures that belong to no update."""

    def close(self, failed: bool) -> None: ...


class TensorBoard:
    """Writes one event file while a training runs; at its end a new one with all updates in order."""

    def __init__(self, of: TrackedNode) -> None:
        self.folder = of.folder
        self.earlier = event_files(self.folder)
        self.path = self._new_path()
        self._open(self.path)
        if of.first is not None or self.earlier:
            self._begin_again((of.first or 0) + 1)
        self.writer.flush()

    def add(self, step: int, figures: Figures) -> None:
        self._write(step, figures, time.time())
        self.writer.flush()

    def complete(self, rows: Sequence[Point], more: Sequence[Point]) -> None:
        """Writes all updates again: readers of logs treat a step that is lower than the one before as a restart.

        The times, and figures that exist only while a training runs (the speed), come from the earlier files.
        """
        before = [*self.earlier, self.path]
        known = read_points(before)
        whole = all(known.get(step, (0.0, {}))[1].keys() >= row.keys() for step, row in rows)
        if whole and not self.earlier and not more:
            return
        times = _times(known, [step for step, _ in (*rows, *more)])
        merged: dict[int, dict[str, float]] = {step: dict(figures) for step, (_, figures) in known.items()}
        for step, figures in (*rows, *more):
            merged.setdefault(step, {}).update(figures)
        self.writer.close()
        unfinished = self.folder / "unfinished"
        self._open(unfinished)
        self._begin_again(min(merged, default=0))
        for step in sorted(merged):
            self._write(step, merged[step], known[step][0] if step in known else times[step])
        self.writer.flush()
        os.fsync(self.file.fileno())
        unfinished.rename(self._new_path())
        for path in before:
            path.unlink(missing_ok=True)

    def close(self, failed: bool) -> None:
        self.writer.close()

    def _new_path(self) -> Path:
        # Readers use the order of the names.
        begun = f"events.out.tfevents.{int(time.time()):010}.{socket.gethostname()}.{os.getpid()}"
        return next(path for n in itertools.count() if not (path := self.folder / f"{begun}.{n}").exists())

    def _open(self, path: Path) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.file = path.open("wb")
        self.writer = RecordWriter(self.file)
        self.writer.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())

    def _begin_again(self, step: int) -> None:
        """Makes readers discard `step` and all later steps."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        start = SessionLog(status=SessionLog.START)
        self.writer.write(Event(wall_time=time.time(), step=step, session_log=start).SerializeToString())

    def _write(self, step: int, figures: Figures, when: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self.writer.write(Event(wall_time=when, step=step, summary=Summary(value=values)).SerializeToString())


def event_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("events.out.tfevents.*"))


def read_points(paths: Iterable[Path]) -> dict[int, tuple[float, dict[str, float]]]:
    """Returns {step: (time, figures)} of event files in the order of writing; later figures replace earlier ones."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    points: dict[int, tuple[float, dict[str, float]]] = {}
    for path in paths:
        for data in RawEventFileLoader(str(path)).Load():
            event = Event.FromString(data)
            if event.HasField("session_log") and event.session_log.status == SessionLog.START:
                points = {step: point for step, point in points.items() if step < event.step}
            elif event.HasField("summary"):
                figures = {value.tag: value.simple_value for value in event.summary.value}
                points[event.step] = event.wall_time, figures
    return points


def _times(known: Mapping[int, tuple[float, Any]], steps: Sequence[int]) -> dict[int, float]:
    """Returns the times of `steps`, interpolated between known steps."""
    import numpy as np

    if not known:
        return dict.fromkeys(steps, time.time())
    at = sorted(known)
    return dict(zip(steps, np.interp(steps, at, [known[step][0] for step in at]).tolist(), strict=True))


class SentOnce:
    """Sends each update once, also if a training was killed: `path` lists the updates that were sent."""

    def __init__(self, path: Path, send: Callable[[Sequence[Point]], None], at_once: int) -> None:
        self.path, self.send, self.at_once = path, send, at_once
        self.sent = {int(line) for line in path.read_text().split()} if path.exists() else set()

    def add(self, points: Sequence[Point]) -> None:
        left = [point for point in points if point[0] not in self.sent]
        for at in range(0, len(left), self.at_once):
            batch = left[at : at + self.at_once]
            self.send(batch)
            self.sent.update(step for step, _ in batch)
            with self.path.open("a") as file:
                file.write("".join(f"{step}\n" for step, _ in batch))


class WeightsAndBiases:
    """A run of the project, with charts by update. WANDB_MODE, WANDB_API_KEY and the like have their usual effect."""

    def __init__(self, of: TrackedNode, project: str) -> None:
        here = of.folder / "wandb"
        here.mkdir(exist_ok=True)
        # Otherwise it writes logs and settings into the home folder.
        for name in ("CACHE", "CONFIG", "DATA"):
            os.environ.setdefault(f"WANDB_{name}_DIR", str(here))
        import wandb

        self.updates, self.more = (SentOnce(of.folder / f"wandb.{kind}", self._send, 1) for kind in ("steps", "more"))
        group, _, node = of.name.rpartition("/")
        self.run = wandb.init(
            project=project,
            id=hashlib.sha256(of.name.encode()).hexdigest()[:16],
            resume="allow",
            name=node,
            group=group,
            job_type=of.stage,
            dir=str(of.folder),
            config=dict(of.config),
            settings=wandb.Settings(
                console="off", silent=True, disable_git=True, save_code=False, x_save_requirements=False
            ),
        )
        self.run.define_metric("update")
        self.run.define_metric("*", step_metric="update")

    def add(self, step: int, figures: Figures) -> None:
        self.updates.add([(step, figures)])

    def complete(self, rows: Sequence[Point], more: Sequence[Point]) -> None:
        self.updates.add(rows)
        self.more.add(more)

    def close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))

    def _send(self, points: Sequence[Point]) -> None:
        for step, figures in points:
            self.run.log({**figures, "update": step})


class MLflow:
    """A run in the experiment of the recipe's name."""

    def __init__(self, of: TrackedNode, where: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        address, artifacts = mlflow_address(where)
        self.client = MlflowClient(tracking_uri=address)
        self.updates, self.more = (
            SentOnce(of.folder / f"mlflow.{kind}", self._send, BATCH) for kind in ("steps", "more")
        )
        known = of.folder / "mlflow.run"
        if known.exists():
            self.id = known.read_text()
            self.client.update_run(self.id, status="RUNNING")
            return
        recipe, begun, node = of.name.split("/")
        found = self.client.get_experiment_by_name(recipe)
        experiment = found.experiment_id if found else self.client.create_experiment(recipe, artifacts)
        tags = {"cocondenser.run": begun, "cocondenser.stage": of.stage}
        self.id = self.client.create_run(experiment, run_name=node, tags=tags).info.run_id
        known.write_text(self.id)
        parameters = [Param(_name(name), str(value)[:LONGEST_PARAMETER]) for name, value in of.config.items()]
        for at in range(0, len(parameters), 100):
            self.client.log_batch(self.id, params=parameters[at : at + 100])

    def add(self, step: int, figures: Figures) -> None:
        self.updates.add([(step, figures)])

    def complete(self, rows: Sequence[Point], more: Sequence[Point]) -> None:
        self.updates.add(rows)
        self.more.add(more)

    def close(self, failed: bool) -> None:
        self.client.set_terminated(self.id, "FAILED" if failed else "FINISHED")

    def _send(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(_name(name), value, now, step) for step, figures in points for name, value in figures.items()]
        for at in range(0, len(metrics), FIGURES):
            self.client.log_batch(self.id, metrics=metrics[at : at + FIGURES])


def mlflow_address(where: str) -> tuple[str, str | None]:
    """Returns (tracking address, address of artifacts) of a server, or of a folder with a SQLite file."""
    if "://" in where:
        return where, None
    folder = expand_home(where, "tracking.mlflow").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()


def _name(name: str) -> str:
    """Returns the name with `_` for characters that MLflow rejects."""
    return re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)
