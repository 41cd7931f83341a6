"""The real browser of the tests waits also while the page changes."""

import json
from collections import deque
from types import SimpleNamespace

import pytest
from browser import NAVIGATED, Page

TRUE = {"result": {"result": {"value": True}}}


def page_that_answers(*answers: dict) -> Page:
    left = deque({"id": number, **answer} for number, answer in enumerate(answers, 1))
    return Page(SimpleNamespace(send=lambda text: None, recv=lambda seconds: json.dumps(left.popleft())))


def test_waiting_continues_when_a_new_page_replaces_the_old_one() -> None:
    page_that_answers({"error": {"code": -32000, "message": NAVIGATED}}, TRUE).wait("true")


def test_another_error_ends_the_waiting() -> None:
    with pytest.raises(AssertionError, match="no such method"):
        page_that_answers({"error": {"code": -32601, "message": "no such method"}}, TRUE).wait("true")
