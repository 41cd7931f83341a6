"""The excerpt that is shown of a passage."""

import time

from flows.serving.excerpts import excerpt, highlights, words_of

LONG = "\n".join(f"line {n}" for n in range(20))


def test_a_short_passage_is_shown_as_it_is() -> None:
    assert excerpt("    a\n\n  b", ("b",), most=3) == "    a\n\n  b"


def test_of_a_long_passage_the_lines_with_most_of_the_words_are_shown() -> None:
    text = LONG.replace("line 12", "    Merge\n      sorted lists")
    assert excerpt(text, words_of("merge two sorted lists"), most=2) == "…\nMerge\n  sorted lists\n…"


def test_the_beginning_is_shown_where_no_line_has_a_word() -> None:
    assert excerpt(LONG, ("zebra",), most=2) == "line 0\nline 1\n…"
    assert excerpt(LONG, (), most=2) == "line 0\nline 1\n…"


def test_the_end_of_a_passage_has_no_ellipsis_after_it() -> None:
    assert excerpt(LONG, ("19",), most=2) == "…\nline 18\nline 19"


def test_words_are_marked_where_they_begin_in_any_case() -> None:
    text = "Merges of_merge (merge) résumé Ünmerge remerge\nSORTING"
    marks = highlights(text, words_of("How to merge a résumé, sort"))
    assert [text[start:end] for start, end in marks] == ["Merges", "merge", "résumé", "SORTING"]
    assert highlights("anything", ()) == []


def test_marks_are_right_after_letters_whose_lower_case_is_longer() -> None:
    text = "İİ 😀 merge"
    assert [text[start:end] for start, end in highlights(text, ("merge",))] == ["merge"]


def test_a_word_that_begins_another_is_marked_once() -> None:
    assert highlights("sorted", ("sort", "sorted")) == [(0, 6)]


def test_of_a_page_in_one_line_the_part_around_the_first_word_is_shown() -> None:
    page = 5000 * "alpha " + "needle" + 5000 * " omega"
    text = excerpt(page, ("needle",))
    assert len(text) == 1502
    assert text.startswith("…")
    assert text.endswith("…")
    assert "alpha needle omega" in text
    assert excerpt(page, ()) == page[:1500] + "…"


def test_a_long_text_takes_little_time() -> None:
    start = time.process_time()
    excerpt(100_000 * "alpha beta\n", ("alpha", "beta"))
    assert time.process_time() - start < 2  # it takes 30 s if the line of each word is counted from the beginning
