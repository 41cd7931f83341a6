"""Answers in passages: at least forty cases, derived by hand from the rules of DPR's tokenizer."""

import pytest

from pipeline.evaluate.answer_qrels import holds_answer, normalised

CASES = [
    # Case
    ("The Eiffel Tower is in Paris.", ["paris"], True),
    ("the eiffel tower is in paris.", ["PARIS"], True),
    ("STRASSE", ["straße"], False),  # lower case, not case folding
    ("ΣΊΣΥΦΟΣ", ["σίσυφοσ"], False),  # at the end of a word a capital sigma becomes the final small sigma
    # Whole tokens
    ("He lives in Parisian style.", ["Paris"], False),
    ("The comparison failed.", ["paris"], False),
    ("snow-white", ["snow"], True),
    ("snowwhite", ["snow"], False),
    ("foo_bar", ["foo"], True),  # an underscore is a token of its own
    ("It's over.", ["it"], True),
    ("It's over.", ["its"], False),
    # Several tokens
    ("Barack Obama was born in Honolulu.", ["Barack Obama"], True),
    ("Barack Hussein Obama was born in Honolulu.", ["Barack Obama"], False),
    ("Obama, Barack", ["Barack Obama"], False),
    ("Barack   \n\t Obama", ["Barack Obama"], True),
    ("Barack\u00a0Obama", ["Barack Obama"], True),  # a no-break space
    ("Barack", ["Barack Obama"], False),
    ("the New York Times", ["York Times"], True),
    # Punctuation
    ("the U.S. economy", ["U.S."], True),
    ("the U.S. economy", ["US"], False),
    ("the US economy", ["U.S."], False),
    ("the U. S. economy", ["U.S."], True),  # spaces between tokens do not count
    ("He said: “Yes”", ["yes"], True),
    ("He said: “Yes”", ['"yes"'], False),  # other quotation marks are other tokens
    ("rock 'n' roll", ["rock 'n' roll"], True),
    ("rock n roll", ["rock 'n' roll"], False),
    ("AC/DC", ["ac / dc"], True),
    ("C++ and C", ["C++"], True),
    ("snow\u2013white", ["snow-white"], False),  # a dash is not a hyphen
    # Numbers
    ("in 1984.", ["1984"], True),
    ("in 19845", ["1984"], False),
    ("1,984 people", ["1,984"], True),
    ("1,984 people", ["1984"], False),
    ("3.14 metres", ["3"], True),
    ("4th of July", ["4"], False),  # letters and numbers are one token
    ("x² + 1", ["x2"], False),  # canonical decomposition leaves ² as it is
    # Accents and marks
    ("caf\u00e9", ["cafe\u0301"], True),  # composed and decomposed are one
    ("café", ["cafe"], False),  # but the accent counts
    ("Đồng Nai", ["đồng nai"], True),
    # Characters that are not text
    ("zero\u200bwidth", ["zerowidth"], False),  # a control character ends a token
    # Several answers, and none
    ("in the year MMXX", ["2020", "MMXX"], True),
    ("whatever", [], False),
    ("whatever", ["", "  ", "\u200b"], False),
    ("", ["a"], False),
]


@pytest.mark.parametrize(("passage", "answers", "expected"), CASES)
def test_a_passage_holds_an_answer_by_the_rules_of_dpr(passage, answers, expected):
    assert holds_answer(normalised(passage), map(normalised, answers)) is expected


def test_there_are_at_least_forty_cases():
    assert len({passage + str(answers) for passage, answers, _ in CASES}) >= 40


def test_normalised():
    assert normalised("The U.S.\tEconomy") == " the u . s . economy "
    assert normalised(" \u200b") == " "
