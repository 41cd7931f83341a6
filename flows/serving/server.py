"""A run's answers as a page and as JSON over HTTP, for this machine alone."""

import asyncio
import base64
import hashlib
import json
import re
import socket
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from flows.serving.answers import Answer, as_json
from flows.serving.ask import ask, checked, notices
from flows.serving.batching import Batches, Busy
from flows.serving.engine import By
from flows.serving.question import Opened, Question
from flows.serving.rankings import Mask
from pipeline.bm25.bm25 import Ended
from pipeline.errors import InputError
from pipeline.templates import styles
from tasks.printable import json_text

PAGE = Path(__file__).parent / "page"
HOSTS = re.compile(rb"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")
"""Names that this server goes by. Another name that leads here is that of a page that would read the answers."""
BODY = 1 << 18
"""Bytes of a request: a question and a filter of the longest kind, escaped."""
UNREAD = 1 << 26
"""Bytes beyond these that are taken before a request is refused for its length."""
LINGER_SECONDS = 2
"""In which what is left of a refused request may come."""
ENDING_SECONDS = 5
"""For answers that are under way when the server is told to end."""
READING_SECONDS = 3
"""For a client to read the answers that it has: less than ENDING_SECONDS, after which uvicorn complains of it."""
DOCUMENTS = 10
"""Shown where a request does not say how many."""
WAITING_CONDITIONS = 64
"""Conditions that may wait; more are refused."""

Wanted = tuple[Question, Mask]
"""A question, and the passages that its condition is true of."""


class Asked(BaseModel):
    """A request, by its names in the address or in JSON."""

    model_config = ConfigDict(extra="forbid")

    q: str
    k: int = DOCUMENTS
    by: By | None = None
    where: str | None = None


def serve(run: Opened, place: socket.socket) -> None:
    """Answers on a bound socket until SIGINT or SIGTERM, which it raises as KeyboardInterrupt."""
    masks = conditions(run)
    batches: Batches[Wanted, list[Answer]] = Batches(lambda wanted: answers(run, wanted))
    settings = uvicorn.Config(
        application(run, batches, masks),
        http=Protocol,
        ws="none",  # who asks for an upgrade is answered in HTTP
        log_level="error",
        access_log=False,
        use_colors=False,  # its escape sequences would be shown as symbols
        timeout_graceful_shutdown=ENDING_SECONDS,
    )
    try:
        uvicorn.Server(settings).run(sockets=[place])
    finally:
        run.where.interrupt()
        masks.close()
        batches.close()


def conditions(run: Opened) -> Batches[str, Mask]:
    """Masks of conditions, one after the other in a thread of its own: a slow one holds up other conditions alone."""
    return Batches(lambda wheres: [run.where.rows(where) for where in wheres], WAITING_CONDITIONS, together=1)


def answers(run: Opened, wanted: Sequence[Wanted]) -> Sequence[list[Answer] | Exception]:
    return ask(run, [question for question, _ in wanted], {question.where: mask for question, mask in wanted})


def application(run: Opened, batches: Batches[Wanted, list[Answer]], masks: Batches[str, Mask]) -> FastAPI:
    """The page at /, its JSON below /api."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    page, policy = read_page()
    shown = about(run)

    async def answered(asked: Asked) -> Response:
        begun = time.perf_counter()
        question = checked(run, Question(asked.q, asked.k, asked.by or run.engine.how, asked.where))
        mask = None
        if question.where is not None and (mask := run.where.kept(question.where)) is None:
            mask = await masks.answer(question.where)
        found = await batches.answer((question, mask))
        took = 1000 * (time.perf_counter() - begun)
        return as_line(as_json(run.engine, question, found, took, notices(run, question)))

    @app.get("/api/search")
    async def search(asked: Annotated[Asked, Query()], request: Request) -> Response:
        for name in Asked.model_fields:
            if len(request.query_params.getlist(name)) > 1:
                raise InputError(f"{name}: given twice")
        return await answered(asked)

    @app.post("/api/search")
    async def search_body(request: Request) -> Response:
        try:
            return await answered(Asked.model_validate_json(await body(request)))
        except ValidationError as error:
            raise InputError(first_error(error.errors())) from None

    @app.get("/api")
    async def about_run() -> Response:
        return as_line(shown)

    @app.get("/")
    async def index() -> Response:
        headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> Response:
        text = f"{request.url.path}: no such page" if error.status_code == 404 else str(error.detail)
        answer = refusal(text, error.status_code)
        answer.headers.update(error.headers or {})  # what a place allows instead
        return answer

    @app.exception_handler(RequestValidationError)
    async def of_form(request: Request, error: RequestValidationError) -> Response:
        return refusal(first_error(error.errors()), 400)

    @app.exception_handler(InputError)
    async def of_input(request: Request, error: InputError) -> Response:
        return refusal(str(error), 400)

    @app.exception_handler(Exception)
    async def of_fault(request: Request, error: Exception) -> Response:
        answer = refusal(f"the server failed: {type(error).__name__}", 500)  # more is for the log, uvicorn's
        answer.headers["connection"] = "close"  # as it does once it has written there
        return answer

    @app.exception_handler(ClientDisconnect)
    async def of_client(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # nobody reads it

    @app.exception_handler(Busy)
    @app.exception_handler(Ended)
    async def of_parts(request: Request, error: Exception) -> Response:
        return refusal(str(error), 503)

    app.add_middleware(Guard)
    return app


def about(run: Opened) -> dict[str, Any]:
    engine, recipe = run.engine, run.engine.recipe
    return {
        "recipe": engine.run.name,
        "title": recipe.get("title") or engine.run.name,
        "created": engine.run.created,
        "by": engine.how,
        "ways": {way: engine.label(way) for way in run.ways},
        "not_tuned": engine.not_tuned("fusion"),
        "passages": run.passages.count,
        "k": min(DOCUMENTS, run.passages.count),
        "columns": run.where.columns,
        "example": recipe.get("example_question"),
    }


def as_line(value: Any, status: int = 200) -> Response:
    return Response(json_text(value) + "\n", status, media_type="application/json")


def refusal(text: str, status: int) -> Response:
    return as_line({"error": " ".join(text.split())}, status)


def first_error(errors: Any) -> str:
    """Of pydantic's: the field and what is wrong with it."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
    known = f" (known are {', '.join(Asked.model_fields)})" if first["type"] == "extra_forbidden" else ""
    return f"{place or 'request'}: {first['msg']}{known}"


