"""`make up`, a deployment's run, its page in a browser, cancelling, and a run that is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from artifacts.locks import try_hold
from flows.dag import nodes
from flows.deploy.deployments import UPDATED, deployed_ablations, deployed_recipes, deployed_sentences
from flows.deploy.processes import free_port
from flows.recipes.recipe import resolve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[3]
NODES = [node.name for node in nodes(resolve("tiny"))]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def differences(one: dict[str, Any], other: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The `--set` settings that change `one` into `other`."""
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(one[name], dict):
            yield from differences(one[name], value, f"{prefix}{name}.")
        elif value != one[name]:
            yield f"{prefix}{name}={json.dumps(value)}"


TINY = list(differences(resolve("pydocs").model_dump(mode="json"), resolve("tiny").model_dump(mode="json")))
ENDLESS = [*TINY, "condenser.budget=1000000 steps", "machine.checkpoint_minutes=0"]


def wait(condition: Callable[[], Any], seconds: float) -> Any:
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.5)
    return value


class Served:
    """A running `cocondenser up`, and a user's commands in the project's folder."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, environment: dict[str, str], store: Path) -> None:
        self.process, self.page, self.environment, self.store = process, f"http://127.0.0.1:{port}", environment, store

    def prefect(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "prefect", *arguments]
        return subprocess.run(command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=900)

    def start(self, settings: list[str], *more: str) -> "subprocess.CompletedProcess[str]":
        return self.prefect("deployment", "run", "cocondenser/pydocs", "--param", f"set={json.dumps(settings)}", *more)

    def query(self, path: str, body: dict[str, Any]) -> Any:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.page}/api/{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def newest_run(self) -> dict[str, Any]:
        return self.query("flow_runs/filter", {"sort": "EXPECTED_START_TIME_DESC", "limit": 1})[0]

    def state(self) -> str:
        return self.newest_run()["state_type"]

    def trainings(self) -> list[psutil.Process]:
        """The training processes of this store."""
        processes = psutil.process_iter(["cmdline"])
        return [p for p in processes if any(str(self.store) in word for word in p.info["cmdline"] or ())]

    def wait_for_checkpoint(self) -> Path:
        work = self.store / "work"
        return wait(lambda: next(iter(work.glob("*/checkpoints/step-*")), None), 240).parents[1]


@contextmanager
def served(environment: dict[str, str], home: Path, store: Path) -> Iterator[Served]:
    port = free_port()
    variables = {**environment, "PREFECT_HOME": str(home), "COCONDENSER_STORE": str(store)}
    log = home / "up.log"
    with log.open("w") as out:
        command = [sys.executable, "-m", "flows.cli", "up", "--port", str(port)]
        process = subprocess.Popen(command, env=variables, cwd=ROOT, stdout=out, stderr=out, text=True)
    try:
        wait(lambda: "Stop:" in log.read_text() or process.poll() is not None, 240)
        assert process.poll() is None, log.read_text()
        yield Served(process, port, variables, store)
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        for child in family:
            if child.is_running():
                child.kill()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def up(environment: dict[str, str], home: Path, store: Path) -> Iterator[Served]:
    with served(environment, home, store) as running:
        yield running


@pytest.fixture(scope="module")
def completed(up: Served) -> dict[str, Any]:
    """The deployment's run on 300 documents, started with the command of the README."""
    result = up.start(TINY, "--watch")
    assert result.returncode == 0, result.stdout + result.stderr
    return up.newest_run()


def test_the_deployments_are_listed(up: Served, home: Path) -> None:
    deployed = sorted(deployment["name"] for deployment in up.query("deployments/filter", {}))
    runs = [one.name for one in (*deployed_recipes(), *deployed_ablations(), *deployed_sentences())]
    assert deployed == sorted([*runs, *UPDATED])
    assert {"marco", "pydocs"} <= {*deployed}
    assert "Start:  prefect deployment run cocondenser/pydocs-small\n" in (home / "up.log").read_text()
    assert "pydocs-small" in deployed


