"""Prefect's processes end with the run that started them."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.processes import free_port, healthy

ROOT = Path(__file__).resolve().parents[2]


def test_nobody_answers_at_a_free_port() -> None:
    assert not healthy(f"http://127.0.0.1:{free_port()}/api")
    assert not healthy("no address")


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_run_leaves_no_server(ending: signal.Signals, environment: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stderr:
        run = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "run", "tiny", "--store", str(tmp_path / "store")],
            env=environment,
            cwd=ROOT,
            stderr=stderr,
            stdout=subprocess.DEVNULL,
        )
        try:
            end = time.monotonic() + 120
            while not (page := re.search(r"its own page (http://127.0.0.1:\d+)", log.read_text())):
                assert run.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.2)
            assert healthy(f"{page[1]}/api")
        finally:
            run.send_signal(ending)
        run.wait(60)
    end = time.monotonic() + 30
    while healthy(f"{page[1]}/api"):
        assert time.monotonic() < end, f"the server of a run that ended by {ending.name} still answers"
        time.sleep(0.5)
