"""The excerpt that is shown of a passage."""

import time

from flows.serving.excerpts import excerpt
from pipeline.bm25.highlights import highlighter
from pipeline.bm25.matches import Matcher


def matcher(question: str, text: str) -> Matcher:
    return highlighter(None)([(question, [text])])[0]


LONG = "\n".join(f"line {n}" for n in range(20))


def test_a_short_passage_is_shown_as_it_is() -> None:
    assert excerpt("    a\n\n  b", matcher("bb", "bb"), most=3) == "    a\n\n  b"


def test_of_a_long_passage_the_lines_with_most_of_the_words_are_shown() -> None:
    text = LONG.replace("line 12", "    Merge\n      sorted lists")
    assert excerpt(text, matcher("merge two sorted lists", text), most=2) == "…\nMerge\n  sorted lists\n…"


def test_the_beginning_is_shown_where_no_line_has_a_word() -> None:
    assert excerpt(LONG, matcher("zebra", LONG), most=2) == "line 0\nline 1\n…"
    assert excerpt(LONG, matcher("", LONG), most=2) == "line 0\nline 1\n…"


def test_the_end_of_a_passage_has_no_ellipsis_after_it() -> None:
    assert excerpt(LONG, matcher("19", LONG), most=2) == "…\nline 18\nline 19"


def test_of_a_page_in_one_line_the_part_around_the_first_word_is_shown() -> None:
    page = 5000 * "alpha " + "needle" + 5000 * " omega"
    text = excerpt(page, matcher("needle", page))
    assert len(text) == 1502
    assert text.startswith("…")
    assert text.endswith("…")
    assert "alpha needle omega" in text
    assert excerpt(page, matcher("", page)) == page[:1500] + "…"


def test_of_a_page_in_one_line_the_part_with_most_of_the_words_is_shown() -> None:
    page = 500 * "alpha " + "merge" + 500 * " omega" + " sorted lists merge" + 500 * " omega"
    text = excerpt(page, matcher("merge two sorted lists", page), characters=200)
    assert len(text) == 202
    assert "omega sorted lists merge omega" in text
    apart = "merge" + 500 * " omega" + " lists"
    assert excerpt(apart, matcher("merge lists", apart), characters=200).startswith("merge omega")


def test_a_long_text_takes_little_time() -> None:
    start = time.process_time()
    text = 100_000 * "alpha beta\n"
    excerpt(text, matcher("alpha beta", text))
    assert time.process_time() - start < 2  # it takes 30 s if the line of each word is counted from the beginning


def test_a_long_line_takes_little_time() -> None:
    start = time.process_time()
    text = 100_000 * "alpha beta "
    excerpt(text, matcher("alpha beta", text))
    assert time.process_time() - start < 2
