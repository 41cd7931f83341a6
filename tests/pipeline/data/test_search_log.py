"""Logs of searches, and clicks as relevance."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.data.search_log import Search, click_rates, clicked_pairs, read_searches, relevant_pairs, texts_of
from pipeline.errors import InputError


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_searches_and_their_clicks_are_joined(tmp_path) -> None:
    one = {"time": "t", "search": "a", "question": "How?", "where": None, "results": ["p", "q"], "by": "dense"}
    first = write(tmp_path / "1", [one, {"search": "a", "click": 2}, {"search": "a", "click": 2}])
    rows = [{**one, "search": "b", "where": "year > 1", "results": []}, {"search": "x", "click": 1}]
    searches, lost, _ = read_searches([first, write(tmp_path / "2", [*rows, {"search": "a", "click": 1}])])
    assert searches == [Search("How?", None, ["p", "q"], {1, 2}), Search("How?", "year > 1", [])]
    assert lost == 1


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("x", "is no line of `serve-search --log`"),
        ('{"search": "a", "click": 3}', "field 'click' is not a position from 1 to 2"),
        ('{"search": "a", "click": true}', "field 'click'"),
        ('{"search": "a", "click": "1"}', "field 'click'"),
        ('{"search": "b", "question": "x", "results": "p"}', "field 'results'"),
        ('{"search": "b", "results": []}', "field 'question'"),
        ('{"question": "x", "results": []}', "field 'search'"),
        ("", ""),
    ],
)
def test_a_line_that_is_no_search_and_no_click_is_refused_with_its_place(tmp_path, row, what) -> None:
    path = write(tmp_path / "log", [{"search": "a", "question": "q", "results": ["p", "q"]}])
    with path.open("a") as log:
        log.write(row + "\n")
    if not row:
        assert len(read_searches([path])[0]) == 1
        return
    with pytest.raises(InputError) as refused:
        read_searches([path])
    assert f"{path}:2: " in str(refused.value)
    assert what in str(refused.value)


def test_lines_that_break_off_are_counted(tmp_path) -> None:
    """The disk was full, or the server is still writing."""
    whole = '{"time": "2026-01-01T00:00:00+00:00", "search": "%s", "question": "q", "results": ["p"]}\n'
    path = tmp_path / "log"
    path.write_text(whole % "a" + whole[:50] + "\n" + whole % "b" + whole[:30])
    log = read_searches([path])
    assert (len(log.searches), log.incomplete_lines) == (2, 2)


@pytest.mark.parametrize("row", ["GET / 200", "\0\0", "[]", "[" * 100_000, '{"search": "a", "question": "\\ud800"}'])
def test_other_lines_are_refused_with_advice(tmp_path, row: str) -> None:
    (tmp_path / "log").write_text(row + "\n")
    with pytest.raises(InputError, match=r"log:1: .*remove it"):
        read_searches([tmp_path / "log"])


def test_files_that_cannot_be_read_are_one_line(tmp_path) -> None:
    (tmp_path / "empty").touch()
    for path in (tmp_path / "empty", tmp_path / "none", tmp_path):
        with pytest.raises(InputError) as refused:
            read_searches([path])
        assert str(path) in str(refused.value)
        assert "\n" not in str(refused.value)


def test_questions_with_the_same_words_are_one(tmp_path) -> None:
    """As in ingest, which else reports the second form as a leak."""
    log = tmp_path / "log"
    rows = [{"search": str(n), "question": q, "results": ["p"], "where": None} for n, q in enumerate(["Ａ b", "a  B"])]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert texts_of(read_searches([log])[0]) == {"a b": "Ａ b"}


def test_clicks_over_expected_clicks() -> None:
    """By hand: position 1 is clicked in 3 of 4 searches, position 2 in 1 of 4."""
    searches = [
        Search("A", None, ["p", "q"], {1}),
        Search(" a ", None, ["p", "q"], {1, 2}),
        Search("b", None, ["q", "p"], {1}),
        Search("b", None, ["p", "q"], set()),
    ]
    assert click_rates(searches) == {1: 0.75, 2: 0.25}
    assert [tuple(one) for one in clicked_pairs(searches)] == [
        ("a", "q", 2, 1, 1 / 0.5),
        ("a", "p", 2, 2, 2 / 1.5),
        ("b", "q", 2, 1, 1 / 1.0),
    ]
    assert [one.passage_id for one in relevant_pairs(searches, 2, 1.2)] == ["q", "p"]
    assert relevant_pairs(searches, 3, 0) == []
    assert texts_of(searches) == {"a": "A", "b": "b"}


def test_the_bias_of_positions_is_removed() -> None:
    """Of simulated users who look at position k with probability 1 / k and click what they see if it is relevant."""
    rng = np.random.default_rng(0)
    searches, relevant = [], {}
    for n in range(60):
        passages = [f"{n}-{k}" for k in range(10)]
        relevant[str(n)] = {one for one in passages if rng.random() < 0.3}
        for _ in range(40):
            clicks = {
                k
                for k, one in enumerate(passages, 1)
                if rng.random() < 1 / k and rng.random() < (0.8 if one in relevant[str(n)] else 0.05)
            }
            searches.append(Search(str(n), None, passages, clicks))
    found = {(one.question, one.passage_id) for one in relevant_pairs(searches, 3, 1.0)}
    truth = {(question, one) for question, ids in relevant.items() for one in ids}
    often = {(one.question, one.passage_id) for one in clicked_pairs(searches) if one.clicks >= 10}
    assert len(found & truth) / len(found) > 0.85
    assert len(found & truth) / len(truth) > 0.95
    assert len(often & truth) / len(truth) < 0.6  # a fixed number of clicks finds the upper positions only
