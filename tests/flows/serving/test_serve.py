"""What the search server answers and refuses over HTTP, with a fake run."""

import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import SCRIPT, computed, make_run

from flows.serving import ask
from flows.serving.answers import Answer
from flows.serving.batching import Batches
from flows.serving.http import BODY, read_page
from flows.serving.question import Question
from flows.serving.server import PAGE, application
from flows.serving.service import CurrentService, Service, condition_batches
from pipeline.data.filter import MASKS
from pipeline.errors import InputError


@pytest.fixture
def fake_run() -> Any:
    return make_run()


@pytest.fixture
def client(fake_run) -> TestClient:
    return TestClient(
        application(CurrentService(Service(fake_run, Batches(computed), condition_batches(fake_run)))),
        base_url="http://localhost:8080",
        raise_server_exceptions=False,
    )


def test_get_and_post_give_the_same_answer(client) -> None:
    parameters = {"q": "zebra", "k": 3, "by": "dense", "where": "source = 'numpy'"}
    by_get, by_post = client.get("/api/search", params=parameters), client.post("/api/search", json=parameters)
    assert by_get.status_code == by_post.status_code == 200
    answer = by_get.json()
    milliseconds = answer.pop("milliseconds"), by_post.json()["milliseconds"]
    assert min(milliseconds) >= 0
    assert answer == {name: value for name, value in by_post.json().items() if name != "milliseconds"}
    assert answer["answers"][0] == {
        "rank": 1, "score": 0.5, "doc_id": "d", "passage_id": "d#0", "title": "T", "text": SCRIPT, "excerpt": SCRIPT,
        "highlights": [[0, 1]], "question": "",
        "metadata": {"source": "numpy", "n": "9007199254740993", "m": -9007199254740992},
        "almost_equal": [], "almost_equal_count": 0, "reranked": False,
    }  # fmt: skip
    assert [answer[name] for name in ("recipe", "by", "question", "k", "where")] == [
        "one",
        "dense",
        "zebra",
        3,
        parameters["where"],
    ]


@pytest.mark.parametrize("by", ["dense", "fusion", None])
@pytest.mark.parametrize(("question", "lines"), [("zebra", []), ("zebra " * 9, ["cut, of 54: 12"])])
def test_a_question_that_is_cut_is_reported(client, question, lines, by) -> None:
    parameters = {"q": question, "k": 1, **({} if by is None else {"by": by})}
    responses = [client.get("/api/search", params=parameters), client.post("/api/search", json=parameters)]
    assert [response.json()["notices"] for response in responses] == [lines, lines]


def test_the_defaults_of_a_request_are_fusion_and_no_condition(client) -> None:
    answer = client.get("/api/search", params={"q": "zebra", "k": 1, "where": " "}).json()
    assert (answer["by"], answer["where"]) == ("fusion", None)


def test_a_slow_condition_does_not_delay_other_questions(client, fake_run) -> None:
    with client, ThreadPoolExecutor(1) as pool:  # all in one event loop
        slow = pool.submit(client.get, "/api/search", params={"q": "zebra", "k": 1, "where": "slow"})
        others = [client.get("/api/search", params={"q": "a", "k": 1, "where": x}).status_code for x in ("", "kept")]
        assert not slow.done()
        fake_run.where.going.set()
    assert [*others, slow.result().status_code] == [200] * 3


def test_each_condition_is_evaluated_once_and_passed_with_its_question(fake_run) -> None:
    """Also with many requests at once, and while a slow condition is evaluated."""
    computing, wheres = threading.Event(), [f"year = {n}" for n in range(2 * MASKS)]
    masks: list[tuple[str | None, Any]] = []

    def compute(batch: Sequence[tuple[Question, Any]]) -> list[list[Answer] | Exception]:
        assert computing.wait(60)
        masks.extend((question.where, mask) for question, mask in batch)
        return computed(batch)

    def get(where: str) -> int:
        return client.get("/api/search", params={"q": "zebra", "k": 1, "where": where}).status_code

    client = TestClient(
        application(CurrentService(Service(fake_run, Batches(compute), condition_batches(fake_run)))),
        base_url="http://localhost",
    )
    with client, ThreadPoolExecutor(50) as pool:
        quick = [pool.submit(get, where) for where in wheres]
        while len(fake_run.where.evaluated) < len(wheres):
            time.sleep(0.01)
        slow = pool.submit(get, "slow")
        computing.set()
        assert [one.result() for one in quick] == [200] * len(wheres)
        assert not slow.done()
        fake_run.where.going.set()
        assert slow.result() == 200
        assert get("none") == 400
    assert sorted(fake_run.where.evaluated) == sorted([*wheres, "slow", "none"])
    assert sorted(masks) == sorted((where, f"mask of {where}") for where in [*wheres, "slow"])


