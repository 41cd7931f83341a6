"""The texts that Lucene gets: indexed passages and questions. `job`: the settings of bm25.json."""

import re
from collections.abc import Mapping
from typing import Any

from pipeline.bm25.languages import CASED, language_of

QUERY_CHARACTERS = 20_000
"""Maximum characters used of a question. A question of 1 MB would take Lucene minutes without better results."""
IDENTIFIER = re.compile(r"_|(?<=[^\W\d])\.(?=[^\W\d])|(?<=[a-z0-9])(?=[A-Z])")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
WORD = re.compile(r"\w+")


def contents(title: str, text: str, job: Mapping[str, Any]) -> str:
    """Returns the indexed text of a passage."""
    return prepared("\n".join([title] * job["titles"] + [text]).strip(), job)


def clean_question(text: str, job: Mapping[str, Any]) -> str:
    """Returns a question for Lucene: cut, with spaces instead of control characters and lone surrogates."""
    text = CONTROL.sub(" ", text[:QUERY_CHARACTERS])
    return " ".join(WORD.findall(text.lower())) if job["scores"] == "weights" else prepared(text, job)


def prepared(text: str, job: Mapping[str, Any]) -> str:
    """Returns the text for the analyser: identifiers split, and in lower case if the analyser keeps capital letters."""
    split = split_identifiers(text, job)
    return split.lower() if language_of(job) in CASED else split


def split_identifiers(text: str, job: Mapping[str, Any]) -> str:
    """Returns the text with its identifiers split, if the job says so: `io.TextWrapper` becomes `io Text Wrapper`."""
    return IDENTIFIER.sub(" ", text) if job["split_identifiers"] else text
