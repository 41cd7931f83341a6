"""What is read of a language model's answers."""

import pytest

from pipeline.generate.answers import read_answer

PASSAGE = (
    "Ledgers\nA ledger lists all accounts of a firm, and each entry names the day, the amount and who has paid it."
)


@pytest.mark.parametrize(
    ("answer", "questions"),
    [
        ("What does a ledger list?", ["What does a ledger list?"]),
        ("1. What does a ledger list?\n2) Who keeps one?", ["What does a ledger list?", "Who keeps one?"]),
        ('- "What does a ledger list?"\n* **Who keeps one?**', ["What does a ledger list?", "Who keeps one?"]),
        ("Question: What does a ledger list?", ["What does a ledger list?"]),
        ("Here are two questions:\nWhat does a ledger list?", ["What does a ledger list?"]),
        ('["What does a ledger list?", "Who keeps one?"]', ["What does a ledger list?", "Who keeps one?"]),
        ('```json\n{"questions": ["Who keeps one?"]}\n```', ["Who keeps one?"]),
        ("<think>They want\nquestions about it.</think>\nWho keeps one?", ["Who keeps one?"]),
        ("<think>Who is it that keeps one? endless", []),
        ("What does a ledger list?\nwhat does  a LEDGER list?", ["What does a ledger list?"]),
        ("  \t Who   keeps one?  ", ["Who keeps one?"]),
        ("O que é um livro-razão?", ["O que é um livro-razão?"]),
        ("台帳には何が載っていますか？", ["台帳には何が載っていますか？"]),
        ("Is 3 < 4 and 5 > 2?", ["Is 3 < 4 and 5 > 2?"]),
    ],
)
def test_questions_are_read_in_each_form(answer: str, questions: list[str]) -> None:
    assert read_answer(answer, "question", PASSAGE, 5).questions == questions


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "empty"),
        ("\n \n", "empty"),
        ("<p>What does a ledger list?</p>", "markup"),
        ("What is [a ledger](http://example.org)?", "markup"),
        ("What does a ledger list?<script", "markup"),
        ("What is R&amp;D?", "markup"),
        ("What does a\x1b[31m ledger list?", "control_characters"),
        ("What does a \u202eledger list?", "control_characters"),
        ("What does a \ud800 ledger list?", "control_characters"),
        ("Sure, here they are:", "no_question"),
        ('{"a": 1, "b": 2}', "no_question"),
        ("Ledger?", "too_short"),
        ("why " * 5000, "too_long"),
        ("w" * 30_000, "too_short"),
        ("what is what is what is what is what is what is", "repeating"),
        ("A ledger lists all accounts of a firm, and each entry names the day.", "copied"),
    ],
)
def test_what_is_no_question_is_counted(answer: str, reason: str) -> None:
    passage = PASSAGE.replace("the day,", "the day.")
    reading = read_answer(answer, "question", passage, 5)
    assert reading.questions == []
    assert list(reading.left_out) == [reason]


def test_the_first_questions_are_used() -> None:
    answer = "\n".join(f"What is number {n}?" for n in range(1000))
    assert read_answer(answer, "question", PASSAGE, 3).questions == [f"What is number {n}?" for n in range(3)]


def test_each_kind_has_its_length() -> None:
    assert read_answer("ledger", "keywords", PASSAGE, 1).questions == ["ledger"]
    assert read_answer("Accounts of a firm", "title", PASSAGE, 1).questions == ["Accounts of a firm"]
    assert read_answer("a b", "claim", PASSAGE, 1).questions == []
