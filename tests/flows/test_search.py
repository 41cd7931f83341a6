"""What `cocondenser search` shows of a passage."""

import subprocess
import sys

import pyarrow
import pyarrow.parquet

from flows.search import excerpt, questions, words_of

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


def test_a_passages_question_is_the_first_that_it_answers(tmp_path) -> None:
    qrels = [("q1", "a", 0), ("q2", "a", 1), ("q3", "a", 2), ("q3", "b", 1)]
    rows = [{"query_id": q, "passage_id": p, "relevance": grade} for q, p, grade in qrels]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "qrels.parquet")
    texts = [{"query_id": f"q{n}", "text": f"question {n}"} for n in (1, 2, 3)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(texts), tmp_path / "queries.parquet")
    assert questions(tmp_path, ["a", "b", "c"]) == {"a": "question 2", "b": "question 3"}
