"""A server that follows newer runs: no request is lost, and what is unused is closed."""

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from serving import computed, make_run, served

from flows.serving import follow as follow_module
from flows.serving import service
from flows.serving.batching import Batches
from flows.serving.follow import Follow, follow_runs, log_errors
from flows.serving.metrics import ServerMetrics
from flows.serving.service import CurrentService, Service, condition_batches, open_service
from pipeline.errors import InputError


def make_service() -> Service:
    run = make_run()
    return Service(run, Batches(computed), condition_batches(run))


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_service_is_replaced_once_its_last_request_is_answered() -> None:
    old, new = make_service(), make_service()
    current = CurrentService(old)
    with ThreadPoolExecutor(1) as pool:
        with current.answering() as first, current.answering():
            replacing = pool.submit(current.replace, new)
            wait_for(lambda: current.service is new)
            with current.answering() as second:
                assert (first, second) == (old, new)
            assert not replacing.done()
        replacing.result(30)
    assert (old.answering, new.answering) == (0, 0)


class Runs:
    """Newer sessions for a server, and what happens to them."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.closed: list[str] = []
        self.changes: list[str] = []
        self.problems: list[str] = []
        self.first = ExitStack()
        self.first.callback(self.closed.append, "first")

    def find(self, now: Any) -> Any:
        return self.opened(self.waiting.pop(0)) if self.waiting else None

    @contextmanager
    def opened(self, found: Any) -> Iterator[Any]:
        if isinstance(found, Exception):
            raise found
        yield found
        self.closed.append(found.engine.run.created)

    def follow(self) -> Follow:
        return Follow(
            self.find, self.first, lambda run: self.changes.append(run.engine.run.created), self.problems.append, 0.01
        )


def newer(created: str) -> Any:
    run = make_run()
    run.engine.run.created = created
    return run


@pytest.fixture
def runs(monkeypatch) -> Runs:
    monkeypatch.setattr(service, "ask", lambda run, questions, known: computed([(one, None) for one in questions]))
    return Runs()


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.load(answer)


def test_a_newer_run_answers_without_a_lost_request(runs) -> None:
    def visit(port: int) -> list[int]:
        over = threading.Event()
        counts = [0] * 4

        def ask(client: int) -> None:
            while not over.is_set():
                assert get(port, "/api/search?q=zebra&k=1")["answers"]
                counts[client] += 1

        with ThreadPoolExecutor(len(counts)) as pool:
            clients = [pool.submit(ask, n) for n in range(len(counts))]
            try:
                assert get(port, "/api")["created"] == "2026-01-01"
                for day in ("2026-01-02", "2026-01-03"):
                    runs.waiting.append(newer(day))
                    wait_for(lambda day=day: runs.changes and runs.changes[-1] == day)
                    assert get(port, "/api")["created"] == day
            finally:
                over.set()
            for client in clients:
                client.result()
        return counts

    assert min(served(visit, follow=runs.follow())) > 0
    assert runs.closed == ["first", "2026-01-02", "2026-01-03"]


def test_a_run_that_cannot_be_opened_is_one_line_and_the_server_answers_on(runs) -> None:
    def visit(port: int) -> None:
        runs.waiting += [InputError("x: damaged"), InputError("x: damaged"), MemoryError()]
        wait_for(lambda: len(runs.problems) == 2)
        assert get(port, "/api")["created"] == "2026-01-01"
        runs.waiting.append(newer("2026-01-04"))
        wait_for(lambda: runs.changes)
        assert get(port, "/api")["created"] == "2026-01-04"

    served(visit, follow=runs.follow())
    assert runs.problems == ["x: damaged", "MemoryError"]
    assert runs.closed == ["first", "2026-01-04"]


def test_a_slow_condition_of_the_older_run_is_answered_by_it(runs) -> None:
    def visit(port: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(get, port, "/api/search?q=zebra&k=1&where=slow")
            wait_for(lambda: first_conditions.evaluated)
            runs.waiting.append(newer("2026-01-05"))
            wait_for(lambda: get(port, "/api")["created"] == "2026-01-05")
            assert not runs.changes  # the older one is still used
            assert not slow.done()
            first_conditions.going.set()
            assert slow.result(30)["answers"]
            wait_for(lambda: runs.changes)

    follow = runs.follow()
    session = make_run()
    first_conditions = session.where
    served(visit, follow=follow, session=session)
    assert runs.closed == ["first", "2026-01-05"]


def fail(*values: Any) -> None:
    raise OSError("no space left")


def test_an_error_of_the_closed_run_or_of_a_line_does_not_end_the_following(runs, caplog) -> None:
    def visit(port: int) -> None:
        for found in (newer("2026-01-06"), InputError("x: damaged"), newer("2026-01-07")):
            runs.waiting.append(found)
            wait_for(lambda: not runs.waiting)
        wait_for(lambda: get(port, "/api")["created"] == "2026-01-07")

    runs.first.callback(fail)
    served(visit, follow=Follow(runs.find, runs.first, fail, fail, 0.01))
    assert runs.closed == ["first", "2026-01-06", "2026-01-07"]
    assert caplog.text.count("OSError: no space left") == 4


def test_an_error_that_cannot_be_logged_is_no_error(monkeypatch) -> None:
    class Closed(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ValueError("I/O operation on closed file")

    monkeypatch.setattr(logging.getLogger(follow_module.__name__), "handlers", [Closed()])
    log_errors(fail)


class Ticks:
    """An event that is set after some waits, and how long each was to be."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seconds: list[float] = []

    def is_set(self) -> bool:
        return len(self.seconds) > self.count

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return self.is_set()


def test_a_run_that_cannot_be_opened_is_loaded_again_after_growing_pauses(runs, monkeypatch) -> None:
    monkeypatch.setattr(follow_module, "LONGEST", 0.06)
    ticks: Any = Ticks(6)
    runs.waiting += [*[MemoryError()] * 4, newer("2026-01-08")]
    with ExitStack() as first:
        current = CurrentService(first.enter_context(open_service(make_run(), ServerMetrics())))
        runs.first.push(first.pop_all())
        serving = partial(open_service, metrics=ServerMetrics())
        follow_runs(runs.follow(), current, serving, ticks, threading.Event())
    assert ticks.seconds == [0.01, 0.02, 0.04, 0.06, 0.06, 0.01, 0.01]
    assert (runs.problems, runs.changes) == (["MemoryError"], ["2026-01-08"])


def test_an_end_while_a_newer_run_loads_says_so_and_does_not_switch_to_it(runs, monkeypatch) -> None:
    loads, going = threading.Event(), threading.Event()

    @contextmanager
    def opened(found: Any) -> Iterator[Any]:
        loads.set()
        assert going.wait(30)
        yield found
        runs.closed.append(found.engine.run.created)

    def say(line: str) -> None:
        runs.problems.append(line)
        going.set()  # without the line it would load for ever

    monkeypatch.setattr(runs, "opened", opened)
    runs.waiting.append(newer("2026-01-09"))
    follow = Follow(runs.find, runs.first, lambda run: runs.changes.append("changed"), say, 0.01)
    served(lambda port: loads.wait(30), follow=follow)
    assert runs.problems == ["the server ends once the newer run is loaded"]
    assert (runs.changes, runs.closed) == ([], ["2026-01-09", "first"])