def test_a_recipe_that_is_not_a_name_is_refused(up: Served) -> None:
    refused = up.prefect("deployment", "run", "cocondenser/pydocs", "--param", 'recipe={"condenser": {"steps": 9}}')
    assert refused.returncode != 0
    assert "recipe" in refused.stdout + refused.stderr


@pytest.mark.parametrize(
    ("parameter", "line"),
    [('recipe="pidocs"', "no recipe 'pidocs'"), ('set=["condenser.stepz=1"]', "--set condenser.stepz=1: ")],
)
def test_an_unknown_recipe_or_setting_fails_within_a_second_in_one_line(up: Served, parameter: str, line: str) -> None:
    assert up.prefect("deployment", "run", "cocondenser/pydocs", "--param", parameter, "--watch").returncode != 0
    run = up.newest_run()
    assert (run["state_type"], run["state"]["message"].startswith(line)) == ("FAILED", True)
    assert "\n" not in run["state"]["message"]
    assert run["total_run_time"] < 1


def test_a_deployments_run_completes(up: Served, completed: dict[str, Any]) -> None:
    assert (completed["name"], completed["state_type"]) == ("pydocs", "COMPLETED")
    tasks = up.query("task_runs/filter", {"task_runs": {"flow_run_id": {"any_": [completed["id"]]}}})
    assert sorted(task["name"] for task in tasks) == sorted(NODES)
    assert {task["state_name"] for task in tasks} == {"Completed"}


def test_the_page_shows_every_artifact(up: Served, completed: dict[str, Any]) -> None:
    filters = {"artifacts": {"flow_run_id": {"any_": [completed["id"]]}}, "limit": 200}
    artifacts = {artifact["key"]: artifact for artifact in up.query("artifacts/filter", filters)}
    assert {f"metrics-{name}" for name in NODES} <= set(artifacts)
    assert {f"loss-{name}" for name in ("condenser", "cocondenser", "stage1", "stage2")} <= set(artifacts)
    assert artifacts["loss-condenser"]["data"].startswith("data:image/png;base64,")
    assert "report.html" in artifacts["results"]["data"]
    assert "BM25 + stage 2" in artifacts["results"]["data"]
    assert "\n  condenser:\n" in artifacts["recipe"]["data"]  # complete
    assert "learning_rate" in artifacts["recipe"]["data"]


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not installed")
def test_a_browser_shows_the_page_of_a_run(up: Served, completed: dict[str, Any], tmp_path: Path) -> None:
    def page(path: str) -> str:
        # fmt: off
        command = [
            str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1400", "--virtual-time-budget=30000",
            "--dump-dom", f"{up.page}{path}",
        ]
        # fmt: on
        return subprocess.run(command, capture_output=True, text=True, timeout=180).stdout

    run = page(f"/runs/flow-run/{completed['id']}")
    assert "Completed" in run
    assert "pydocs" in run
    results = next(
        artifact for artifact in up.query("artifacts/filter", {"limit": 200}) if artifact["key"] == "results"
    )
    html = page(f"/artifacts/artifact/{results['id']}")
    assert "BM25 + stage 2" in html
    assert "<table" in html


def test_a_second_run_is_cached(up: Served, completed: dict[str, Any]) -> None:
    again = up.start(TINY, "--param", "until=bm25", "--watch")
    assert again.returncode == 0, again.stdout + again.stderr
    run = up.newest_run()
    assert run["id"] != completed["id"]
    tasks = up.query("task_runs/filter", {"task_runs": {"flow_run_id": {"any_": [run["id"]]}}})
    assert {task["name"]: task["state_name"] for task in tasks} == {"ingest": "Cached", "bm25": "Cached"}


