"""The Prefect server that a command starts for itself.

The first starts in one PREFECT_HOME wait for each other. A killed server is restarted.
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
"""Restarts of a killed server. After these the run ends."""
LOCK = "cocondenser.lock"
"""Lock file in Prefect's home. A server holds it while it creates or migrates its database: two at once damage it."""
OUTPUT_LINES = 200
"""Number of the last lines of a server's output, which show why it failed."""
GIVE_UP = signal.SIGUSR1
"""Signal that interrupts the block. Not SIGINT: a run that a script starts with & ignores it."""
GIVEN_UP = f"Prefect's server has ended {MAX_RESTARTS + 1} times and is not restarted; the same command resumes the run"
ELSEWHERE = "set PREFECT_HOME=DIR, a different folder that can be written"
FIXES = {
    ("Can't locate revision",): f"its database {{database}} belongs to another version of Prefect; {ELSEWHERE}",
    ("not a database", "malformed", "database corruption"): (
        f"its database {{database}} is damaged: move it away, or {ELSEWHERE}"
    ),
    ("disk is full", "No space left", "Disk quota"): f"the disk of {{home}} is full: free some space, or {ELSEWHERE}",
    ("unable to open database", "readonly", "Read-only", "Permission denied", "Not a directory", "File exists"): (
        f"{{home}} cannot be written; {ELSEWHERE}"
    ),
}
"""{words in a server's error: what to do}."""
UNINFORMATIVE = ("Application startup failed", "Background on this error", "Server stopped!", "Waiting for application")


def expect_no_home() -> None:
    """Hides Prefect's warning about a home that it cannot create: `own_server` raises an error for it."""
    warnings.filterwarnings("ignore", message="Failed to create the Prefect home")


@contextmanager
def own_server(port: int, settings: Mapping[str, str] = {}, folder: Path | None = None) -> Iterator[str]:
    """Starts Prefect's server at `port` with the environment variables `settings`; yields its API's address.

    A killed server is restarted at the same address, and the run continues. After MAX_RESTARTS the block is
    interrupted with InputError. Raises InputError with the server's own message if it does not start.
    """
    expect_no_home()
    api = f"http://127.0.0.1:{port}/api"
    variables = {**environment(), **settings, "PREFECT_API_URL": api}
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
        with first_start(prefect_home()):
            server = running.enter_context(start())
            import prefect.flows  # noqa: F401  (takes seconds, while the server starts)

            wait_until_healthy(api, server, output)
        keeper = threading.Thread(target=keep_running, args=(server, start, over, give_up), daemon=True)
        try:
            keeper.start()
            yield api
        except BaseException:
            if given_up.is_set():  # any error: its cause is the missing server
                raise InputError(GIVEN_UP) from None
            raise
        finally:
            over.set()
            keeper.join()


def wait_until_healthy(api: str, server: Server, output: Collection[str]) -> None:
    """Raises InputError if the server ends, with a reason from `output`, or does not answer within START_SECONDS."""
    end = time.monotonic() + START_SECONDS
    while not healthy(api):
        if server.poll() is not None:
            time.sleep(LOOK_SECONDS)  # its last lines may still arrive
            raise InputError(f"Prefect's server does not start: {failure_reason(tuple(output))}")
        if time.monotonic() > end:
            busy = "is this machine busy? Run the command again"
            raise InputError(f"Prefect's server does not answer within {START_SECONDS} s: {busy}")
        time.sleep(LOOK_SECONDS)


def keep_running(
    server: Server,
    start: Callable[[], AbstractContextManager[Server]],
    over: threading.Event,
    give_up: Callable[[], None],
) -> None:
    """Restarts the server each time it ends, until `over`. Calls `give_up` after MAX_RESTARTS.

    All restarts run in one thread: a child process ends with the thread that started it.
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


def prefect_home() -> Path:
    """Prefect's folder for its database and its settings."""
    from prefect.settings import PREFECT_HOME

    return Path(PREFECT_HOME.value())


def database_location() -> str:
    """The database of Prefect's server: a file, or an address without its password."""
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL
    from sqlalchemy.engine import make_url

    setting = PREFECT_API_DATABASE_CONNECTION_URL.value()
    url = make_url(setting.get_secret_value() if hasattr(setting, "get_secret_value") else str(setting))
    local = url.get_backend_name() == "sqlite" and url.database
    return str(local or url.render_as_string(hide_password=True))


def database_state() -> str:
    """Prefect's version and its database. While it does not change, no migration is needed."""
    from prefect import __version__

    try:
        return f"{__version__} {database_location()} {Path(database_location()).stat().st_ino}"
    except OSError:
        return ""


@contextmanager
def first_start(folder: Path) -> Iterator[None]:
    """Waits while another process creates or migrates the database in `folder`; others wait for this process.

    Later starts do not wait. Raises InputError if the folder is not writable.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise InputError(f"PREFECT_HOME: {folder} cannot be written ({error.strerror}); {ELSEWHERE}") from None
    with lock:
        if recorded_state(lock) == database_state() != "":
            yield
            return
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        if recorded_state(lock) != database_state():
            lock.truncate(0)
            lock.write(database_state())


def recorded_state(lock: IO[str]) -> str:
    """The state that the last first start has written into its lock file."""
    lock.seek(0)
    return lock.read()


def failure_reason(output: Iterable[str]) -> str:
    """The last informative line of the server, with advice if the error is known."""
    informative = [line for line in output if line.strip() and not any(word in line for word in UNINFORMATIVE)]
    last = " ".join(informative[-1].split()) if informative else "it left no message"
    for words, fix in FIXES.items():
        if any(word in last for word in words):
            return f"{last}: {fix.format(home=prefect_home(), database=database_location())}"
    return last
