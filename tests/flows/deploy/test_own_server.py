"""A Prefect server of a run's own: its reasons, first starts at once, and a run whose server is killed."""

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
    ("said", "fix"),
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
def test_a_server_that_does_not_start_says_why_and_what_to_do(home: Path, said: list[str], fix: str) -> None:
    after = [
        "(Background on this error at: https://sqlalche.me/e/21/e3q8)",
        "",
        "ERROR: Application startup failed. Exiting.",
    ]
    line = failure_reason(["Traceback (most recent call last):", *said, *after])
    assert line.startswith(f"{said[0]}: ")
    assert fix in line
    assert str(home) in line
    assert "set PREFECT_HOME=DIR, a different folder that can be written" in line


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (["Port 4200 is already in use.", "Server stopped!"], "Port 4200 is already in use."),
        (["ImportError: no module", "Server stopped!\n"], "ImportError: no module"),
        ([], "it left no message"),
    ],
)
def test_another_reason_is_shown_as_it_is(home: Path, said: list[str], line: str) -> None:
    assert failure_reason(said) == line


@pytest.mark.parametrize("inside", ["", "deeper", "deeper/still"])
def test_a_home_that_cannot_be_written_is_named_at_once(home: Path, inside: str) -> None:
    home.write_text("a file")
    folder = home / inside
    with (
        pytest.raises(InputError, match=f"^PREFECT_HOME: {folder} cannot be written .*; set PREFECT_HOME=DIR, a"),
        first_start(folder),
    ):
        pass


def test_a_first_start_is_waited_for_and_later_ones_are_not(home: Path) -> None:
    begun, made, order = threading.Event(), threading.Event(), []

    def first() -> None:
        with first_start(home):
            begun.set()
            made.wait(30)
            (home / "prefect.db").write_text("made")
            order.append("first")

    def second() -> None:
        begun.wait(30)
        with first_start(home):
            order.append("second")

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    begun.wait(30)
    threads[1].join(0.5)
    assert order == []
    made.set()
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


def test_a_start_that_failed_is_no_start(home: Path) -> None:
    (home).mkdir()
    (home / "prefect.db").write_text("half made")
    with pytest.raises(InputError), first_start(home):
        raise InputError("the server does not start")
    assert (home / own_server.LOCK).read_text() == ""


class Ending:
    """A process that ends when `over` says."""

    def __init__(self) -> None:
        self.dead = threading.Event()

    def poll(self) -> int | None:
        return -9 if self.dead.is_set() else None


@pytest.mark.parametrize("kills", [0, 1, 3, 9])
def test_a_server_that_is_killed_begins_again(monkeypatch: pytest.MonkeyPatch, kills: int) -> None:
    monkeypatch.setattr(own_server, "LOOK_SECONDS", 0.01)
    begun: list[Ending] = []
    over = threading.Event()

    @contextmanager
    def begin() -> Iterator[Ending]:
        begun.append(Ending())
        if len(begun) < kills:
            begun[-1].dead.set()
        yield begun[-1]

    first = Ending()
    if kills:
        first.dead.set()
    given_up: list[bool] = []
    keeper = threading.Thread(target=own_server.keep_running, args=(first, begin, over, lambda: given_up.append(True)))
    keeper.start()
    keeper.join(0.3)
    over.set()
    keeper.join(5)
    assert not keeper.is_alive()
    assert len(begun) == min(kills, own_server.MAX_RESTARTS)
    assert given_up == [True] * (kills > own_server.MAX_RESTARTS)


