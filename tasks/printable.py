"""Makes text safe for a terminal: it can show the text, and the text cannot control it.

Documents, titles, ids and names of files come from anywhere: an escape sequence in one could hide text, change the
window's title or type into the shell. All printed text passes through here: in the consoles of rich (also typer's and
Prefect's), or in the standard streams.
"""

import codecs
import io
import json
import os
import re
import sys
import unicodedata
from contextlib import suppress
from typing import Any, TextIO

from rich import control
from rich.console import Console
from rich.file_proxy import FileProxy

from pipeline.notices import escape

C0 = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: "\N{SYMBOL FOR DELETE}"}
"""Control characters of ASCII -> their symbols: ESC is shown as one symbol."""
OTHERS = (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""C1, which terminals obey as well, and characters that reverse the text after them."""
SYMBOLS = C0 | dict.fromkeys(OTHERS, "\N{REPLACEMENT CHARACTER}")
UNESCAPED = re.compile(f"[\x7f{''.join(map(chr, OTHERS))}]")
"""Control characters that JSON leaves as they are."""

# fmt: off
STAND_INS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "━": "-", "─": "-", "╸": "-", "╺": "-", "│": "|", "·": "-",
    "‘": "'", "’": "'", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "…": "...", "•": "*", "●": "*",
    "✓": "+", "✔": "+", "✗": "x", "✘": "x", "×": "x", "±": "+/-", "≥": ">=", "≤": "<=", "≠": "!=", "≈": "~",
    "→": "->", "←": "<-", "ß": "ss", "æ": "ae", "Æ": "AE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "\ufffd": "?",
    **dict.fromkeys(C0.values(), "?"),
    **{chr(code): "*" for code in range(0x2800, 0x2900)},  # Braille, used by the waiting sign
    **{chr(code): "#" for code in range(0x2580, 0x25A0)},  # blocks
}
# fmt: on
"""Replacements for characters that the terminal lacks."""


def printable(text: str) -> str:
    """Returns the text with a symbol for each control character except tab and line feed; its length stays."""
    return text.translate(SYMBOLS)


def json_text(value: Any, encoding: str = "utf-8", **form: Any) -> str:
    """Returns JSON of characters that `encoding` has, without characters that control a terminal."""
    text = json.dumps(value, ensure_ascii=False, **form)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = json.dumps(value, **form)
    return UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def ascii_replacement(error: UnicodeError) -> tuple[str, int]:
    """A codec's error handler: the nearest ASCII text, or Python's escape, which loses nothing."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(nearest_ascii, error.object[error.start : error.end])), error.end


def nearest_ascii(character: str) -> str:
    """`é` -> `e`, `−` -> `-`, `α` -> `\\u03b1`, a byte of a file's name that is not text -> `\\xe9`."""
    if character in STAND_INS:
        return STAND_INS[character]
    if "\udc80" <= character <= "\udcff":
        return escape(character)
    parts = unicodedata.normalize("NFKD", character)
    letters = "".join(part for part in parts if not unicodedata.combining(part))
    return letters if letters.isascii() else character.encode("ascii", "backslashreplace").decode()


codecs.register_error("stand-in", ascii_replacement)


def guard_streams() -> None:
    """Makes standard output and standard error accept any text, and show control characters as symbols."""
    sys.stdout, sys.stderr = guarded(sys.stdout), guarded(sys.stderr)


def abandon_output() -> None:
    """Discards what standard output still holds. Python would try to write it again when it ends, with a traceback."""
    with suppress(OSError, ValueError):  # a stream of tests has no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def guarded(stream: Any) -> Any:
    if stream is None or isinstance(stream, Stream):  # None: closed before the program started
        return stream
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="stand-in")
    return Stream(stream)


class Stream(FileProxy):
    """A standard stream for `print` and others; rich's consoles know it and write to the inner stream."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(Console(file=stream), stream)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(getattr(self.rich_proxied_file, "encoding", None) or "utf-8")

    def write(self, text: str) -> int:
        return self.rich_proxied_file.write(printable(text))

    def flush(self) -> None:
        if not self.rich_proxied_file.closed:
            self.rich_proxied_file.flush()


def guard_consoles() -> None:
    """Makes every console of rich in this process show control characters as symbols, except those of its own styles.

    All that it prints becomes a `Text`, which replaces the characters of this table.
    """
    control._CONTROL_STRIP_TRANSLATE.update(SYMBOLS)  # type: ignore[arg-type]
