"""The client of a server, with recorded answers: failures, limits, malformed and hostile ones."""

import json
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from language_models import KEY, Reply, chat, config, server

from pipeline.errors import InputError
from pipeline.language_model import endpoint
from pipeline.language_model.chat_completion import Answer, parse
from pipeline.language_model.endpoint import INSTEAD, Endpoint, Failed, read_key, wait_of

ASKED = [{"role": "user", "content": "a question of forty characters, or so, ok"}]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "FIRST_WAIT", 0.01)


def ask(address: str, environment: dict[str, str] | None = None, **fields) -> Answer:
    settings = config(endpoint=address, model="tiny", **fields)
    with Endpoint(settings, {"OPENAI_API_KEY": KEY} if environment is None else environment) as client:
        return client.ask(ASKED)


def test_an_answer_has_its_tokens_and_the_request_its_fields() -> None:
    with server([chat("What is it?", 12, 3)]) as running:
        assert ask(running.address, temperature=0.5, answer_tokens=9) == Answer("What is it?", 12, 3)
    ((headers, body),) = running.requests
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body == {"model": "tiny", "messages": ASKED, "stream": False, "max_tokens": 9, "temperature": 0.5}


def test_without_a_key_none_is_sent_and_temperature_may_be_the_servers() -> None:
    with server([chat("What is it?")]) as running:
        ask(running.address, {}, temperature=None)
    ((headers, body),) = running.requests
    assert "authorization" not in headers
    assert "temperature" not in body


def test_tokens_are_estimated_where_the_server_counts_none() -> None:
    reply = {"choices": [{"message": {"content": "abcdefgh"}}]}
    assert parse(json.dumps(reply), ASKED) == Answer("abcdefgh", 10, 2)
    reply["usage"] = {"prompt_tokens": -5, "completion_tokens": "many"}
    assert parse(json.dumps(reply), ASKED) == Answer("abcdefgh", 10, 2)


@pytest.mark.parametrize(
    "failure",
    [
        Reply(429, b"slow down", {"retry-after": "0"}),
        Reply(429, b""),
        Reply(500, b"<html>oops</html>"),
        Reply(503, b"", {"retry-after": "soon"}),
        Reply(closes=True),
        Reply(200, b"<html>a proxy</html>"),
        Reply(200, b""),
        Reply(200, b"[" * 100_000),
        Reply(200, b'{"choices": []}'),
        Reply(200, b'{"choices": [{"message": {"content": [1, 2]}}]}'),
        Reply(200, b'{"choices": {"0": 1}}'),
        Reply(200, b"null"),
        Reply(200, b"\xff\xfe\x00"),
        Reply(200, b"x" * (3 << 20)),
        Reply(200, b"{}", {"content-length": "999"}),
        Reply(200, b"not gzip", {"content-encoding": "gzip"}),
    ],
    ids=str,
)
def test_failures_are_tried_again(failure: Reply) -> None:
    with server([failure, failure, chat("What is it?")]) as running:
        assert ask(running.address).text == "What is it?"
    assert len(running.requests) == 3
    with server([failure]) as running, pytest.raises(Failed) as raised:
        ask(running.address)
    assert len(running.requests) == 3
    assert "3 attempts" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_slow_answer_and_an_endless_one_end() -> None:
    for reply, why in (
        (Reply(200, chat("late").body, seconds=3.0), "lower generate.concurrent, or raise generate.timeout_seconds"),
        (Reply(200, b"x" * 64, {"content-length": "99999999"}), "2 attempts"),
    ):
        started = time.monotonic()
        with server([reply]) as running, pytest.raises(Failed, match=why):
            ask(running.address, timeout_seconds=0.3, attempts=2)
        assert time.monotonic() - started < 3


def test_a_server_that_asks_for_a_long_pause_is_not_waited_for() -> None:
    with server([Reply(429, b"", {"retry-after": "86400"})]) as running, pytest.raises(Failed, match="86400 seconds"):
        ask(running.address)
    assert len(running.requests) == 1


def test_the_pause_is_a_number_or_a_date() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert wait_of("7", lambda: now) == 7
    assert wait_of("Thu, 01 Jan 2026 00:00:30 GMT", lambda: now) == 30
    assert wait_of("Thu, 01 Jan 2015 00:00:30 GMT", lambda: now) == 0
    assert [wait_of(text) for text in ("", "soon", "nan", "-3")] == [None, None, None, 0.0]


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_is_one_line_without_it(status: int) -> None:
    reply = Reply(status, json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode())
    with server([reply]) as running:
        with pytest.raises(InputError, match="OPENAI_API_KEY to a valid one") as raised:
            ask(running.address)
        assert KEY not in str(raised.value)
        with pytest.raises(InputError, match="set the environment variable ANOTHER_KEY"):
            ask(running.address, {}, key_variable="ANOTHER_KEY")
    assert len(running.requests) == 2


def test_other_refusals_are_of_one_request_or_of_all() -> None:
    refused = Reply(400, b'{"error": {"message": "the text\\nis not allowed"}}')
    with server([refused]) as running, pytest.raises(Failed, match="status 400: the text is not allowed"):
        ask(running.address)
    absent = Reply(404, b'{"error": "no such model"}')
    with server([absent]) as running, pytest.raises(InputError, match="status 404: no such model"):
        ask(running.address)
    assert len(running.requests) == 1