def test_masks_that_are_known_are_not_evaluated(fake_run, monkeypatch) -> None:
    used_masks: dict[str | None, Any] = {}

    def rank(run: Any, queries: Sequence[Any], masks: dict[str | None, Any]) -> list[Any]:
        used_masks.update(masks)
        return [InputError("x")] * len(queries)

    monkeypatch.setattr(ask, "rank_passages", rank)
    monkeypatch.setattr(ask, "describe_answers", lambda run, questions, rankings, masks, scored: rankings)
    questions = [Question("a", 1, "dense", where) for where in ("known", "other", None)]
    ask.ask(fake_run, questions, {"known": "its mask"})
    assert used_masks == {"known": "its mask", "other": "mask of other", None: None}
    assert fake_run.where.evaluated == ["other"]


def test_the_api_describes_the_run(client) -> None:
    about = client.get("/api").json()
    assert about["columns"] == {"source": "text"}
    assert about["ways"] == {"fusion": "dense + BM25", "dense": "dense"}
    assert (about["passages"], about["k"], about["title"]) == (7, 7, "A title")


CHOSEN = {"method": "z_score_sum", "weight": 0.5, "why": "default: 8 dev questions, fewer than 50"}
OLDER = {"method": "reciprocal_rank", "weight": 0.1}


@pytest.mark.parametrize(
    ("fusion", "shown"), [(CHOSEN | {"chosen_on_dev": False}, CHOSEN), (OLDER, OLDER | {"why": None}), (None, None)]
)
def test_the_api_says_how_runs_are_fused_and_why(fake_run, client, fusion, shown) -> None:
    fake_run.engine.metrics.update(fusion=fusion)
    about = TestClient(
        application(CurrentService(Service(fake_run, Batches(computed), condition_batches(fake_run)))),
        base_url="http://localhost:8080",
    )
    assert about.get("/api").json()["fusion"] == shown
    for by, expected in {"fusion": shown, "dense": None}.items():
        answer = client.get("/api/search", params={"q": "zebra", "k": 1, "by": by}).json()
        assert answer["fusion"] == expected


def test_a_small_collection_has_fewer_answers_by_default(fake_run, client) -> None:
    assert fake_run.passages.count == client.get("/api").json()["k"] == 7
    for answered in (client.get("/api/search?q=zebra"), client.post("/api/search", json={"q": "zebra"})):
        assert (answered.status_code, answered.json()["k"]) == (200, 7)


@pytest.mark.parametrize(
    ("parameters", "status", "line"),
    [
        ({}, 400, "q: Field required"),
        ({"q": " "}, 400, "the question is empty"),
        ({"q": "a" * 10_001}, 400, "the question is too long: 10,001 characters (maximum 10,000)"),
        ({"q": "a", "k": "0"}, 400, "k is 0; the minimum is 1 document"),
        ({"q": "a", "k": "8"}, 400, "k is 8, but the collection has 7 passages"),
        ({"q": "a", "k": "x"}, 400, "k: Input should be a valid integer, unable to parse string as an integer"),
        ({"q": "a", "k": 1, "by": "x"}, 400, "by: Input should be 'dense', 'fusion' or 'bm25'"),
        ({"q": "a", "k": 1, "by": "bm25"}, 400, "by bm25: no index"),
        ({"q": "a", "filter": "x"}, 400, "filter: Extra inputs are not permitted (known are q, k, by, where, rerank)"),
        ({"q": "a", "rerank": 1}, 400, "rerank is 1, but nothing reranks here; `--rerank N` loads a cross-encoder"),
        ({"q": "bad", "k": 1, "where": "x"}, 400, "where: x"),
        ({"q": "broken", "k": 1}, 503, "BM25 failed: killed"),
        ({"q": "fault", "k": 1}, 500, "the server failed: KeyError"),
        ({"q": "torch", "k": 1}, 500, "the server failed: RuntimeError"),
    ],
)
def test_refusals_are_a_line_of_json(parameters, status, line, client) -> None:
    for refused in (client.get("/api/search", params=parameters), client.post("/api/search", json=parameters)):
        assert refused.status_code == status
        assert refused.headers["content-type"] == "application/json"
        message = refused.json()["error"]
        assert refused.text.count("\n") == 1
        assert message == line or (message.startswith("k: Input") and "k" in parameters)
    assert client.get("/api/search", params={"q": "zebra", "k": 1}).status_code == 200


