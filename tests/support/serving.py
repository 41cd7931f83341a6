"""A run of no model, for a search server to serve. Used by several test files."""

import os
import signal
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

from flows.cli.serve import listening_socket
from flows.deploy.processes import free_port
from flows.serving import server
from flows.serving.access import Access
from flows.serving.answers import Answer
from flows.serving.engine import Engine
from flows.serving.follow import Follow
from flows.serving.question import Question
from pipeline.errors import InputError, JavaFailed

Result = TypeVar("Result")
SCRIPT = "<script>document.title = 'taken over'</script> <b>w1</b> & w2"


def computed(wanted: Sequence[tuple[Question, Any]]) -> list[list[Answer] | Exception]:
    failures = {
        "broken": JavaFailed("BM25 failed:\nkilled"),
        "fault": KeyError("secret"),
        "torch": RuntimeError("secret"),
        "bad": InputError("where: x"),
    }
    passage = {"doc_id": "d", "passage_id": "d#0", "title": "T", "text": SCRIPT, "excerpt": SCRIPT}
    found = Answer(
        rank=1,
        score=0.5,
        **passage,
        highlights=[(0, 1)],
        question="",
        metadata={"source": "numpy", "n": 2**53 + 1, "m": -(2**53)},
    )
    return [failures.get(question.text) or [found] for question, _ in wanted]


class Conditions:
    """`slow` takes until `going` is set; `kept` is known."""

    columns: ClassVar = {"source": "text"}

    def __init__(self) -> None:
        self.evaluated: list[str] = []
        self.going = threading.Event()

    def kept(self, where: str) -> str | None:
        return "mask" if where == "kept" else None

    def rows(self, where: str) -> str:
        self.evaluated.append(where)
        if where == "none":
            raise InputError("where: none")
        if where == "slow":
            assert self.going.wait(60)
        return f"mask of {where}"

    def interrupt(self) -> None:
        self.going.set()


class Reader:
    """An encoder that reads twelve letters of a question."""

    def cut(self, text: str) -> str:
        return f"cut, of {len(text)}: 12" if len(text) > 12 else ""


def make_run() -> Any:
    recipe = {"recipe": {"title": "A title", "example_question": None}}
    one: Any = SimpleNamespace(name="one", created="2026-01-01", details=recipe)
    engine = Engine(one, {"labels": {"bm25": "BM25"}, "dense": None, "fusion": None}, "fusion")
    return SimpleNamespace(
        engine=engine,
        passages=SimpleNamespace(count=7),
        where=Conditions(),
        dense=SimpleNamespace(encoder=Reader()),
        ways=["fusion", "dense"],
        reranking=None,
        problems={"bm25": "no index"},
    )


def served(
    client: Callable[[int], Result],
    access: Access | None = None,
    tls: ssl.SSLContext | None = None,
    follow: Follow | None = None,
    session: Any = None,
) -> Result:
    """What `client` (port) returns, while a real server answers on this port. Call it in the main thread."""

    def visit(port: int) -> Result:
        try:
            return client(port)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    with listening_socket(free_port()) as listener, ThreadPoolExecutor(1) as client_thread:
        visiting: list[Future[Result]] = []
        port = listener.getsockname()[1]

        def start() -> None:
            visiting.append(client_thread.submit(visit, port))

        server.serve(session or make_run(), listener, start, access=access, tls=tls, follow=follow)
        return visiting[0].result()