def test_cocondenser_run_uses_the_server(up: Served, completed: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "flows.cli", "run", "tiny", "--until", "tokens"]
    result = subprocess.run(command, env=up.environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert up.page in result.stderr
    assert up.newest_run()["name"] == "tiny"


def test_an_ablations_deployment_completes(up: Served, completed: dict[str, Any]) -> None:
    """One row on 300 documents. The store already has its stages before fine-tuning."""
    small = resolve("pydocs-small").model_dump(mode="json")
    tiny = list(differences(small, resolve("tiny").model_dump(mode="json")))
    parameters = {"set": tiny, "rows": ["coCondenser"], "reference": "coCondenser"}
    arguments = [word for name, value in parameters.items() for word in ("--param", f"{name}={json.dumps(value)}")]
    result = up.prefect("deployment", "run", "ablation/pydocs-small", *arguments, "--watch")
    assert result.returncode == 0, result.stdout + result.stderr
    run = up.newest_run()
    assert (run["name"], run["state_type"]) == ("pydocs-small", "COMPLETED")
    tasks = up.query("task_runs/filter", {"task_runs": {"flow_run_id": {"any_": [run["id"]]}}})
    states = {task["name"]: task["state_name"] for task in tasks}
    assert states["cocondenser"] == states["condenser"] == "Cached"
    assert states["ablation"] == "Completed"
    filters = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}, "limit": 200}
    artifacts = {artifact["key"]: artifact for artifact in up.query("artifacts/filter", filters)}
    assert "| coCondenser | ." in artifacts["ablation"]["data"]


def test_cancelling_ends_the_training_and_keeps_its_checkpoint(up: Served, completed: dict[str, Any]) -> None:
    assert up.start(ENDLESS, "--param", "until=condenser").returncode == 0
    work = up.wait_for_checkpoint()
    assert up.trainings()
    assert up.prefect("flow-run", "cancel", up.newest_run()["id"]).returncode == 0
    wait(lambda: up.state() == "CANCELLED", 90)
    wait(lambda: not up.trainings(), 30)
    assert list(work.glob("checkpoints/step-*"))
    with try_hold(up.store / "locks" / f"{work.name}.lock") as free:
        assert free
    shutil.rmtree(work)


def test_ctrl_c_ends_all_processes_and_restores_the_profile(up: Served, completed: dict[str, Any], home: Path) -> None:
    assert up.start(ENDLESS, "--param", "until=condenser").returncode == 0
    work = up.wait_for_checkpoint()
    family = psutil.Process(up.process.pid).children(recursive=True)
    assert 'active = "cocondenser"' in (home / "profiles.toml").read_text()
    os.kill(up.process.pid, signal.SIGINT)
    assert up.process.wait(90) == 0
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive
    assert not up.trainings()
    assert list(work.glob("checkpoints/step-*"))
    assert 'active = "cocondenser"' not in (home / "profiles.toml").read_text()
    shutil.rmtree(work)


def test_a_run_killed_with_its_worker_is_marked_as_crashed(
    environment: dict[str, str], tmp_path: Path, store: Path, completed: dict[str, Any]
) -> None:
    with served(environment, tmp_path, store) as up:
        assert up.start(ENDLESS, "--param", "until=condenser").returncode == 0
        up.wait_for_checkpoint()
        time.sleep(35)  # at least one heartbeat
        # This process is stopped, so it does not end the server when its worker is gone.
        os.kill(up.process.pid, signal.SIGSTOP)
        family = psutil.Process(up.process.pid).children(recursive=True)
        server = [p for p in family if "server" in p.cmdline() or "uvicorn" in " ".join(p.cmdline())]
        for process in family:
            if process not in server:
                process.kill()
        assert up.state() == "RUNNING"
        wait(lambda: not up.trainings(), 20)
        wait(lambda: up.state() == "CRASHED", 240)
        os.kill(up.process.pid, signal.SIGCONT)
        assert up.process.wait(60) == 2
