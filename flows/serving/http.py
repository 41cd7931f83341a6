"""A page and its JSON over HTTP: what the servers of `serve-search` and `judge` share."""

import base64
import hashlib
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from flows.serving.batching import Busy
from flows.serving.header_limit import LimitedHeaders
from pipeline.errors import InputError, JavaFailed
from pipeline.templates import styles
from tasks.printable import json_text

COMMON = Path(__file__).parent / "page"
"""Holds common.css and common.js, which begin the styles and the script of each page."""
HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Host names that are always accepted. A foreign page that points its own name to this machine could otherwise read
the answers."""
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


Form = TypeVar("Form", bound=BaseModel)


def run_server(
    app: FastAPI,
    listener: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Answers on a listening socket until SIGINT or SIGTERM. Calls `on_ready` once the end by a signal is clean.

    Call it in the main thread. `tls`: the server's certificate; None: HTTP without encryption.
    """
    settings = uvicorn.Config(
        app,
        http=LimitedHeaders,
        ws="none",  # a request for an upgrade gets an answer in HTTP
        log_config=LOGGING,
        access_log=False,
        timeout_graceful_shutdown=ENDING_SECONDS,
        ssl_context_factory=None if tls is None else lambda config, default: tls,
    )
    server = uvicorn.Server(settings)
    with ended_by_signals(server):
        on_ready()
        server.run(sockets=[listener])


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


def page_application(page: str, policy: str, hosts: Sequence[str] = HOSTS) -> FastAPI:
    """An application that answers `/` with the page, and errors with a line of JSON (`refusal`).

    Starlette and uvicorn answer some in plain text: another host name, a body or headers that are too long, and a
    request that is no HTTP. `hosts`: accepted host names.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)

    @app.get("/")
    async def index() -> Response:
        return page_response(page, policy)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        text = f"{request.url.path}: no such page" if error.status_code == 404 else str(error.detail)
        response = refusal(text, error.status_code)
        response.headers.update(error.headers or {})  # such as the methods that are allowed
        return response

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
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    return app


def page_response(page: str, policy: str, status: int = 200) -> Response:
    headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
    return Response(page, status, media_type="text/html; charset=utf-8", headers=headers)


async def read_body(request: Request, form: type[Form]) -> Form:
    """The JSON of a request. Raises InputError for another one."""
    body = await request.body()
    return checked(form, lambda: form.model_validate_json(body, strict=True))


def checked(form: type[Form], read: Callable[[], Form]) -> Form:
    """What `read` returns. Raises InputError with the first of pydantic's errors: the field and its problem."""
    try:
        return read()
    except ValidationError as error:
        first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    known = f" (known are {', '.join(form.model_fields)})" if first["type"] == "extra_forbidden" else ""
    raise InputError(f"{place or 'request'}: {first['msg']}{known}")


def json_line(value: Any, status: int = 200) -> Response:
    return Response(json_text(value) + "\n", status, media_type="application/json")


def refusal(text: str, status: int) -> Response:
    return json_line({"error": " ".join(text.split())}, status)


def read_page(folder: Path, name: str) -> tuple[str, str]:
    """(`name`.html of a folder with its styles and script, the content policy that allows only these)."""
    style = str(styles("palette.css")) + "".join(
        path.read_text("utf-8") for path in (COMMON / "common.css", folder / f"{name}.css")
    )
    script = "".join(path.read_text("utf-8") for path in (COMMON / "common.js", folder / f"{name}.js"))
    page = (folder / f"{name}.html").read_text("utf-8")
    page = page.replace("{{ style }}", style).replace("{{ script }}", script)
    policy = {
        "default-src": "'none'",
        "style-src": hashed(style),
        "script-src": hashed(script),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    return page, "; ".join(f"{name} {value}" for name, value in policy.items())


def hashed(text: str) -> str:
    """The source expression of a content policy that allows an inline style or script with exactly this text."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


class Guard:
    """Refuses requests of another site's page. Answers HEAD as GET; uvicorn then sends no body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http":
            if is_from_another_page(scope["method"], scope["scheme"], Headers(scope=scope)):
                app = refusal("only the page of this server may send requests", 403)
            if scope["method"] == "HEAD":
                scope = {**scope, "method": "GET"}
        await app(scope, receive, send)


class RootPath:
    """Removes the path below which a proxy shows the server. Some proxies remove it themselves."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self.app = app
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and f"{scope['path']}/".startswith(f"{self.path}/"):
            scope = {**scope, "path": scope["path"].removeprefix(self.path) or "/"}
        await self.app(scope, receive, send)


def is_from_another_page(method: str, scheme: str, headers: Headers) -> bool:
    """Whether a browser sends the request for a page of another site, which must not read this server's answers."""
    own = f"{scheme}://{headers['host']}"
    elsewhere = headers.get("sec-fetch-site") in {"cross-site", "same-site"}  # same-site: any port of this machine
    posted = method == "POST" and headers.get("origin", own) != own
    return posted or (elsewhere and headers.get("sec-fetch-mode") != "navigate")
