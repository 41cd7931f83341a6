"""Log lines of the library, such as the choice of GPUs, for the log and the terminal of a run."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LIBRARY = logging.getLogger("pipeline")
LIBRARY.setLevel(logging.INFO)
LOCK = threading.Lock()
"""Held while the handlers change."""


@contextmanager
def log_lines(say: Callable[[str], None]) -> Iterator[None]:
    """Passes each line that this thread logs in the library, from level INFO on, to `say`.

    Nodes run at the same time in threads; a stage logs in the thread that calls its function.
    """
    thread = threading.get_ident()

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == thread:
                say(record.getMessage())

    handler = Lines()
    change(LIBRARY.addHandler, handler)
    try:
        yield
    finally:
        change(LIBRARY.removeHandler, handler)


def change(function: Callable[[logging.Handler], None], handler: logging.Handler) -> None:
    """Adds or removes a handler. While there is one, Prefect's root handler does not show the lines a second time."""
    with LOCK:
        function(handler)
        LIBRARY.propagate = not LIBRARY.handlers
