"""Chat completions as OpenAI's API has them: messages, answers and errors."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pipeline.data.text.token_estimate import estimated_tokens
from pipeline.notices import one_line

Message = dict[str, str]
"""`role` (system, user, assistant) and `content`, as in OpenAI's API and in chat templates."""
THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
SHOWN = 200
"""Characters of a server's message."""


class Answer(NamedTuple):
    text: str
    input_tokens: int
    output_tokens: int


class Malformed(ValueError):
    """A body that is no answer."""


def parse(text: str, messages: Sequence[Message]) -> Answer:
    """Returns the answer in a body of OpenAI's format. Raises Malformed for another body."""
    try:
        value = json.loads(text)
        content = value["choices"][0]["message"]["content"]
    except (ValueError, RecursionError, LookupError, TypeError):
        raise Malformed(f"no chat completion: '{one_line(text, SHOWN)}'") from None
    if content is None:  # a refusal
        content = ""
    if not isinstance(content, str):
        raise Malformed(f"no chat completion with text: '{one_line(text, SHOWN)}'")
    content = content.encode(errors="replace").decode()  # halves of surrogate pairs
    asked = sum(estimated_tokens(message["content"]) for message in messages)
    usage = value.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Answer(
        content,
        _count(counts.get("prompt_tokens"), asked),
        _count(counts.get("completion_tokens"), estimated_tokens(content)),
    )


def _count(value: Any, estimate: int) -> int:
    return value if type(value) is int and 0 <= value < 1 << 31 else estimate


def message_of(text: str) -> str:
    """Returns the message in an error's body; the whole body if it is not in OpenAI's format."""
    try:
        error = json.loads(text)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, RecursionError, LookupError, TypeError):
        return text


def without_thoughts(text: str) -> str:
    """Returns an answer without what a reasoning model writes before it."""
    return THOUGHTS.sub("\n", text)
