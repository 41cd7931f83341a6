"""The Prefect server that a command starts for itself.

First starts in one PREFECT_HOME wait for each other; a killed server is restarted.
"""

import fcntl
import signal
import subprocess
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from flows.deploy.processes import prefect_process
from pipeline.errors import InputError
from pipeline.runtime.processes import environment
from tasks.api import healthy

Server = subprocess.Popen[bytes]

START_SECONDS = 120
LOOK_SECONDS = 0.2
MAX_RESTARTS = 5
"""Restarts before a killed server is given up."""
LOCK = "cocondenser.lock"
"""In Prefect's home: held while a server makes or migrates its database, for two at once damage it."""
OUTPUT_LINES = 200
"""The last lines of a server's output, kept for its reason."""
GIVE_UP = signal.SIGUSR1
"""Interrupts the block. Not SIGINT, which a script that starts a run with & lets it ignore."""
GIVEN_UP = f"Prefect's server has ended {MAX_RESTARTS + 1} times and is not started again; the same command resumes"
ELSEWHERE = "set PREFECT_HOME=DIR, another folder that can be written"
FIXES = {
    ("Can't locate revision",): f"its database {{database}} is another version's of Prefect; {ELSEWHERE}",
    ("not a database", "malformed", "database corruption"): (
        f"its database {{database}} is damaged: move it away, or {ELSEWHERE}"
    ),
    ("disk is full", "No space left", "Disk quota"): f"the disk of {{home}} is full: free some space, or {ELSEWHERE}",
    ("unable to open database", "readonly", "Read-only", "Permission denied", "Not a directory", "File exists"): (
        f"{{home}} cannot be written; {ELSEWHERE}"
    ),
}
"""What a server's reason contains -> what to do."""
UNINFORMATIVE = ("Application startup failed", "Background on this error", "Server stopped!", "Waiting for application")


def expect_no_home() -> None:
    """Prefect warns of a home that it cannot make; `own_server` says so in one line, where it matters."""
    warnings.filterwarnings("ignore", message="Failed to create the Prefect home")


@contextmanager
def own_server(port: int, more: Mapping[str, str] = {}, folder: Path | None = None) -> Iterator[str]:
    """Prefect's server at `port`, with the variables `more`: yields its API's address once it answers.

    A killed server is restarted at the same address, so that a run continues; after MAX_RESTARTS the block is
    interrupted. Raises InputError for that, and with the server's own reason where it does not start.
    """
    expect_no_home()
    api = f"http://127.0.0.1:{port}/api"
    variables = {**environment(), **more, "PREFECT_API_URL": api}
    serve = ["server", "start", "--host", "127.0.0.1", "--port", str(port)]
    output: deque[str] = deque(maxlen=OUTPUT_LINES)
    start = partial(prefect_process, serve, variables, folder, output)
    over, given_up, main = threading.Event(), threading.Event(), threading.get_ident()

    def give_up() -> None:
        given_up.set()
        signal.pthread_kill(main, GIVE_UP)

    with ExitStack() as running:
        before = signal.signal(GIVE_UP, signal.default_int_handler)
        running.callback(signal.signal, GIVE_UP, before or signal.SIG_DFL)
        with first_start(home()):
            server = running.enter_context(start())
            import prefect.flows  # noqa: F401  (takes seconds, in which the server starts)

            wait_until_healthy(api, server, output)
        keeper = threading.Thread(target=keep, args=(server, start, over, give_up), daemon=True)
        try:
            keeper.start()
            yield api
        except BaseException:
            if given_up.is_set():  # whatever it was that could not do without a server
                raise InputError(GIVEN_UP) from None
            raise
        finally:
            over.set()
            keeper.join()


def wait_until_healthy(api: str, server: Server, output: Collection[str]) -> None:
    """Raises InputError, with the reason in the server's `output`, where it ends or is silent for START_SECONDS."""
    end = time.monotonic() + START_SECONDS
    while not healthy(api):
        if server.poll() is not None or time.monotonic() > end:
            time.sleep(LOOK_SECONDS)  # its last lines are on their way, and may still arrive
            raise InputError(f"Prefect's server does not start: {reason(tuple(output))}")
        time.sleep(LOOK_SECONDS)


def keep(
    server: Server,
    start: Callable[[], AbstractContextManager[Server]],
    over: threading.Event,
    give_up: Callable[[], None],
) -> None:
    """Restarts the server whenever it has ended, until `over`; calls `give_up` after MAX_RESTARTS.

    In one thread, for a process ends with the thread that started it.
    """
    killed = wait_until_ended(server, over)
    for _ in range(MAX_RESTARTS):
        if not killed:
            return
        with start() as restarted:
            killed = wait_until_ended(restarted, over)
    if killed:
        give_up()


def wait_until_ended(server: Server, over: threading.Event) -> bool:
    """Whether the server has ended before `over`."""
    while server.poll() is None:
        if over.wait(LOOK_SECONDS):
            return False
    return not over.is_set()


def home() -> Path:
    """Prefect's folder for its database and its settings."""
    from prefect.settings import PREFECT_HOME

    return Path(PREFECT_HOME.value())


def database() -> str:
    """Where Prefect's server holds its data: a file, or an address without its password."""
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL
    from sqlalchemy.engine import make_url

    given = PREFECT_API_DATABASE_CONNECTION_URL.value()
    url = make_url(given.get_secret_value() if hasattr(given, "get_secret_value") else str(given))
    local = url.get_backend_name() == "sqlite" and url.database
    return str(local or url.render_as_string(hide_password=True))


def state() -> str:
    """Of Prefect and its database: where it is what it was, no migration is to come."""
    from prefect import __version__

    try:
        return f"{__version__} {database()} {Path(database()).stat().st_ino}"
    except OSError:
        return ""


@contextmanager
def first_start(folder: Path) -> Iterator[None]:
    """Waits while another process makes or migrates the database of the home `folder`; else others wait for this one.

    Once that is done no one waits any more. Raises InputError where the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InputError(f"PREFECT_HOME: {folder} cannot be written ({error.strerror}); {ELSEWHERE}") from None
    with lock:
        if known(lock) == state() != "":
            yield
            return
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        if known(lock) != state():
            lock.truncate(0)
            lock.write(state())


def known(lock: IO[str]) -> str:
    lock.seek(0)
    return lock.read()


def reason(output: Iterable[str]) -> str:
    """The server's own last line that tells why, and what to do about it."""
    informative = [line for line in output if line.strip() and not any(word in line for word in UNINFORMATIVE)]
    last = " ".join(informative[-1].split()) if informative else "it left no message"
    for words, fix in FIXES.items():
        if any(word in last for word in words):
            return f"{last}: {fix.format(home=home(), database=database())}"
    return last
