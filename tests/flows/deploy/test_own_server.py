"""The Prefect server of a single run: reasons of failures, simultaneous first starts, and a killed server."""

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.deploy import own_server
from flows.deploy.own_server import failure_reason, first_start
from pipeline.errors import InputError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setattr(own_server, "prefect_home", lambda: folder)
    monkeypatch.setattr(own_server, "database_location", lambda: str(folder / "prefect.db"))
    return folder


@pytest.mark.parametrize(
    ("output", "fix"),
    [
        (
            ["alembic.util.exc.CommandError: Can't locate revision identified by 'ffff'"],
            "belongs to another version of Prefect",
        ),
        (["sqlalchemy.exc.DatabaseError: (sqlite3.DatabaseError) file is not a database"], "is damaged: move it away"),
        (["OperationalError: (sqlite3.DatabaseError) database disk image is malformed"], "is damaged: move it away"),
        (["OperationalError: (sqlite3.OperationalError) unable to open database file"], "home cannot be written"),
        (["OperationalError: attempt to write a readonly database"], "home cannot be written"),
        (["PermissionError: [Errno 13] Permission denied: '/x'"], "home cannot be written"),
        (["OSError: [Errno 28] No space left on device"], "home is full"),
    ],
)
def test_a_server_that_does_not_start_reports_the_reason_and_the_fix(home: Path, output: list[str], fix: str) -> None:
    after = [
        "(Background on this error at: https://sqlalche.me/e/21/e3q8)",
        "",
        "ERROR: Application startup failed. Exiting.",
    ]
    line = failure_reason(["Traceback (most recent call last):", *output, *after])
    assert line.startswith(f"{output[0]}: ")
    assert fix in line
    assert str(home) in line
    assert "set PREFECT_HOME=DIR, a different folder that can be written" in line


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (["Port 4200 is already in use.", "Server stopped!"], "Port 4200 is already in use."),
        (["ImportError: no module", "Server stopped!\n"], "ImportError: no module"),
        ([], "it left no message"),
    ],
)
def test_an_unknown_reason_is_shown_unchanged(home: Path, output: list[str], line: str) -> None:
    assert failure_reason(output) == line


@pytest.mark.parametrize("inside", ["", "deeper", "deeper/still"])
def test_a_home_that_cannot_be_written_is_reported_at_once(home: Path, inside: str) -> None:
    home.write_text("a file")
    folder = home / inside
    with (
        pytest.raises(InputError, match=f"^PREFECT_HOME: {folder} cannot be written .*; set PREFECT_HOME=DIR, a"),
        first_start(folder),
    ):
        pass


def test_runs_wait_for_a_first_start_but_not_for_later_ones(home: Path) -> None:
    started, migrated, order = threading.Event(), threading.Event(), []

    def first() -> None:
        with first_start(home):
            started.set()
            migrated.wait(30)
            (home / "prefect.db").write_text("made")
            order.append("first")

    def second() -> None:
        started.wait(30)
        with first_start(home):
            order.append("second")

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    started.wait(30)
    threads[1].join(0.5)
    assert order == []
    migrated.set()
    for thread in threads:
        thread.join(30)
    assert order == ["first", "second"]
    with first_start(home), first_start(home):  # neither waits for the other
        pass
    (home / "prefect.db").rename(home / "old.db")
    (home / "prefect.db").write_text("another one, that may need a migration")
    with first_start(home):
        assert (home / own_server.LOCK).read_text() != own_server.database_state()
    assert (home / own_server.LOCK).read_text() == own_server.database_state()


def test_a_failed_start_does_not_count_as_the_first_start(home: Path) -> None:
    (home).mkdir()
    (home / "prefect.db").write_text("half made")
    with pytest.raises(InputError), first_start(home):
        raise InputError("the server does not start")
    assert (home / own_server.LOCK).read_text() == ""


class FakeProcess:
    """A stand-in for a process. It has ended when `dead` is set."""

    def __init__(self) -> None:
        self.dead = threading.Event()

    def poll(self) -> int | None:
        return -9 if self.dead.is_set() else None


@pytest.mark.parametrize("kills", [0, 1, 3, 9])
def test_a_server_that_is_killed_is_restarted(monkeypatch: pytest.MonkeyPatch, kills: int) -> None:
    monkeypatch.setattr(own_server, "LOOK_SECONDS", 0.01)
    started: list[FakeProcess] = []
    over = threading.Event()

    @contextmanager
    def begin() -> Iterator[FakeProcess]:
        started.append(FakeProcess())
        if len(started) < kills:
            started[-1].dead.set()
        yield started[-1]

    first = FakeProcess()
    if kills:
        first.dead.set()
    given_up: list[bool] = []
    keeper = threading.Thread(target=own_server.keep_running, args=(first, begin, over, lambda: given_up.append(True)))
    keeper.start()
    keeper.join(0.3)
    over.set()
    keeper.join(5)
    assert not keeper.is_alive()
    assert len(started) == min(kills, own_server.MAX_RESTARTS)
    assert given_up == [True] * (kills > own_server.MAX_RESTARTS)


