"""TensorBoard's logs of real trainings have the same values as their histories."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from killing import command, cut_off, finished, run
from typer.testing import CliRunner

from artifacts.gc import gc
from artifacts.store import Store
from artifacts.verify import verify
from flows.cli.main import app
from flows.dag import nodes
from flows.recipes.recipe import configuration, resolve
from pipeline.training.loop import loss_columns

TRAINED = ("condenser", "cocondenser", "stage1", "stage2")


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """{tag: {step: value}}, as TensorBoard reads the folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    events_by_tag = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    assert all(len({event.step for event in points}) == len(points) for points in events_by_tag.values())
    return {tag: {event.step: event.value for event in points} for tag, points in events_by_tag.items()}


def same_as_history(log: Path, artifact: Path) -> None:
    table = pd.read_parquet(artifact / "history.parquet").set_index("step")
    logged = scalars(log)
    names = [*loss_columns(table.columns), "learning_rate", "gradient_norm"]
    assert len(names) >= 3
    for name in names:
        assert logged[name] == {step: pytest.approx(value) for step, value in table[name].items()}, name


def test_every_training_and_the_evaluation_of_a_run_are_logged(tiny_run: tuple[Path, dict[str, Any]]) -> None:
    store, printed = tiny_run
    (run_log,) = (store / "logs" / "tiny").iterdir()
    assert [path.stem for path in (store / "runs").iterdir()] == [f"{run_log.name}-tiny"]
    assert {path.name for path in run_log.iterdir()} == {*TRAINED, "evaluate"}
    for node in TRAINED:
        same_as_history(run_log / node, Path(printed["artifacts"][node]["path"]))
    measured = printed["results"]["splits"]["test"]["systems"]["bm25"]["RR@10"]["mean"]
    assert scalars(run_log / "evaluate")["test/BM25 RR@10"] == {0: pytest.approx(measured)}


@pytest.mark.parametrize(
    "where",
    ["http://a:5000", "https://a/b", "sqlite:////a.db", "postgresql+psycopg2://u:p@h/d", "ml", "./my logs", r"C:\ml"],
)
def test_valid_locations_of_mlflow_are_accepted(where: str) -> None:
    assert resolve("tiny", [f"tracking.mlflow={where}"]).tracking.mlflow == where


def test_tracking_changes_no_key_and_no_report() -> None:
    plain = resolve("tiny")
    other = resolve("tiny", ["tracking.tensorboard=false", "tracking.wandb=project", "tracking.mlflow=folder"])
    assert nodes(plain) == nodes(other)
    assert "tracking" not in configuration(other)


def test_gc_and_verify_leave_the_logs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    log = tmp_path / "logs/tiny/20201122T100000.000000Z/stage1/events.out.tfevents.1.host.1.0"
    log.parent.mkdir(parents=True)
    log.touch()
    assert gc(store, runs=0, days=0) == []
    assert verify(store) == []
    assert log.exists()


def test_a_tracker_that_is_not_installed_is_reported_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.tracking.installed", lambda package: package != "wandb")
    result = CliRunner().invoke(
        app, ["run", "tiny", "--set", "tracking.wandb=project", "--store", str(tmp_path / "store")]
    )
    assert "tracking.wandb: Weights & Biases is not installed: pip install 'cocondenser[tracking]'" in str(
        result.exception
    )
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_a_killed_training_has_one_complete_log_and_a_cached_one_has_none(
    tiny_run: tuple[Path, dict[str, Any]], served: dict[str, str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(tiny_run[0], store, ignore=shutil.ignore_patterns("logs"))
    longer = [*command("tiny", ["condenser.budget=60 steps"]), "--until", "condenser"]
    assert cut_off("condenser", "condenser", longer, served, store)
    results, stderr = finished(run(longer, served, store))
    assert "condenser: resumes from update" in stderr
    (run_log,) = (store / "logs/tiny").iterdir()  # the log of the killed run
    same_as_history(run_log / "condenser", Path(results["artifacts"]["condenser"]["path"]))
    assert f"tensorboard --logdir {store}/logs" in stderr
    finished(run(longer, served, store))
    (again,) = (store / "logs/tiny").iterdir()
    assert (again, json.loads((store / "format.json").read_text())) == (run_log, {"format": 1})
    off = [*longer, "--set", "tracking.tensorboard=false", "--set", "condenser.budget=5 steps"]
    finished(run(off, served, store))
    assert [path.name for path in (store / "logs/tiny").iterdir()] == [run_log.name]
