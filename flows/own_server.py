"""A Prefect server of a command's own: one after the other is begun in a home, and one that is killed begins again."""

import fcntl
import subprocess
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from flows.processes import prefect_process
from pipeline.errors import InputError
from pipeline.processes import environment
from tasks.api import healthy

Server = subprocess.Popen[bytes]

START_SECONDS = 120
LOOK_SECONDS = 0.2
BEGINNINGS = 5
"""A server that was killed so many times is not begun again."""
LOCK = "cocondenser.lock"
"""In Prefect's home: held while a server makes or migrates its database, for two at once damage it."""
SAID = 200
"""Lines of a server's output that are kept for its reason."""
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
UNTELLING = ("Application startup failed", "Background on this error", "Server stopped!", "Waiting for application")


def expect_no_home() -> None:
    """Prefect warns of a home that it cannot make; `own_server` says so in one line, where it matters."""
    warnings.filterwarnings("ignore", message="Failed to create the Prefect home")


@contextmanager
def own_server(port: int, more: Mapping[str, str] = {}, folder: Path | None = None) -> Iterator[str]:
    """Prefect's server at `port`, with the variables `more`: yields its API's address once it answers.

    One that is killed begins again at the same address, so that a run goes on. Raises InputError with the server's own
    reason where it does not start.
    """
    expect_no_home()
    api = f"http://127.0.0.1:{port}/api"
    variables = {**environment(), **more, "PREFECT_API_URL": api}
    serve = ["server", "start", "--host", "127.0.0.1", "--port", str(port)]
    said: deque[str] = deque(maxlen=SAID)
    begin = partial(prefect_process, serve, variables, folder, said)
    with ExitStack() as running:
        with first_start(home()):
            server = running.enter_context(begin())
            import prefect.flows  # noqa: F401  (takes seconds, in which the server starts)

            wait_until_healthy(api, server, said)
        over = threading.Event()
        keeper = threading.Thread(target=keep, args=(server, begin, over), daemon=True)
        keeper.start()
        try:
            yield api
        finally:
            over.set()
            keeper.join()


def wait_until_healthy(api: str, server: Server, said: Iterable[str]) -> None:
    """Raises InputError, with what the server `said`, where it ends or is silent for START_SECONDS."""
    end = time.monotonic() + START_SECONDS
    while not healthy(api):
        if server.poll() is not None or time.monotonic() > end:
            time.sleep(LOOK_SECONDS)  # its last words are on their way
            raise InputError(f"Prefect's server does not start: {reason(said)}")
        time.sleep(LOOK_SECONDS)


def keep(server: Server, begin: Callable[[], AbstractContextManager[Server]], over: threading.Event) -> None:
    """Begins the server again whenever it has ended, until `over`.

    In one thread, for a process ends with the thread that began it.
    """
    killed = ended(server, over)
    for _ in range(BEGINNINGS):
        if not killed:
            return
        with begin() as again:
            killed = ended(again, over)


def ended(server: Server, over: threading.Event) -> bool:
    """Waits until the server has ended; not beyond `over`."""
    while server.poll() is None:
        if over.wait(LOOK_SECONDS):
            return False
    return not over.is_set()


def home() -> Path:
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


def reason(said: Iterable[str]) -> str:
    """The server's own last line that tells why, and what to do about it."""
    telling = [line for line in said if line.strip() and not any(word in line for word in UNTELLING)]
    last = " ".join(telling[-1].split()) if telling else "it left no message"
    for words, fix in FIXES.items():
        if any(word in last for word in words):
            return f"{last}: {fix.format(home=home(), database=database())}"
    return last
