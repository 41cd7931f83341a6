"""`cocondenser serve-search` in a process of its own: the page in a browser, many clients at once, its shutdown."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from answering import make_store, write_model
from browser import CHROMIUM, open_page
from serving import SCRIPT

from artifacts.runs import record_run, runs
from artifacts.store import Store
from benchmarks.serve import load
from flows.cli.serve import listening_socket
from flows.deploy.processes import free_port
from pipeline.data.near_duplicates.groups import Groups
from pipeline.data.search_log import read_searches
from pipeline.errors import InputError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    """300 passages of invented words, random vectors, and a real model from scratch."""
    folder = tmp_path_factory.mktemp("served")
    checkpoint = write_model(folder, [f"w{n}" for n in range(60)])
    rng = np.random.default_rng(0)
    passages = [
        (f"p{n}", f"d{n // 2}", f"Title {n}", " ".join(f"w{i}" for i in rng.integers(0, 60, 30))) for n in range(300)
    ]
    passages[0] = ("p0", "d0", "<img src=x onerror=alert(1)>", SCRIPT)
    vectors_ND = rng.normal(size=(300, 32)).astype(np.float32)
    near = Groups(np.array([0, 7, 8]), np.array([0, 0, 0]))
    return make_store(folder / "store", passages, "w1 w2", vectors_ND, checkpoint, near=near)


class Server:
    def __init__(self, store: Store, environment: dict[str, str], log: Path, *more: str) -> None:
        self.port = free_port()
        self.log = log
        command = [
            sys.executable,
            "-m",
            "flows.cli",
            "serve-search",
            "--store",
            str(store.root),
            "--port",
            str(self.port),
        ]
        with log.open("w") as out:
            self.process = subprocess.Popen([*command, *more], env=environment, cwd=ROOT, stdout=out, stderr=out)
        end = time.monotonic() + 240
        while "Stop:" not in log.read_text():
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def server(store, environment, tmp_path_factory) -> Iterator[Server]:
    running = Server(store, environment, tmp_path_factory.mktemp("log") / "log")
    yield running
    running.process.kill()
    running.process.wait()


def browse(address: str, folder: Path, *options: str) -> str:
    # fmt: off
    command = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000", *options, address,
    ]
    # fmt: on
    return subprocess.run(command, capture_output=True, text=True, timeout=180).stdout


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not installed")
def test_a_browser_shows_the_search_page(server, tmp_path) -> None:
    page = f"http://127.0.0.1:{server.port}/"
    html = browse(f"{page}?q=script+w1+w2&by=bm25&k=3", tmp_path, "--dump-dom")
    assert "<title>script w1 w2 · one</title>" in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert "&lt;<mark>script</mark>&gt;document.title = 'taken over'&lt;/<mark>script</mark>&gt;" in html
    assert html.count("<script") == 1  # the page's own
    same = '<summary class="">+2 almost equal</summary><ul class="id"><li class="">p7</li><li class="">p8</li></ul>'
    assert re.sub(' class=""', "", same) in re.sub(' class=""', "", html)
    assert "3 documents, " in html
    assert "the collection has 300 passages" in browse(f"{page}?q=w1&k=301", tmp_path, "--dump-dom")
    long = browse(f"{page}?q={'w1+' * 200}", tmp_path, "--dump-dom")
    assert re.search(r"question cut, tokens read of its 200: \d+; encoder.question_tokens</p>", long)
    assert "10 documents, " in long
    assert "question cut" not in html
    assert "Nothing found" in browse(f"{page}?q=absent&by=bm25", tmp_path, "--dump-dom")
    sizes = {}
    for width in (1200, 500):
        picture = tmp_path / f"{width}.png"
        browse(f"{page}?q=script+w1+w2", tmp_path, f"--screenshot={picture}", f"--window-size={width},900")
        sizes[width] = len(picture.read_bytes())
    assert min(sizes.values()) > 20_000  # an empty page takes 5,000


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not installed")
def test_clicks_on_the_page_are_recorded_if_the_user_wants_it(store, environment, tmp_path) -> None:
    log = tmp_path / "searches.jsonl"
    running = Server(store, environment, tmp_path / "log", "--by", "bm25", "--log", str(log))
    try:
        assert f"recorded in {log}" in (tmp_path / "log").read_text()
        with open_page(f"http://127.0.0.1:{running.port}/?q=w1+w2", tmp_path) as page:
            page.wait("document.querySelectorAll('#answers > li').length === 10")
            assert "Questions and clicks are recorded." in page.value("document.body.innerText")
            page.press("ArrowDown")
            page.press("ArrowDown")
            page.press("Enter")
            page.value("document.querySelectorAll('#answers > li')[4].click()")
            page.value("document.querySelectorAll('#answers > li')[4].click()")
            end = time.monotonic() + 30
            while len(log.read_text().splitlines()) < 3:
                assert time.monotonic() < end
                time.sleep(0.1)
    finally:
        running.process.kill()
    ((search,), lost, _) = read_searches([log])
    assert (search.question, len(search.results), search.clicks, lost) == ("w1 w2", 10, {2, 5}, 0)


@pytest.mark.slow
def test_many_clients_get_the_same_answers_as_one_client(server) -> None:
    questions = [f"w{n} w{n + 1} w{n // 2}" for n in range(50)]
    alone = {question: server.get(f"/api/search?q={question.replace(' ', '+')}")["answers"] for question in questions}
    assert len(alone[questions[0]]) == 10
    report = asyncio.run(load(server.port, 32, 4.0, questions, {"k": 10}))
    assert report["errors"] == 0
    assert report["answers"] > 32
    different, pending = [], iter(questions * 8)

    def ask() -> None:
        for question in pending:
            if server.get(f"/api/search?q={question.replace(' ', '+')}")["answers"] != alone[question]:
                different.append(question)

    threads = [threading.Thread(target=ask) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert different == []


@pytest.mark.slow
def test_an_address_or_a_body_of_a_megabyte_is_refused_and_the_server_stays(server) -> None:
    def refused(method: str, path: str, body: bytes | None = None) -> int:
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
            connection.request(method, path, body)
            return connection.getresponse().status

    assert refused("GET", "/api/search?q=" + "a" * 20_000) == 400
    with suppress(ConnectionError):  # uvicorn closes the connection before it has received everything
        assert refused("GET", "/api/search?q=" + "a" * 1_000_000) == 400
    assert refused("POST", "/api/search", b"a" * 1_000_000) == 413
    assert len(server.get("/api/search?q=w1")["answers"]) == 10
    assert "Traceback" not in server.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_server_leaves_no_process(how, store, environment, tmp_path) -> None:
    running = Server(store, environment, tmp_path / "log", "--by", "bm25")
    try:
        assert running.get("/api")["by"] == "bm25"
        family = psutil.Process(running.process.pid).children(recursive=True)
        assert family
        os.kill(running.process.pid, how)
        assert running.process.wait(30) == (0 if how != signal.SIGKILL else -signal.SIGKILL)
        _, alive = psutil.wait_procs(family, timeout=20)
        assert not alive
        log = (tmp_path / "log").read_text()
        assert how == signal.SIGKILL or log.endswith("The server has ended.\n")
        assert "Traceback" not in log
    finally:
        running.process.kill()


@pytest.mark.slow
def test_a_newer_run_replaces_the_older_one_while_clients_ask(store, environment, tmp_path) -> None:
    copy = Store(shutil.copytree(store.root, tmp_path / "store"))
    running = Server(copy, environment, tmp_path / "log", "--by", "bm25", "--follow")
    try:
        before = running.get("/api")["created"]
        family = psutil.Process(running.process.pid).children(recursive=True)
        with ThreadPoolExecutor(1) as pool:
            load_now = pool.submit(asyncio.run, load(running.port, 4, 15.0, ["w1 w2", "w3"], {"k": 10}))
            run = runs(copy)[0]
            record_run(copy, run.name, run.nodes, run.details)
            end = time.monotonic() + 60
            while "Now answering" not in (tmp_path / "log").read_text():
                assert time.monotonic() < end
                time.sleep(0.1)
            report = load_now.result()
        assert report["errors"] == 0
        assert report["answers"] > 100
        assert running.get("/api")["created"] > before
        assert len(running.get("/api/search?q=w1")["answers"]) == 10
        later = psutil.Process(running.process.pid).children(recursive=True)
        assert len(later) == len(family)  # Java of the older run has ended
        assert not {one.pid for one in later} & {one.pid for one in family}
        running.process.terminate()
        assert running.process.wait(30) == 0
        assert (tmp_path / "log").read_text().endswith("The server has ended.\n")
    finally:
        running.process.kill()


@pytest.mark.slow
def test_a_server_for_a_team_prints_its_token_once(store, environment, tmp_path) -> None:
    running = Server(store, environment, tmp_path / "log", "--by", "bm25", "--host", "127.0.0.1")
    try:
        (token,) = re.findall(r"^Token:  (\S+)$", (tmp_path / "log").read_text(), flags=re.MULTILINE)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            running.get("/api")
        address = f"http://127.0.0.1:{running.port}/api/search?q=w1"
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert len(json.load(answer)["answers"]) == 10
    finally:
        running.process.kill()


@pytest.mark.slow
def test_a_port_that_is_taken_and_a_store_that_is_empty_are_one_line(store, run_cli, tmp_path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        result = run_cli("serve-search", "--port", port, store=store.root)
    assert result.returncode == 2
    assert result.stderr.strip() == f"error: --port {port}: another program uses this port"
    result = run_cli("serve-search", store=tmp_path)
    assert result.returncode == 2
    assert "no finished run to search in" in result.stderr
    assert result.stderr == run_cli("search", "x", store=tmp_path).stderr


def test_a_port_is_reserved_from_the_beginning() -> None:
    """Otherwise a second server loads for a long time and fails only when it begins to listen."""
    port = free_port()
    with (
        listening_socket(port),
        pytest.raises(InputError, match=f"--port {port}: another program uses this port"),
        listening_socket(port),
    ):
        pass
