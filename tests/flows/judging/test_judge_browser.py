"""`cocondenser judge` in a process of its own, judged by keyboard in a real browser."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from answering import make_store, write_model
from browser import CHROMIUM, Page, open_page

from artifacts.store import Store
from flows.deploy.processes import free_port
from pipeline.data.qrels import read_qrels

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which is not installed"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    """300 passages of invented words, random vectors, and a real model from scratch."""
    folder = tmp_path_factory.mktemp("judged")
    checkpoint = write_model(folder, [f"w{n}" for n in range(60)])
    rng = np.random.default_rng(0)
    words = [" ".join(f"w{i}" for i in rng.integers(0, 60, 30)) for _ in range(300)]
    passages = [(f"p{n}", f"d{n}", f"Title {n}", text) for n, text in enumerate(words)]
    passages[0] = ("p0", "d0", "<img src=x onerror=alert(1)>", "w1 <script>document.title='x'</script>\n" * 12)
    return make_store(folder / "store", passages, "w1 w2", rng.normal(size=(300, 32)), checkpoint)


@contextmanager
def judging(store: Store, environment: dict[str, str], folder: Path, *options: str) -> Iterator[tuple[str, Path]]:
    """(address, log) of the command; it gets SIGINT at the end."""
    port, log = free_port(), folder.with_suffix(".log")
    command = [sys.executable, "-m", "flows.cli", "judge", "--store", str(store.root), "--port", str(port)]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "--out", str(folder), *options], env=environment, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        end = time.monotonic() + 240
        while "Stop:" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/", log
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def grades(page: Page) -> list[int | None]:
    """The grade of each passage that the page shows."""
    script = """[...document.querySelectorAll("#passages > li")].map((item) =>
        [...item.querySelectorAll("button")].findIndex((button) => button.ariaPressed === "true"))"""
    return [None if grade < 0 else grade for grade in page.value(script)]


def heading(page: Page) -> str:
    return page.value("document.getElementById('question').textContent")


def test_a_person_judges_by_keyboard_alone(store, environment, tmp_path) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text("w1 w2 w3\nw4 w5\n")
    folder = tmp_path / "judged"
    with (
        judging(store, environment, folder, "--questions", str(questions)) as (address, _),
        open_page(address, tmp_path) as page,
    ):
        page.wait("document.querySelector('[aria-current]')")
        assert heading(page) == "w1 w2 w3"
        pool = len(grades(page))
        assert 10 < pool <= 30
        shown = page.value("document.body.innerText").lower()
        assert not any(word in shown for word in ("bm25", "dense", "fusion"))
        for n, key in enumerate("3021"):
            page.press(key)
            page.wait(f"document.querySelectorAll('.graded').length === {n + 1}")
        assert grades(page)[:5] == [3, 0, 2, 1, None]
        page.press("u")
        page.wait("document.querySelectorAll('.graded').length === 3")
        page.press("n")
        page.wait("document.activeElement.id === 'note'")
        page.type("very 3")
        page.press("Enter")
        page.wait("document.querySelector('.note')?.textContent === 'Note: very 3'")
        assert grades(page)[:4] == [3, 0, 2, None]  # a digit of a note is no grade
        page.press("ArrowUp")
        page.press("0")
        page.wait("document.querySelectorAll('[title=\"not relevant\"][aria-pressed=true]').length === 2")
        assert grades(page)[:4] == [3, 0, 0, None]
        picture = tmp_path / "page.png"
        page.screenshot(picture)
        assert len(picture.read_bytes()) > 20_000
        page.press("r")
        page.wait("document.getElementById('question').textContent === 'w4 w5'")
        page.type("3" * 10)  # faster than the server answers
        page.wait("document.querySelectorAll('.graded').length === 10")
        page.press("/")
        page.wait("document.activeElement.id === 'ask'")
        page.type("w7 w8")
        page.press("Enter")
        page.wait("document.getElementById('status').textContent.startsWith('Question 2 of 3')")
        page.press("s")
        page.wait("document.getElementById('question').textContent === 'w7 w8'")
        page.press("r")
        page.wait("document.getElementById('question').textContent === 'All questions are judged.'")
    record = [json.loads(line) for line in (folder / "judging/record.jsonl").read_text().splitlines()]
    assert [line["entry"] for line in record].count("undo") == 1
    qrels = read_qrels(folder / "qrels/test.tsv")
    assert [*qrels] == ["q1", "q3"]
    assert sorted(qrels["q1"].values()) == [0] * (pool - 1) + [3]
    (note,) = (folder / "judging/notes.jsonl").read_text().splitlines()
    assert json.loads(note)["note"] == "very 3"
    log = folder.with_suffix(".log").read_text()
    assert re.search(r"1 question, mean \[95 % interval\]", log)
    assert "nDCG@10" in log
    assert "Traceback" not in log


def test_the_page_resumes_and_shows_the_comparison_on_request(store, environment, tmp_path) -> None:
    folder, questions = tmp_path / "judged", tmp_path / "questions.txt"
    questions.write_text("\n".join(f"w{n} w{n + 1}" for n in range(12)))
    options = ["--questions", str(questions), "--systems", "bm25,dense", "--questions-planned", "10"]
    with judging(store, environment, folder, *options) as (address, _), open_page(address, tmp_path) as page:
        page.wait("document.querySelector('[aria-current]')")
        for n in range(5):
            page.press("2")
            page.press("r")
            page.wait(f"document.getElementById('status').textContent.startsWith('Question {n + 2} of')")
    with (
        judging(store, environment, folder, *options, "--json") as (address, log),
        open_page(address, tmp_path / "again") as page,
    ):
        page.wait("document.querySelector('[aria-current]')")
        assert heading(page) == "w5 w6"
        assert "No significant difference after 4 of 10" in page.value("document.body.innerText")
        page.value("document.getElementById('show').click()")
        page.wait("!document.getElementById('comparison').hidden")
        assert "BM25 − dense" in page.value("document.getElementById('comparison').innerText")
        for n in range(5, 10):
            page.wait(f"document.getElementById('question').textContent === 'w{n} w{n + 1}'")
            page.press("2")
            page.press("r")
        page.wait("document.getElementById('question').textContent === 'The comparison has ended.'")
        assert grades(page) == []
        assert " after 10 of 10 planned questions." in page.value("document.getElementById('outcome').textContent")
        page.press("u")  # back to the last question, whose end is the end of the plan
        page.wait("document.getElementById('question').textContent === 'w9 w10'")
        page.press("r")
        page.wait("!document.getElementById('more').hidden")
        page.value("document.getElementById('more').click()")
        page.wait("document.getElementById('question').textContent === 'w10 w11'")
        assert None in grades(page)
    printed = json.loads(re.search(r"^\{.*^\}", log.read_text(), re.DOTALL | re.MULTILINE)[0])
    assert printed["questions"] == 10
    assert [look["questions"] for look in printed["looks"]] == [2, 4, 6, 8, 10]
