"""Texts from records and packs as part of one line of a message."""

import pytest
from pydantic import TypeAdapter, ValidationError

from artifacts.names import SHOWN, one_line
from artifacts.schema import Name, first_line

SHOWN_AS = {
    "a\nb": "a\\nb",
    "\x1b[31mred": "\\x1b[31mred",
    "a\u2028b\x85c": "a\\u2028b\\x85c",
    "caf\udce9": "caf\\udce9",
    "می\u200cخواهم": "می\u200cخواهم",
    "क्\u200dष": "क्\u200dष",
    "x" * (SHOWN + 1): "x" * (SHOWN - 1) + "…",
}


@pytest.mark.parametrize("text", SHOWN_AS, ids=ascii)
def test_a_text_stays_on_its_line(text):
    assert one_line(text) == SHOWN_AS[text]


@pytest.mark.parametrize("text", [text for text in SHOWN_AS if len(text) <= SHOWN and "\udce9" not in text], ids=ascii)
def test_a_field_of_a_record_stays_on_its_line(text):
    with pytest.raises(ValidationError) as error:
        TypeAdapter(dict[str, Name]).validate_python({text: 1})
    assert first_line(error.value).startswith(f"{SHOWN_AS[text]}: it should be a valid string")