async def body(request: Request) -> bytes:
    """The request's body. Raises HTTPException 413 for one that is too long."""
    read, size = bytearray(), 0
    async for chunk in request.stream():  # to its end: a client that still sends would not see the answer
        size += len(chunk)
        if size <= BODY:
            read += chunk
        elif size > UNREAD:
            break
    if size > BODY:
        raise HTTPException(413, f"the request is longer than {BODY:,} bytes")
    return bytes(read)


def read_page() -> tuple[str, str]:
    """(the page, its styles and script within; the policy that allows these and nothing else)."""
    parts = {name: (PAGE / name).read_text("utf-8") for name in ("search.css", "search.js")}
    parts["search.css"] = str(styles("palette.css")) + parts["search.css"]
    page = (PAGE / "search.html").read_text("utf-8")
    for name, text in parts.items():
        page = page.replace(f"{{{{ {name} }}}}", text)
    style, script = (
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'" for text in parts.values()
    )
    policy = {
        "default-src": "'none'",
        "style-src": style,
        "script-src": script,
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return page, "; ".join(f"{name} {value}" for name, value in policy.items())


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard:
    """Refuses requests that name another host, that another site's page makes, or that outlast the server.

    HEAD is answered as GET; of that answer uvicorn sends no body.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if refused := reason(scope["method"], scope["headers"]):
            return await refusal(refused, 403)(scope, receive, send)
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        try:
            await self.app(scope, receive, send)
        except asyncio.CancelledError:  # by uvicorn, which would write a stack trace
            await refusal("the server has ended", 503)(scope, receive, send)


def reason(method: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Why a request may not be answered: a browser sends it for another site's page, or took that for this server."""
    named: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for name, value in headers:
        named[name].add(value.lower())
    hosts = sorted(named[b"host"])
    if len(hosts) != 1 or not HOSTS.fullmatch(hosts[0]):
        shown = b", ".join(hosts).decode("latin-1")[:80]
        return f"host {shown!r}: only 127.0.0.1 and localhost are answered"
    elsewhere = named[b"sec-fetch-site"] & {b"cross-site", b"same-site"}  # the same site is any port of this machine
    posted = method == "POST" and named[b"origin"] - {b"http://" + hosts[0]}
    if posted or (elsewhere and named[b"sec-fetch-mode"] != {b"navigate"}):
        return "only this server's own page may ask it"
    return None


class Protocol(HttpToolsProtocol):
    """HTTP whose own refusals, such as of too long an address, are JSON too, and whose end waits for no client."""

    refused = False
    under_way: tuple[RequestResponseCycle, ...] = ()
    """Requests of the connection that wait for their answers. uvicorn itself knows the last one alone, and would write
    the answers to earlier ones into a connection that is closed."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.under_way = (*(one for one in self.under_way if not one.response_complete), self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.drop_answers()

    def drop_answers(self) -> None:
        """None is written any more."""
        for one in self.under_way:
            one.disconnected = True
            one.message_event.set()

    def data_received(self, data: bytes) -> None:
        if not self.refused:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        text = json.dumps({"error": "no HTTP request, or one with too long an address"}).encode() + b"\n"
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n"
        half_answered = any(one.response_started and not one.response_complete for one in self.under_way)
        self.drop_answers()  # nobody who sends this waits for them
        self.refused = True
        if half_answered:
            self.transport.close()
            return
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + text)
        # Closed before all has come, the connection would be reset, and the answer lost.
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def shutdown(self) -> None:
        super().shutdown()
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_complete:
            self.transport.close()  # the request is yet to come
        self.loop.call_later(READING_SECONDS, self.give_up)

    def give_up(self) -> None:
        if self.flow.write_paused:  # the client reads no answers
            self.transport.abort()
