"""Answers questions over HTTP, as a page and as JSON, for this machine only."""

import base64
import hashlib
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from flows.serving.answers import Answer, answers_as_json
from flows.serving.ask import ask, check_question, question_notices
from flows.serving.batching import Batches, Busy
from flows.serving.engine import By
from flows.serving.question import Question, Session
from flows.serving.rankings import Mask
from pipeline.bm25.java_child import JavaFailed
from pipeline.errors import InputError
from pipeline.templates import styles
from tasks.printable import json_text

PAGE = Path(__file__).parent / "page"
HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Accepted host names. A foreign page that points its own name to this machine could otherwise read the answers."""
BODY = 1 << 18
"""Maximum bytes of a request: the longest question and condition, escaped."""
ENDING_SECONDS = 5
"""Time for unfinished answers, and for clients to read them, when the server ends."""
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "loggers": {"uvicorn": {"level": "CRITICAL"}, "asyncio": {"level": "ERROR"}},
}
"""Clients that send no HTTP, read no answers or stay to the end are not logged. `on_fault` logs the server's errors."""
DOCUMENTS = 10
"""Number of documents if a request does not say it."""
WAITING_CONDITIONS = 64
"""Maximum number of conditions that wait; more are refused."""

MaskedQuestion = tuple[Question, Mask]
"""A question, and the passages that its condition allows."""


class SearchRequest(BaseModel):
    """A request; the fields have the same names in the address and in JSON."""

    model_config = ConfigDict(extra="forbid")

    q: str
    k: int = DOCUMENTS
    by: By | None = None
    where: str | None = None


def serve(session: Session, listener: socket.socket, on_ready: Callable[[], None] = lambda: None) -> None:
    """Answers on a listening socket until SIGINT or SIGTERM. Calls `on_ready` once the end by a signal is clean.

    Call it in the main thread.
    """
    masks = condition_batches(session)
    batches: Batches[MaskedQuestion, list[Answer]] = Batches(lambda questions: answer_batch(session, questions))
    settings = uvicorn.Config(
        application(session, batches, masks),
        ws="none",  # a request for an upgrade gets an answer in HTTP
        log_config=LOGGING,
        access_log=False,
        timeout_graceful_shutdown=ENDING_SECONDS,
    )
    server = uvicorn.Server(settings)
    with ended_by_signals(server):
        on_ready()
        try:
            server.run(sockets=[listener])
        finally:
            session.where.interrupt()
            masks.close()
            batches.close()


@contextmanager
def ended_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """SIGINT and SIGTERM end the server cleanly, also while it starts.

    uvicorn handles signals only once its event loop runs. A KeyboardInterrupt before that would print a traceback.
    """
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def condition_batches(session: Session) -> Batches[str, Mask]:
    """Masks of conditions, one at a time in their own thread: a slow condition delays only other conditions."""
    return Batches(
        lambda conditions: [session.where.rows(where) for where in conditions], WAITING_CONDITIONS, together=1
    )


def answer_batch(session: Session, questions: Sequence[MaskedQuestion]) -> Sequence[list[Answer] | Exception]:
    masks = {question.where: mask for question, mask in questions}
    return ask(session, [question for question, _ in questions], masks)