@pytest.fixture
def without_restarts(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeProcess]]:
    """`own_server` with stand-ins for its processes: the first server, and dead ones after it."""
    servers = [FakeProcess()]

    @contextmanager
    def start(*_: object) -> Iterator[FakeProcess]:
        if len(servers) > 1:
            servers[-1].dead.set()
        servers.append(FakeProcess())
        yield servers[-2]

    monkeypatch.setattr(own_server, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(own_server, "prefect_process", start)
    monkeypatch.setattr(own_server, "wait_until_healthy", lambda *_: None)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield servers
    signal.signal(signal.SIGINT, before)


def wait_long() -> None:
    time.sleep(30)


def lose_the_server() -> None:
    with suppress(KeyboardInterrupt):
        wait_long()
    raise OSError("all connection attempts failed")


def end_the_process() -> None:
    with suppress(KeyboardInterrupt):
        wait_long()
    sys.exit(130)


@pytest.mark.parametrize("sigint", [signal.default_int_handler, signal.SIG_IGN], ids=["", "ignored"])
@pytest.mark.parametrize("work", [wait_long, lose_the_server, end_the_process])
def test_work_ends_in_one_line_when_its_server_is_not_restarted(
    without_restarts: list[FakeProcess], work: Callable[[], None], sigint: Any
) -> None:
    """Also in a script that starts the run with &, where SIGINT is ignored."""
    signal.signal(signal.SIGINT, sigint)
    threading.Timer(0.1, without_restarts[0].dead.set).start()
    with (
        pytest.raises(InputError, match=r"^Prefect's server has ended 6 times and is not restarted; the same"),
        own_server.own_server(4200),
    ):
        work()


def test_an_interrupt_by_the_user_stays_an_interrupt(without_restarts: list[FakeProcess]) -> None:
    with pytest.raises(KeyboardInterrupt), own_server.own_server(4200):
        raise KeyboardInterrupt


@pytest.mark.parametrize("lines", [1, 3, own_server.OUTPUT_LINES])
def test_a_server_may_write_while_its_reason_is_read(home: Path, lines: int) -> None:
    output: deque[str] = deque(maxlen=own_server.OUTPUT_LINES)

    class Line(str):
        """A line whose reading appends the next one."""

        def strip(self, *_: object) -> str:  # type: ignore[override]
            output.append("the next line")
            return super().strip()

    output.extend(Line(f"line {n}") for n in range(lines))
    dead = FakeProcess()
    dead.dead.set()
    with pytest.raises(InputError, match=f"^Prefect's server does not start: line {lines - 1}$"):
        own_server.wait_until_healthy("http://127.0.0.1:9/api", dead, output)


def test_a_server_that_does_not_answer_is_no_server_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_server, "START_SECONDS", 0)
    with pytest.raises(InputError, match="does not answer within 0 s: is this machine busy"):
        own_server.wait_until_healthy("http://127.0.0.1:9/api", FakeProcess(), ["Check out the dashboard"])


NOTES = ["--set", "ingest.questions=[]", "--until", "ingest", "--json"]


def run(environment: dict[str, str], folder: Path, home: Path, store: Path, *more: str) -> "subprocess.Popen[str]":
    """A run of `text` on one note, or of the arguments `more`."""
    (folder / "notes").mkdir(exist_ok=True)
    (folder / "notes" / "one.md").write_text("# A note\n\nof a few words.\n")
    arguments = more or ("text", "--set", f"ingest.path={folder / 'notes'}", *NOTES)
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "run", *arguments, "--store", str(store)],
        env={**environment, "PREFECT_HOME": str(home)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["belongs to another version of Prefect", "is damaged"])
def test_a_database_that_cannot_be_used_ends_in_one_line(
    environment: dict[str, str], tmp_path: Path, problem: str
) -> None:
    if problem == "is damaged":
        (tmp_path / "prefect.db").write_bytes(b"no database" * 1000)
    else:
        with sqlite3.connect(tmp_path / "prefect.db") as file:
            file.execute("create table alembic_version (version_num varchar(32))")
            file.execute("insert into alembic_version values ('ffffffffffff')")
    process = run(environment, tmp_path, tmp_path, tmp_path / "store")
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 2
    assert stderr.count("\n") == 1
    assert f"its database {tmp_path}/prefect.db {problem}" in stderr


@pytest.mark.slow
def test_four_first_runs_at_once_succeed(environment: dict[str, str], tmp_path: Path) -> None:
    runs = [run(environment, tmp_path, tmp_path / "home", tmp_path / f"store-{n}") for n in range(4)]
    outputs = [process.communicate(timeout=500)[1] for process in runs]
    assert [process.returncode for process in runs] == [0] * 4, outputs


@pytest.mark.slow
def test_a_run_whose_server_is_killed_resumes(environment: dict[str, str], tmp_path: Path) -> None:
    store = tmp_path / "store"
    arguments = ("tiny", "--device", "cpu", "--until", "condenser", "--json")
    process = run(environment, tmp_path, tmp_path / "home", store, *arguments)
    end = time.monotonic() + 300
    while not list(store.glob("work/*/checkpoints")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.2)
    (server,) = [p for p in psutil.Process(process.pid).children() if "server" in p.cmdline()]
    server.kill()
    out, stderr = process.communicate(timeout=500)
    assert process.returncode == 0, stderr
    assert "condenser" in json.loads(out)["artifacts"]
    for raw in ("Traceback", "Event(", "retry", "ERROR", "httpx", "Error logging"):
        assert raw not in stderr
