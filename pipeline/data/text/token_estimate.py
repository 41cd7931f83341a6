"""About how many tokens a text has, where no tokenizer counts them."""

BYTES_PER_TOKEN = 4.0
"""Of UTF-8 text."""


def estimated_tokens(text: str) -> int:
    return round(len(text.encode(errors="replace")) / BYTES_PER_TOKEN)
