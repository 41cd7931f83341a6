"""Current runs, whose artifacts `gc` keeps."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from math import inf

from artifacts import locks
from artifacts.errors import StoreError
from artifacts.store import Store

PREFIX = "run-"
TICK_SECONDS = 2.0
"""Resolution of the coarsest file system clock."""

_number = count()


@contextmanager
def protect_from_gc(store: Store, name: str) -> Iterator[None]:
    """Keeps `gc` from all that is built or used within the block, or until this process is killed."""
    path = store.lock_file(f"{PREFIX}{socket.gethostname()}-{os.getpid()}-{next(_number)}")
    with ExitStack() as held:
        with suppress(OSError, StoreError):  # in a read-only store this user removes nothing
            store.prepare()
            held.enter_context(locks.hold(path, locks.holder("run", name, {})))
            held.callback(path.unlink, missing_ok=True)
        yield


def began(store: Store) -> float:
    """Returns when the oldest current run began, by the clock of the file system; infinity if there is none.

    Everything that it has built or used has a later time of last use.
    """
    held = [path for path in store.locks.glob(f"{PREFIX}*.lock") if locks.is_held(path)]
    return min((path.stat().st_mtime - TICK_SECONDS for path in held if path.exists()), default=inf)