def test_the_other_name_of_the_limit_is_used_if_the_server_asks_for_it() -> None:
    refusal = b'{"error": {"message": "Use max_completion_tokens instead."}}'
    with server([Reply(400, refusal), chat("What is it?")]) as running:
        assert ask(running.address, answer_tokens=7).text == "What is it?"
    assert [body.get("max_completion_tokens") for _, body in running.requests] == [None, 7]


def test_requests_that_are_sent_together_all_use_the_other_name() -> None:
    together = threading.Barrier(4)

    def answer(body: dict[str, Any]) -> Reply:
        if "max_tokens" in body:
            together.wait(5)
            return Reply(400, b'{"error": {"message": "Use max_completion_tokens instead."}}')
        return chat("What is it?")

    with server(answer) as running:
        settings = config(endpoint=running.address, model="tiny", concurrent=4)
        with Endpoint(settings, {"OPENAI_API_KEY": KEY}) as client:
            calls = [client.start(client.ask, ASKED) for _ in range(4)]
            assert [call.result().text for call in calls] == ["What is it?"] * 4


def test_the_key_follows_no_redirect() -> None:
    with server([chat("stolen")]) as other:
        moved = Reply(302, b"", {"location": f"{other.address}/chat/completions"})
        with server([moved]) as running, pytest.raises(InputError, match=r"redirect to 127\.0\.0\.1"):
            ask(running.address)
    assert other.requests == []


def test_the_key_is_removed_from_what_the_server_sends() -> None:
    with server([chat(f"Is {KEY} the key?")]) as running:
        assert ask(running.address).text == f"Is {INSTEAD} the key?"
    with server([Reply(400, f"bad header Bearer {KEY}".encode())]) as running, pytest.raises(Failed) as raised:
        ask(running.address)
    assert KEY not in str(raised.value)


def test_the_key_is_not_sent_unencrypted_to_another_machine() -> None:
    environment = {"OPENAI_API_KEY": KEY}
    for address, key in (("http://gpu.example:8000/v1", ""), ("https://gpu.example/v1", KEY), ("http://[::1]/v1", KEY)):
        assert read_key(config(endpoint=address, model="m"), environment) == key


@pytest.mark.parametrize("key", ["sk secret", "sk\nsecret", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_without_it(key: str) -> None:
    with pytest.raises(InputError, match="spaces or unusual characters") as raised:
        read_key(config(endpoint="https://host/v1", model="m"), {"OPENAI_API_KEY": key})
    assert key not in str(raised.value)


@pytest.mark.parametrize("location", ["http://[bad/v1", "", "//", "\\\\", f"https://{KEY}.example/v1"])
def test_a_malformed_redirect_is_one_line(location: str) -> None:
    with (
        server([Reply(302, b"", {"location": location})]) as running,
        pytest.raises(InputError, match=r"redirect to .*, which is not followed") as raised,
    ):
        ask(running.address)
    assert KEY.lower() not in str(raised.value).lower()


def test_the_key_is_removed_also_where_json_escapes_it() -> None:
    escaped = KEY.replace("s", "\\u0073", 1)
    with server([Reply(body=chat("Is X the key?").body.replace(b"X", escaped.encode()))]) as running:
        assert ask(running.address).text == f"Is {INSTEAD} the key?"
    body = f'{{"error": {{"message": "{"wrong " * 31} {escaped}"}}}}'
    with server([Reply(400, body.encode())]) as running, pytest.raises(Failed) as raised:
        ask(running.address)
    assert KEY[:6] not in str(raised.value)


@pytest.mark.parametrize("key", ["x", "EMPTY", "ollama"])
def test_what_servers_without_keys_get_as_key_is_no_secret(key: str) -> None:
    with server([chat("Is the box of ollama empty?")]) as running:
        assert ask(running.address, {"OPENAI_API_KEY": key}).text == "Is the box of ollama empty?"


def test_an_interruption_waits_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "GRACE", 0.1)
    never = Reply(200, b"x", seconds=60.0)
    started = time.monotonic()
    with server([never]) as running, suppress(KeyboardInterrupt):
        client = Endpoint(config(endpoint=running.address, model="tiny", timeout_seconds=60.0))
        with client:
            calls = [client.start(client.ask, ASKED) for _ in range(3)]
            while len(running.requests) < 3:
                time.sleep(0.01)
            raise KeyboardInterrupt
    assert time.monotonic() - started < 5
    assert all(isinstance(call.exception(), Failed) for call in calls)


def test_a_long_silence_is_said_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SILENCE", 0.3)
    lines: list[str] = []
    busy = Reply(429, b'{"error": {"message": "slow down"}}', {"retry-after": "1"})
    with server([busy, chat("What is it?")]) as running:
        settings = config(endpoint=running.address, model="tiny")
        with Endpoint(settings, {}, say=lines.append) as client:
            (done,) = client.wait([client.start(client.ask, ASKED)])
    assert done.result().text == "What is it?"
    assert "no answer for 0.3 seconds; the last attempt failed: status 429: slow down" in lines[0]
    assert running.address in lines[0]