def application(session: Session, batches: Batches[MaskedQuestion, list[Answer]], masks: Batches[str, Mask]) -> FastAPI:
    """The page at /, its JSON below /api."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    page, policy = read_page()
    description = session_description(session)

    async def answer(request: SearchRequest) -> Response:
        started = time.perf_counter()
        requested = Question(request.q, request.k, request.by or session.engine.by, request.where)
        question = check_question(session, requested)
        mask = None
        if question.where is not None and (mask := session.where.kept(question.where)) is None:
            mask = await masks.answer(question.where)
        answers = await batches.answer((question, mask))
        milliseconds = 1000 * (time.perf_counter() - started)
        notices = question_notices(session, question)
        return json_line(answers_as_json(session.engine, question, answers, milliseconds, notices))

    @app.get("/api/search")
    async def search(query: Annotated[SearchRequest, Query()], request: Request) -> Response:
        for name in SearchRequest.model_fields:
            if len(request.query_params.getlist(name)) > 1:
                raise InputError(f"{name}: appears twice")
        return await answer(query)

    @app.post("/api/search")
    async def search_body(request: Request) -> Response:
        try:
            return await answer(SearchRequest.model_validate_json(await request.body()))
        except ValidationError as error:
            raise InputError(first_error(error.errors())) from None

    @app.get("/api")
    async def describe() -> Response:
        return json_line(description)

    @app.get("/")
    async def index() -> Response:
        headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        text = f"{request.url.path}: no such page" if error.status_code == 404 else str(error.detail)
        response = refusal(text, error.status_code)
        response.headers.update(error.headers or {})  # such as the methods that are allowed
        return response

    @app.exception_handler(RequestValidationError)
    async def on_form(request: Request, error: RequestValidationError) -> Response:
        return refusal(first_error(error.errors()), 400)

    @app.exception_handler(InputError)
    async def on_input(request: Request, error: InputError) -> Response:
        return refusal(str(error), 400)

    @app.exception_handler(Exception)
    async def on_fault(request: Request, error: Exception) -> Response:
        logging.getLogger(__name__).error("%s", request.url.path, exc_info=error)
        response = refusal(f"the server failed: {type(error).__name__}", 500)
        response.headers["connection"] = "close"  # uvicorn closes it: Starlette raises the error again
        return response

    @app.exception_handler(ClientDisconnect)
    async def on_client(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # the client does not read it

    @app.exception_handler(Busy)
    @app.exception_handler(JavaFailed)
    async def on_parts(request: Request, error: Exception) -> Response:
        return refusal(str(error), 503)

    app.add_middleware(Guard)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=BODY)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)
    return app


def session_description(session: Session) -> dict[str, Any]:
    """What the page shows of the run before the first question."""
    engine, recipe = session.engine, session.engine.recipe
    return {
        "recipe": engine.run.name,
        "title": recipe.get("title") or engine.run.name,
        "created": engine.run.created,
        "by": engine.by,
        "ways": {way: engine.label(way) for way in session.ways},
        "fusion": engine.fusion("fusion"),
        "passages": session.passages.count,
        "k": min(DOCUMENTS, session.passages.count),
        "columns": session.where.columns,
        "example": recipe.get("example_question"),
    }


def json_line(value: Any, status: int = 200) -> Response:
    return Response(json_text(value) + "\n", status, media_type="application/json")


def refusal(text: str, status: int) -> Response:
    return json_line({"error": " ".join(text.split())}, status)


def first_error(errors: Any) -> str:
    """The first of pydantic's errors: the field and its problem."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
    known = f" (known are {', '.join(SearchRequest.model_fields)})" if first["type"] == "extra_forbidden" else ""
    return f"{place or 'request'}: {first['msg']}{known}"


def read_page() -> tuple[str, str]:
    """(the page with its styles and script, the content policy that allows only these)."""
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


class Guard:
    """Refuses requests of another site's page. Answers HEAD as GET; uvicorn then sends no body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http":
            if is_from_another_page(scope["method"], Headers(scope=scope)):
                app = refusal("only the page of this server may send requests", 403)
            if scope["method"] == "HEAD":
                scope = {**scope, "method": "GET"}
        await app(scope, receive, send)


def is_from_another_page(method: str, headers: Headers) -> bool:
    """Whether a browser sends the request for a page of another site, which must not read this server's answers."""
    own = f"http://{headers['host']}"
    elsewhere = headers.get("sec-fetch-site") in {"cross-site", "same-site"}  # same-site: any port of this machine
    posted = method == "POST" and headers.get("origin", own) != own
    return posted or (elsewhere and headers.get("sec-fetch-mode") != "navigate")