@pytest.fixture
def without_restarts(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Ending]]:
    """`own_server` with stand-ins for its processes: the first server, and dead ones after it."""
    servers = [Ending()]

    @contextmanager
    def start(*given: object) -> Iterator[Ending]:
        if len(servers) > 1:
            servers[-1].dead.set()
        servers.append(Ending())
        yield servers[-2]

    monkeypatch.setattr(own_server, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(own_server, "prefect_process", start)
    monkeypatch.setattr(own_server, "wait_until_healthy", lambda *given: None)
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
def test_what_needs_a_server_that_was_given_up_ends_in_one_line(
    without_restarts: list[Ending], work: Callable[[], None], sigint: Any
) -> None:
    """Also in a script that starts it with &."""
    signal.signal(signal.SIGINT, sigint)
    threading.Timer(0.1, without_restarts[0].dead.set).start()
    with (
        pytest.raises(InputError, match=r"^Prefect's server has ended 6 times and is not restarted; the same"),
        own_server.own_server(4200),
    ):
        work()


def test_an_interrupt_of_the_users_stays_one(without_restarts: list[Ending]) -> None:
    with pytest.raises(KeyboardInterrupt), own_server.own_server(4200):
        raise KeyboardInterrupt


@pytest.mark.parametrize("lines", [1, 3, own_server.OUTPUT_LINES])
def test_a_server_may_write_while_its_reason_is_read(home: Path, lines: int) -> None:
    output: deque[str] = deque(maxlen=own_server.OUTPUT_LINES)

    class Line(str):
        """One that another comes after as soon as it is read."""

        def strip(self, *given: object) -> str:  # type: ignore[override]
            output.append("the next line")
            return super().strip()

    output.extend(Line(f"line {n}") for n in range(lines))
    dead = Ending()
    dead.dead.set()
    with pytest.raises(InputError, match=f"^Prefect's server does not start: line {lines - 1}$"):
        own_server.wait_until_healthy("http://127.0.0.1:9/api", dead, output)


NOTES = ["--set", "ingest.questions=[]", "--until", "ingest", "--json"]


def run(environment: dict[str, str], folder: Path, home: Path, store: Path, *more: str) -> "subprocess.Popen[str]":
    """A run of `text` on a note, or what `more` says."""
    (folder / "notes").mkdir(exist_ok=True)
    (folder / "notes" / "one.md").write_text("# A note\n\nof a few words.\n")
    words = more or ("text", "--set", f"ingest.path={folder / 'notes'}", *NOTES)
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "run", *words, "--store", str(store)],
        env={**environment, "PREFECT_HOME": str(home)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["belongs to another version of Prefect", "is damaged"])
def test_a_database_that_cannot_be_used_ends_in_one_line(
    environment: dict[str, str], tmp_path: Path, wrong: str
) -> None:
    if wrong == "is damaged":
        (tmp_path / "prefect.db").write_bytes(b"no database" * 1000)
    else:
        with sqlite3.connect(tmp_path / "prefect.db") as file:
            file.execute("create table alembic_version (version_num varchar(32))")
            file.execute("insert into alembic_version values ('ffffffffffff')")
    ended = run(environment, tmp_path, tmp_path, tmp_path / "store")
    _, said = ended.communicate(timeout=300)
    assert ended.returncode == 2
    assert said.count("\n") == 1
    assert f"its database {tmp_path}/prefect.db {wrong}" in said


@pytest.mark.slow
def test_four_first_runs_at_once(environment: dict[str, str], tmp_path: Path) -> None:
    runs = [run(environment, tmp_path, tmp_path / "home", tmp_path / f"store-{n}") for n in range(4)]
    said = [one.communicate(timeout=500)[1] for one in runs]
    assert [one.returncode for one in runs] == [0] * 4, said


@pytest.mark.slow
def test_a_run_whose_server_is_killed_resumes(environment: dict[str, str], tmp_path: Path) -> None:
    store = tmp_path / "store"
    words = ("tiny", "--device", "cpu", "--until", "condenser", "--json")
    one = run(environment, tmp_path, tmp_path / "home", store, *words)
    end = time.monotonic() + 300
    while not list(store.glob("work/*/checkpoints")):
        assert one.poll() is None
        assert time.monotonic() < end
        time.sleep(0.2)
    (server,) = [p for p in psutil.Process(one.pid).children() if "server" in p.cmdline()]
    server.kill()
    out, said = one.communicate(timeout=500)
    assert one.returncode == 0, said
    assert "condenser" in json.loads(out)["artifacts"]
    for raw in ("Traceback", "Event(", "retry", "ERROR", "httpx", "Error logging"):
        assert raw not in said
