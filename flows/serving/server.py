"""A run's answers as a page and as JSON over HTTP, for this machine alone."""

import base64
import hashlib
import logging
import socket
import time
from collections.abc import Sequence
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
HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names that this server goes by. Another name that leads here is that of a page that would read the answers."""
BODY = 1 << 18
"""Bytes of a request: a question and a filter of the longest kind, escaped."""
ENDING_SECONDS = 5
"""For answers that are under way when the server ends, and for their clients to read them."""
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "loggers": {"uvicorn": {"level": "CRITICAL"}, "asyncio": {"level": "ERROR"}},
}
"""Clients that send no HTTP, read no answers or outlast the server leave no trace; `of_fault` logs what fails here."""
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
        ws="none",  # who asks for an upgrade is answered in HTTP
        log_config=LOGGING,
        access_log=False,
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
            return await answered(Asked.model_validate_json(await request.body()))
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
        logging.getLogger(__name__).error("%s", request.url.path, exc_info=error)
        answer = refusal(f"the server failed: {type(error).__name__}", 500)
        answer.headers["connection"] = "close"  # uvicorn closes it: Starlette raises the error again
        return answer

    @app.exception_handler(ClientDisconnect)
    async def of_client(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=400)  # nobody reads it

    @app.exception_handler(Busy)
    @app.exception_handler(Ended)
    async def of_parts(request: Request, error: Exception) -> Response:
        return refusal(str(error), 503)

    app.add_middleware(Guard)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=BODY)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)
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


class Guard:
    """Refuses requests that another site's page makes; answers HEAD as GET, of which uvicorn sends no body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http":
            if of_another_page(scope["method"], Headers(scope=scope)):
                app = refusal("only this server's own page may ask it", 403)
            if scope["method"] == "HEAD":
                scope = {**scope, "method": "GET"}
        await app(scope, receive, send)


def of_another_page(method: str, headers: Headers) -> bool:
    """Whether a browser sends the request for a page of another site, which may read or load this server's answers."""
    own = f"http://{headers['host']}"
    elsewhere = headers.get("sec-fetch-site") in {"cross-site", "same-site"}  # same-site: any port of this machine
    posted = method == "POST" and headers.get("origin", own) != own
    return posted or (elsewhere and headers.get("sec-fetch-mode") != "navigate")
