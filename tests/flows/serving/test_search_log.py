"""What `serve-search --log` records, and what it does not."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from serving import computed, make_run

from flows.serving import search_log
from flows.serving.batching import Batches
from flows.serving.line_log import LineLog
from flows.serving.search_log import SearchLog
from flows.serving.server import application
from flows.serving.service import CurrentService, Service, condition_batches
from pipeline.data.search_log import Search, read_searches
from pipeline.errors import InputError


def client_of(log: SearchLog | None) -> TestClient:
    run = make_run()
    app = application(CurrentService(Service(run, Batches(computed), condition_batches(run))), log)
    return TestClient(app, base_url="http://localhost:8080", raise_server_exceptions=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "searches.jsonl"


def test_nothing_is_recorded_by_default() -> None:
    client = client_of(None)
    answer = client.get("/api/search", params={"q": "zebra", "k": 1}).json()
    assert "search" not in answer
    assert client.get("/api").json()["recorded"] is False
    assert client.post("/api/click", json={"search": "x", "position": 1}).status_code == 404


def test_a_search_and_its_click_are_recorded_without_an_address(path) -> None:
    with LineLog(path) as lines:
        client = client_of(SearchLog(lines, "one"))
        assert client.get("/api").json()["recorded"] is True
        headers = {"User-Agent": "secret browser", "X-Forwarded-For": "192.0.2.7"}
        answers = [
            client.post("/api/search", json={"q": "zebra", "k": 1, "where": "kept"}, headers=headers).json(),
            client.get("/api/search", params={"q": "zebra", "k": 1}, headers=headers).json(),
        ]
        assert answers[0]["search"] != answers[1]["search"]
        clicked = client.post("/api/click", json={"search": answers[1]["search"], "position": 1}, headers=headers)
        assert clicked.status_code == 200
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [sorted(row) for row in rows] == [
        *[["by", "question", "recipe", "results", "search", "time", "where"]] * 2,
        ["click", "search", "time"],
    ]
    assert not any(word in path.read_text() for word in ("secret", "192.0.2", "127.0.0.1", "testclient"))
    assert read_searches([path]) == ([Search("zebra", "kept", ["d#0"]), Search("zebra", None, ["d#0"], {1})], 0, 0)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_refused_search_is_not_recorded(path) -> None:
    with LineLog(path) as lines:
        client = client_of(SearchLog(lines, "one"))
        for question in (" ", "bad", "fault", "broken"):
            assert client.get("/api/search", params={"q": question, "k": 1}).status_code >= 400
    assert path.read_text() == ""


@pytest.mark.parametrize(
    "changed", [{"search": "x"}, {"search": None}, {"position": 2}, {"position": 0}, {"position": "1"}, {"other": 1}]
)
def test_clicks_on_what_was_not_shown_are_refused(path, changed) -> None:
    with LineLog(path) as lines:
        client = client_of(SearchLog(lines, "one"))
        known = client.get("/api/search", params={"q": "zebra", "k": 1}).json()["search"]
        refused = client.post("/api/click", json={"search": known, "position": 1} | changed)
        assert refused.status_code == 400
        assert [*refused.json()] == ["error"]
    assert len(path.read_text().splitlines()) == 1


def test_a_page_of_another_site_may_not_click(path) -> None:
    with LineLog(path) as lines:
        client = client_of(SearchLog(lines, "one"))
        known = client.get("/api/search", params={"q": "zebra", "k": 1}).json()["search"]
        headers = {"Origin": "http://evil.example"}
        assert client.post("/api/click", json={"search": known, "position": 1}, headers=headers).status_code == 403


def test_old_searches_are_forgotten(path, monkeypatch) -> None:
    monkeypatch.setattr(search_log, "RECENT", 2)
    with LineLog(path) as lines:
        log = SearchLog(lines, "one")
        client = client_of(log)
        ids = [client.get("/api/search", params={"q": "zebra", "k": 1}).json()["search"] for _ in range(3)]
        with pytest.raises(InputError):
            log.click(ids[0], 1)
        log.click(ids[1], 1)


def test_a_full_disk_ends_no_search(path, monkeypatch, caplog) -> None:
    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with LineLog(path) as lines:
        client = client_of(SearchLog(lines, "one"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            answer = client.get("/api/search", params={"q": "zebra", "k": 1})
    assert (answer.status_code, answer.json()["search"]) == (200, None)
    assert "no space left on device; nothing is recorded" in caplog.text


def test_a_log_that_cannot_be_opened_is_one_line(tmp_path) -> None:
    for path in (tmp_path, tmp_path / "none/log"):
        with pytest.raises(InputError, match=str(path)):
            LineLog(path)


def append(path: Path, letter: str) -> None:
    with LineLog(path) as lines:
        for _ in range(200):
            lines.append(letter * 3000)


def test_two_processes_append_whole_lines(path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=append, args=(path, letter)) for letter in "ab"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    lines = path.read_text().splitlines()
    assert sorted(lines) == ["a" * 3000] * 200 + ["b" * 3000] * 200


def test_a_line_that_breaks_off_damages_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"time": "2026')
    for _ in range(2):
        with LineLog(path) as lines:
            lines.append('{"a": 1}')
    assert path.read_text().splitlines() == ['{"time": "2026', '{"a": 1}', '{"a": 1}']
