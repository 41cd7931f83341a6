"""What `cocondenser search` shows of a passage."""

import subprocess
import sys

from flows.search import excerpt, words_of

LONG = "\n".join(f"line {n}" for n in range(20))


def test_a_search_does_not_wait_for_prefect() -> None:
    """Its import takes as long as all else of a search but the model."""
    code = "import sys, flows.search; print([m for m in ('prefect', 'torch', 'transformers') if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "[]", ended.stderr


def test_a_short_passage_is_shown_as_it_is() -> None:
    assert excerpt("    a\n\n  b", ["b"], most=3) == "    a\n\n  b"


def test_of_a_long_one_the_lines_that_hold_the_most_of_the_words() -> None:
    text = LONG.replace("line 12", "    Merge\n      sorted lists")
    assert excerpt(text, words_of("merge two sorted lists"), most=2) == "…\nMerge\n  sorted lists\n…"


def test_its_beginning_where_none_holds_any() -> None:
    assert excerpt(LONG, ["zebra"], most=2) == "line 0\nline 1\n…"
    assert excerpt(LONG, [], most=2) == "line 0\nline 1\n…"


def test_its_end_has_no_ellipsis_after_it() -> None:
    assert excerpt(LONG, ["19"], most=2) == "…\nline 18\nline 19"
