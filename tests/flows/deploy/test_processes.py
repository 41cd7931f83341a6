"""Prefect's processes end with the run that started them."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prefect.settings import PREFECT_PROFILES_PATH, temporary_settings

from flows.cli.up import up
from flows.deploy.processes import free_port
from pipeline.errors import InputError
from tasks.api import healthy

ROOT = Path(__file__).resolve().parents[3]


def test_no_server_answers_at_a_free_port() -> None:
    assert not healthy(f"http://127.0.0.1:{free_port()}/api")
    assert not healthy("no address")


@pytest.mark.parametrize(("status", "answers"), [(200, True), (401, True), (403, True), (404, False), (500, False)])
def test_a_server_is_healthy_by_its_status(status: int, answers: bool) -> None:
    with web_server(status) as port:
        assert healthy(f"http://127.0.0.1:{port}/api") == answers


def test_up_reports_that_the_port_is_in_use(call_cli, tmp_path: Path) -> None:
    with web_server(404) as port:
        result = call_cli("up", "--port", str(port), store=tmp_path)
    assert (result.returncode, result.stderr) == (2, f"error: --port {port}: another program uses this port\n")


def test_up_reports_that_it_runs_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would change the address in Prefect's profile, and remove it when it ends."""
    monkeypatch.setattr("flows.cli.up.PREFECT_YAML", tmp_path / "none")  # nothing is started
    profiles = tmp_path / "profiles.toml"
    with web_server(200) as port, temporary_settings({PREFECT_PROFILES_PATH: profiles}):
        page = f"http://127.0.0.1:{port}"
        profiles.write_text(f'active = "cocondenser"\n[profiles.cocondenser]\nPREFECT_API_URL = "{page}/api"\n')
        with pytest.raises(InputError, match=f"^the Prefect server of another `cocondenser up` answers at {page}"):
            up(free_port(), None)
    with temporary_settings({PREFECT_PROFILES_PATH: profiles}), pytest.raises(InputError, match="does not exist"):
        up(free_port(), None)  # that one has been killed
    profiles.write_text('active = "gone"\n')
    with temporary_settings({PREFECT_PROFILES_PATH: profiles}), pytest.raises(InputError, match="does not exist"):
        up(free_port(), None)


@contextmanager
def web_server(status: int) -> Iterator[int]:
    """A web server that always answers with `status`. Yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


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
            while not (page := re.search(r"Prefect's page (http://127.0.0.1:\d+) until it ends", log.read_text())):
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
