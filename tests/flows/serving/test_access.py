"""A server for other machines: what it answers with a correct token, a wrong one and none."""

import json
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import computed, make_run

from flows.serving import access as access_module
from flows.serving.access import COOKIE_SECONDS, Access
from flows.serving.batching import Batches
from flows.serving.server import application
from flows.serving.service import CurrentService, Service, condition_batches

TOKEN = "correct-horse-battery-staple"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
NO_ONE: dict[str, dict[str, str]] = {
    "no token": {},
    "a wrong token": {"Authorization": "Bearer correct-horse-battery-stapl"},
    "a longer token": {"Authorization": f"Bearer {TOKEN}x"},
    "an empty token": {"Authorization": "Bearer "},
    "no scheme": {"Authorization": TOKEN},
    "another scheme": {"Authorization": f"Basic {TOKEN}"},
    "not ASCII": {"Authorization": "Bearer tök\xff"},
    "a cookie with the token": {"Cookie": f"cocondenser={TOKEN}"},
    "a cookie of another secret": {"Cookie": f"cocondenser={Access(TOKEN).new_cookie()}"},
    "a cookie that is changed": {"Cookie": "cocondenser=99999999999.abc"},
    "a cookie without a signature": {"Cookie": "cocondenser=99999999999"},
    "a cookie that is no number": {"Cookie": "cocondenser=ü.ü; cocondenser="},
}


def open_client(access: Access, base: str = "http://localhost:8080") -> TestClient:
    run = make_run()
    app = application(CurrentService(Service(run, Batches(computed), condition_batches(run))), access=access)
    return TestClient(app, base_url=base, raise_server_exceptions=False)


@pytest.fixture
def client() -> TestClient:
    return open_client(Access(TOKEN))


@pytest.mark.parametrize("headers", [*NO_ONE.values()], ids=[*NO_ONE])
def test_without_the_token_every_path_and_method_gets_the_same_401(client, headers) -> None:
    latin = {name: value.encode("latin-1") for name, value in headers.items()}
    paths = [
        *("/", "/api", "/api/search?q=zebra&k=1", "/metrics", "/none", "/docs", "/page/search.js", "/healthz/"),
        *("/healthz/..%2fapi", "/login/x", "//healthz", "/login%2f..%2fapi", "/%2e%2e/%2e%2e/etc/passwd", "/*"),
    ]
    answers = [client.get(path, headers=latin) for path in paths]
    answers += [client.request(m, "/api/search", headers=latin) for m in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE")]
    answers += [client.post("/api/search", content=b"x" * 1_000_000, headers=latin)]
    answers += [client.get("/api", headers={**latin, "Host": "evil.example"})]
    answers += [client.get("/api", headers={**latin, "X": "x" * 50_000})]
    first = answers[0]
    assert first.status_code == 401
    assert [*first.json()] == ["error"]
    assert first.headers["www-authenticate"] == "Bearer"
    for answer in answers:
        assert (answer.status_code, answer.content, answer.headers) == (401, first.content, first.headers)
    assert "one" not in first.text.split()  # the recipe
    head = client.head("/api", headers=latin)
    assert (head.status_code, head.headers) == (401, first.headers)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("HEAD", "/", {}, 200),
        ("GET", "/api", {}, 200),
        ("GET", "/api", {"Authorization": f"bearer  {TOKEN} "}, 200),
        ("GET", "/api/search?q=zebra&k=1", {}, 200),
        ("GET", "/api", {"Host": "evil.example"}, 400),
        ("GET", "/api", {"Host": "localhost.evil.example"}, 400),
        ("GET", "/none", {}, 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", {}, 404),
        ("GET", "/healthz/..%2fapi", {}, 404),
        ("PUT", "/api/search", {}, 405),
        ("TRACE", "/api", {}, 405),
        ("PUT", "/healthz", {}, 405),
        ("POST", "/metrics", {}, 405),
        ("POST", "/api/search", {}, 400),
        ("POST", "/api/search", {"Origin": "http://evil.example"}, 403),
        ("POST", "/api/search", {"Origin": "https://localhost:8080"}, 403),
        ("GET", "/api", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ("GET", "/api", {"Cookie": "cocondenser=x; other=y"}, 200),
    ],
)
def test_with_the_token_requests_are_answered_as_on_this_machine(client, method, path, headers, status) -> None:
    answer = client.request(method, path, headers={**BEARER, **headers}, follow_redirects=False)
    assert answer.status_code == status
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("request_parts", "status"),
    [({"headers": {**BEARER, "Host": "evil.example"}}, 400), ({"headers": BEARER, "content": b"x" * 1_000_000}, 413)],
)
def test_a_foreign_host_and_a_long_body_get_plain_text(client, request_parts, status) -> None:
    refused = client.post("/api/search", **request_parts)
    assert (refused.status_code, refused.headers["content-type"]) == (status, "text/plain; charset=utf-8")


def test_without_access_there_is_no_login_and_no_figure() -> None:
    run = make_run()
    client = TestClient(
        application(CurrentService(Service(run, Batches(computed), condition_batches(run)))),
        base_url="http://localhost",
    )
    assert [client.get(path).status_code for path in ("/healthz", "/login", "/metrics")] == [404] * 3
    answer = client.get("/api")
    assert answer.status_code == 200
    assert sorted(answer.headers) == ["content-length", "content-type"]


