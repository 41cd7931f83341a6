"""A server that follows newer runs: no request is lost, and what is unused is closed."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from serving import computed, make_run, served

from flows.serving import server
from flows.serving.batching import Batches
from flows.serving.follow import Follow
from flows.serving.server import condition_batches
from flows.serving.service import Current, Service
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
    current = Current(old)
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
    monkeypatch.setattr(server, "ask", lambda run, questions, known: computed([(one, None) for one in questions]))
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
