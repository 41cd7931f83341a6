"""Replaces an open run by a newer one while questions are answered."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from flows.serving.question import Session
from flows.serving.service import Current, Service

SECONDS = 5.0
"""Time between two looks for a newer run."""


@dataclass(frozen=True)
class Follow:
    """How a server finds newer runs."""

    find: Callable[[Session], AbstractContextManager[Session] | None]
    """Given the session that answers now, opens that of a newer run; None: there is none."""
    first: ExitStack
    """Closes the session with which the server starts, and its threads."""
    on_change: Callable[[Session], None]
    on_problem: Callable[[str], None]
    """Gets one line if a newer run cannot be opened, once as long as the problem is the same."""
    seconds: float = SECONDS


def follow_runs(
    follow: Follow,
    current: Current,
    serving: Callable[[Session], AbstractContextManager[Service]],
    ended: threading.Event,
) -> None:
    """Opens newer runs until `ended`. Runs in a thread of its own, which must live as long as the server: Java ends
    with the thread that starts it.
    """
    problem = ""
    open_now = follow.first
    while not ended.wait(follow.seconds):
        try:
            opening = follow.find(current.service.session)
            if opening is None:
                continue
            with ExitStack() as opened:
                session = opened.enter_context(opening)
                service = opened.enter_context(serving(session))
                opened_next = opened.pop_all()
        except Exception as error:  # any error: the run that is open answers on
            line = " ".join((str(error) or type(error).__name__).split())
            if line != problem:
                follow.on_problem(line)
            problem = line
            continue
        current.replace(service)
        open_now.close()
        open_now, problem = opened_next, ""
        follow.on_change(session)
    open_now.close()


@contextmanager
def following(run: Callable[..., Any], *values: Any) -> Iterator[None]:
    """Runs `run(*values, ended)` in a thread while the block runs, then sets `ended` and waits for the thread."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(*values, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
