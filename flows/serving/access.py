"""Who may use a server that other machines reach: who has its token, as a header or by the cookie of the login page.

The cookie is an expiry time signed with a key that only this process has. It neither contains the token nor helps to
guess it, and it ends with the server.
"""

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.serving.http import HOSTS, json_line, page_response, read_body, read_page, refusal

PAGE = Path(__file__).parent / "page"
COOKIE_SECONDS = 12 * 3600
"""Time until a login ends: a working day."""
OPEN = ("/healthz", "/login")
"""Paths that need no token."""


@dataclass(frozen=True)
class Access:
    """What a request must have, and how the server is reached."""

    token: str = field(repr=False)
    hosts: tuple[str, ...] = HOSTS
    """Accepted host names; `*.NAME` accepts all names below one."""
    root_path: str = ""
    """The path below which a proxy shows the server, such as `/search`."""
    cookie: str = "cocondenser"
    """Name of the cookie. Servers on several ports of a host share their cookies, so each has its own name."""
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())

    def new_cookie(self) -> str:
        expires = str(int(time.time()) + COOKIE_SECONDS)
        return f"{expires}.{self._signature(expires)}"

    def is_cookie(self, value: str) -> bool:
        expires, _, signature = value.partition(".")
        signed = hmac.compare_digest(signature.encode(), self._signature(expires).encode())
        return signed and time.time() < int(expires)

    def permits(self, request: HTTPConnection) -> bool:
        """Whether the request has the token or a cookie of the login."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        by_header = scheme.lower() == "bearer" and self.is_token(token.strip())
        return by_header or self.is_cookie(request.cookies.get(self.cookie, ""))

    def _signature(self, expires: str) -> str:
        return hmac.new(self.key, expires.encode(), hashlib.sha256).hexdigest()


class LoginRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: str


def require_token(app: FastAPI, access: Access) -> None:
    """Adds the login and `/healthz` to an application, and refuses all other requests without the token."""
    page, policy = read_page(PAGE, "login")
    page = page.replace("{{ root }}", access.root_path)

    @app.get("/healthz")
    async def healthy() -> Response:
        return json_line({"status": "ok"})

    @app.get("/login")
    async def login_page() -> Response:
        return page_response(page, policy)

    @app.post("/login")
    async def login(request: Request) -> Response:
        if not access.is_token((await read_body(request, LoginRequest)).token):
            return unauthorised("the token is wrong")
        response = json_line({})
        response.set_cookie(
            access.cookie,
            access.new_cookie(),
            max_age=COOKIE_SECONDS,
            path=access.root_path or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    app.add_middleware(RequireToken, access=access, page=page_response(page, policy, 401))


class RequireToken:
    """Answers every path without the token in the same way: a browser gets the login page, others a line of JSON."""

    def __init__(self, app: ASGIApp, access: Access, page: Response) -> None:
        self.app = app
        self.access = access
        self.page = page
        self.page.headers.update(CHALLENGE)
        login = f"{access.root_path}/login"
        self.line = unauthorised(f"a token is required: the header `Authorization: Bearer TOKEN`, or the page {login}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = HTTPConnection(scope)
        app = self.app
        if scope["path"] not in OPEN and not self.access.permits(request):
            app = self.page if "text/html" in request.headers.get("accept", "") else self.line

        async def send_uncached(message: Message) -> None:
            """No cache, of a browser or a proxy, keeps answers: others could read them there."""
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["cache-control"] = "no-store"
            await send(message)

        return await app(scope, receive, send_uncached)


CHALLENGE = {"WWW-Authenticate": "Bearer"}


def unauthorised(text: str) -> Response:
    response = refusal(text, 401)
    response.headers.update(CHALLENGE)
    return response