def test_an_error_of_the_server_is_logged_with_its_traceback(client, caplog) -> None:
    client.get("/api/search", params={"q": "fault", "k": 1})
    assert "Traceback" in caplog.text
    assert "KeyError: 'secret'" in caplog.text


def test_a_parameter_that_appears_twice_is_refused(client) -> None:
    refused = client.get("/api/search?q=a&k=1&q=b")
    assert (refused.status_code, refused.json()) == (400, {"error": "q: appears twice"})


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"q": "\\ud800", "k": 1}', b'{"q": 1}'])
def test_invalid_bodies_are_refused(body, client) -> None:
    refused = client.post("/api/search", content=body)
    assert refused.status_code == 400
    assert [*refused.json()] == ["error"]


@pytest.mark.parametrize("content", [b"x" * (BODY + 1), [b"x" * BODY, b"x"]], ids=["of known length", "in chunks"])
def test_a_body_that_is_too_long_is_refused(content, client) -> None:
    assert client.post("/api/search", content=content).status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/x", 404), ("PUT", "/api/search", 405), ("GET", "/docs", 404), ("GET", "/api/search/", 404)],
)
def test_other_addresses_and_methods_are_refused(method, path, status, client) -> None:
    refused = client.request(method, path, follow_redirects=False)
    assert refused.status_code == status
    assert [*refused.json()] == ["error"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("evil.example", 400),
        ("evil.example:8080", 400),
        ("localhost.evil.example", 400),
        ("127.0.0.1.evil.example:80", 400),
        ("LocalHost", 200),
        ("localhost:", 400),
        ("localhost:80x", 400),
        ("evil.example:80@localhost", 400),
        ("", 400),
    ],
)
def test_only_this_machines_names_are_answered(host, status, client) -> None:
    for path in ("/", "/api", "/api/search?q=a&k=1"):
        assert client.get(path, headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8080", 200),
        ("http://localhost:3000", 403),
        ("http://evil.example", 403),
        ("http://evil.example/localhost:8080", 403),
        ("null", 403),
    ],
)
def test_pages_of_other_origins_may_not_post(origin, status, client) -> None:
    headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}  # as a form does
    answer = client.post("/api/search", json={"q": "zebra", "k": 1}, headers=headers)
    assert answer.status_code == status
    assert ("error" in answer.json()) == (status == 403)


def test_the_page_needs_no_other_address() -> None:
    page, policy = read_page(PAGE, "search")
    assert "{{" not in page
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert "innerHTML" not in page
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),  # a page at another port
        ("same-origin", "cors", 200),
        ("cross-site", "navigate", 200),
        ("same-site", "navigate", 200),
    ],
)
def test_pages_of_other_sites_may_not_search(site, mode, status, client) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
    assert client.get("/api/search", params={"q": "zebra", "k": 3}, headers=headers).status_code == status


PATHS = [
    "/",
    "/api",
    "/api/search?q=zebra&k=1",
    "/api/search?q=zebra&k=0",
    "/api/search?q=fault&k=1",
    "/none",
    "/api?x",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["localhost:8080", "other.example"])
def test_head_is_answered_as_get_without_its_body(client, path: str, host: str) -> None:
    by_get, by_head = (client.request(method, path, headers={"host": host}) for method in ("GET", "HEAD"))
    assert (by_head.status_code, by_head.content) == (by_get.status_code, b"")
    sizes = {answer.headers.pop("content-length") for answer in (by_get, by_head)}
    assert by_head.headers == by_get.headers
    if "zebra&k=1" not in path:  # its answer contains the time it took
        assert sizes == {str(len(by_get.content))}


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_the_allowed_methods_of_an_address_are_reported(client, method: str) -> None:
    refused = client.request(method, "/api/search")
    assert refused.status_code == 405
    assert "GET" in refused.headers["allow"]
