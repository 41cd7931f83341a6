"""Replaces an open run by a newer one while questions are answered."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from flows.serving.question import Session
from flows.serving.service import CurrentService, Service

SECONDS = 5.0
"""Time between two looks for a newer run."""
LONGEST = 600.0
"""Maximum time between two attempts to open a run that cannot be opened: each may take minutes and much memory."""


@dataclass(frozen=True)
class Follow:
    """How a server finds newer runs."""

    find: Callable[[Session], AbstractContextManager[Session] | None]
    """Given the session that answers now, opens that of a newer run; None: there is none."""
    first: ExitStack
    """Closes the session with which the server starts, and its threads."""
    on_change: Callable[[Session], None]
    on_problem: Callable[[str], None]
    """Gets one line if a newer run cannot be opened, once as long as the problem is the same, or delays the end."""
    seconds: float = SECONDS


def follow_runs(
    follow: Follow,
    current: CurrentService,
    serving: Callable[[Session], AbstractContextManager[Service]],
    ended: threading.Event,
    loading: threading.Event,
) -> None:
    """Opens newer runs until `ended`; `loading` is set meanwhile. The pause doubles after each failure.

    Runs in a thread of its own, which must live as long as the server: Java ends with the thread that starts it.
    """
    problem, pause = "", follow.seconds
    open_now = follow.first
    try:
        while not ended.wait(pause):
            try:
                opening = follow.find(current.service.session)
                if opening is None:
                    problem, pause = "", follow.seconds
                    continue
                loading.set()
                with ExitStack() as opened:
                    session = opened.enter_context(opening)
                    service = opened.enter_context(serving(session))
                    if ended.is_set():
                        break
                    opened_next = opened.pop_all()
            except Exception as error:  # any error: the run that is open answers on
                line = " ".join((str(error) or type(error).__name__).split())
                if line != problem:
                    log_errors(follow.on_problem, line)
                problem, pause = line, min(2 * pause, LONGEST)
                continue
            finally:
                loading.clear()
            before, open_now = open_now, opened_next
            problem, pause = "", follow.seconds
            current.replace(service)
            log_errors(before.close)
            log_errors(follow.on_change, session)
    finally:
        log_errors(open_now.close)


def log_errors(call: Callable[..., Any], *values: Any) -> None:
    """Calls `call(*values)` and logs its error, which would end the thread."""
    try:
        call(*values)
    except Exception:
        with suppress(Exception):  # standard error may be closed
            logging.getLogger(__name__).exception("while newer runs are followed")


@contextmanager
def following(
    follow: Follow, current: CurrentService, serving: Callable[[Session], AbstractContextManager[Service]]
) -> Iterator[None]:
    """Follows newer runs in a thread while the block runs, then waits for it: what loads cannot be stopped."""
    ended, loading = threading.Event(), threading.Event()
    thread = threading.Thread(target=follow_runs, args=(follow, current, serving, ended, loading))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        if loading.is_set():
            log_errors(follow.on_problem, "the server ends once the newer run is loaded")
        thread.join()