def test_a_browser_without_the_token_gets_the_login_page_at_every_path(client) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml"}
    pages = [client.get(path, headers=browser) for path in ("/", "/?q=zebra", "/api", "/metrics", "/none")]
    assert {(page.status_code, page.content) for page in pages} == {(401, pages[0].content)}
    login = client.get("/login")
    assert (login.status_code, login.content) == (200, pages[0].content)
    assert "default-src 'none'" in pages[0].headers["content-security-policy"]
    assert "A title" not in login.text
    assert "{{" not in login.text


@pytest.mark.parametrize(("base", "secure"), [("http://localhost:8080", False), ("https://localhost:8080", True)])
def test_the_login_sets_a_cookie_that_answers(base, secure) -> None:
    client = open_client(Access(TOKEN), base)
    assert client.get("/api").status_code == 401
    answer = client.post("/login", json={"token": TOKEN}, headers={"Origin": base})
    cookie = answer.headers["set-cookie"]
    parts = {part.strip().lower() for part in cookie.split(";")}
    assert {"httponly", "samesite=strict", "path=/", f"max-age={COOKIE_SECONDS}"} <= parts
    assert ("secure" in parts) == secure
    assert TOKEN not in cookie + answer.text
    assert client.get("/api").status_code == 200  # the client keeps the cookie
    assert client.get("/", headers={"Accept": "text/html"}).text.count("A title") == 0
    other = open_client(Access(TOKEN), base)
    assert other.get("/api", headers={"Cookie": cookie.partition(";")[0]}).status_code == 401  # another process


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"token": "wrong"}', {}, 401),
        (b'{"token": ""}', {}, 401),
        (b'{"token": "\xc3\xbc"}', {}, 401),
        (b'{"token": 1}', {}, 400),
        (b"token=x", {}, 400),
        (b"", {}, 400),
        (b"x" * 1_000_000, {}, 413),
        (json.dumps({"token": TOKEN}).encode(), {"Origin": "http://evil.example"}, 403),
        (json.dumps({"token": TOKEN}).encode(), {"Host": "evil.example"}, 400),
    ],
)
def test_logins_that_are_refused_set_no_cookie(client, body, headers, status) -> None:
    refused = client.post("/login", content=body, headers=headers)
    assert refused.status_code == status
    assert "set-cookie" not in refused.headers
    if status == 401:
        assert refused.json() == {"error": "the token is wrong"}
        assert refused.headers["www-authenticate"] == "Bearer"


def test_a_login_ends(client, monkeypatch) -> None:
    client.post("/login", json={"token": TOKEN})
    assert client.get("/api").status_code == 200
    later = time.time() + COOKIE_SECONDS + 1
    monkeypatch.setattr(access_module.time, "time", lambda: later)
    assert client.get("/api").status_code == 401


def test_health_needs_no_token_and_says_nothing_of_the_collection(client) -> None:
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    head = client.head("/healthz")
    assert (head.status_code, head.content) == (200, b"")


def samples(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_count_questions_times_and_errors(client) -> None:
    for by in ("dense", "dense", "fusion"):
        assert client.get("/api/search", params={"q": "zebra", "k": 1, "by": by}, headers=BEARER).status_code == 200
    client.get("/api/search?q=fault&k=1", headers=BEARER)
    client.get("/api/search?q=", headers=BEARER)
    client.get("/api")
    answer = client.get("/metrics", headers=BEARER)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = samples(answer.text)
    assert found['cocondenser_questions_total{by="dense"}'] == 2
    assert found['cocondenser_questions_total{by="fusion"}'] == 2
    assert found['cocondenser_answer_seconds_count{by="fusion"}'] == 1  # the other one failed
    assert found['cocondenser_answer_seconds_bucket{by="dense",le="+Inf"}'] == 2
    assert {status: found[f'cocondenser_errors_total{{status="{status}"}}'] for status in (400, 401, 500)} == {
        400: 1,
        401: 1,
        500: 1,
    }
    assert found["process_resident_memory_bytes"] > 0
    assert "zebra" not in answer.text


@pytest.mark.parametrize("removed", [True, False], ids=["the proxy removes it", "the proxy keeps it"])
def test_below_a_root_path_everything_works(removed) -> None:
    client = open_client(Access(TOKEN, ("search.example.org",), "/team/search"), "https://search.example.org")
    seen = "" if removed else "/team/search"
    page = client.get(f"{seen}/", headers={"Accept": "text/html"})
    assert (page.status_code, 'action="/team/search/login"' in page.text) == (401, True)
    assert client.get(f"{seen}/api").json()["error"].endswith(", or the page /team/search/login")
    assert client.get(f"{seen}/healthz").status_code == 200
    cookie = client.post(f"{seen}/login", json={"token": TOKEN}).headers["set-cookie"]
    assert "path=/team/search;" in cookie.lower()
    logged_in = {"Cookie": cookie.partition(";")[0]}
    for path in ("/", "/api", "/api/search?q=zebra&k=1", "/metrics"):
        assert client.get(f"{seen}{path}", headers=logged_in).status_code == 200
    assert client.get(f"{seen}/none", headers=logged_in).status_code == 404
    assert client.get("/team/searchhealthz").status_code == 401
    if not removed:
        assert client.get("/team/search", headers=logged_in).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("search.example.org", 200), ("a.team.example.org:8443", 200), ("example.org", 400), ("localhost", 400)],
)
def test_only_allowed_names_are_answered(host: str, status: int) -> None:
    client = open_client(Access(TOKEN, ("search.example.org", "*.team.example.org")))
    for path in ("/", "/api", "/healthz", "/login"):
        assert client.get(path, headers={**BEARER, "Host": host}).status_code == status


def test_secrets_are_not_shown_by_accident() -> None:
    access: Any = Access(TOKEN)
    assert TOKEN not in repr(access)
    assert repr(access.key) not in repr(access)
