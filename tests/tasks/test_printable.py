"""Any text can be written to any terminal, and no text controls the terminal."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.padding import Padding
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from tasks.printable import Stream, guard_consoles, guarded, json_text, printable

guard_consoles()
HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x9b31m",
    "\x90q\x9c",
    "a\x7fb",
    "one\rtwo",
    "bell\x07",
    "back\x08space",
    "\x00nul",
    "file\u202efdp.exe",
    "\u2066isolate\u2069",
]
RAW = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def raw(text: str) -> set[str]:
    """The control characters in the text, except tabs and line ends."""
    return RAW & set(text) - {"\n", "\t"}


def cell(text: str) -> Table:
    table = Table(text)
    table.add_row(text, Text(text))
    return table


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize("form", [str, Text, cell, lambda text: Padding(Text(text), 1)])
@pytest.mark.parametrize("markup", [True, False])
def test_no_console_prints_a_control_character(text: str, form, markup: bool) -> None:
    written = io.StringIO()
    Console(file=written, width=80).print(form(text), markup=markup)
    assert raw(written.getvalue()) == set()
    letters = [word for word in ("red", "title", "two", "exe", "isolate", "nul") if word in text]
    assert all(word in written.getvalue() for word in letters)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_standard_stream_prints_a_control_character(text: str) -> None:
    below = io.TextIOWrapper(io.BytesIO(), "utf-8")
    print(text, file=guarded(below), flush=True)
    assert below.buffer.getvalue().decode() == f"{printable(text)}\n"  # type: ignore[attr-defined]
    assert raw(printable(text)) == set()
    assert len(printable(text)) == len(text)


def test_a_consoles_own_styles_and_bars_remain() -> None:
    below = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
    console = Console(file=guarded(below), force_terminal=True, color_system="standard", width=60)
    console.print("[red]alert[/]", highlight=False)
    with Progress(console=console) as bars:
        bars.update(bars.add_task("working \x1b[2J at", total=2), advance=1)
    below.flush()
    written = below.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert "\x1b[31malert\x1b[0m" in written
    assert "\x1b[?25l" in written  # the cursor is hidden
    assert "working \u241b[2J" in written


def test_a_cell_is_not_cut_because_of_its_symbols() -> None:
    written = io.StringIO()
    table = Table("name", box=None)
    table.add_row("\x1b\x1b\x1b\x1b end")
    Console(file=written, width=80).print(table)
    assert "\u241b\u241b\u241b\u241b end" in written.getvalue()


TEXTS = [
    ("b.trec − a.trec", "b.trec - a.trec"),
    ("✓ right, … and “more”", '+ right, ... and "more"'),
    ("loss 5 · 3 ± 1 → ≥ 2", "loss 5 . 3 +/- 1 -> >= 2"),
    ("naïve Ångström", "naive Angstrom"),
    ("α and 中", "\\u03b1 and \\u4e2d"),
    ("caf\udce9.txt", "caf\\xe9.txt"),
    ("━━━╸ ⠋", "---- *"),
    ("\x1b[2J", "?[2J"),
]


@pytest.mark.parametrize(("text", "shown"), TEXTS, ids=lambda value: ascii(value)[1:20])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437", "koi8-r", "utf-8", "utf-16"])
def test_any_text_is_written_in_any_encoding(text: str, shown: str, encoding: str) -> None:
    below = io.TextIOWrapper(io.BytesIO(), encoding)
    stream = guarded(below)
    print(text, file=stream)
    Console(file=stream, width=200).print(Text(text))
    stream.flush()
    lines = below.buffer.getvalue().decode(encoding).splitlines()  # type: ignore[attr-defined]
    assert lines[0].strip() == lines[1].strip()
    if encoding == "ascii":
        assert lines[0] == shown.replace(" . ", " - ")
    for character, shown_character in zip(text, lines[0], strict=False):
        try:
            fits = printable(character).encode(encoding).decode(encoding) == character
        except UnicodeEncodeError:
            break
        assert not fits or shown_character == character  # a character that the encoding has is unchanged


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
@pytest.mark.parametrize("text", [*HOSTILE, *(text for text, _ in TEXTS)], ids=ascii)
def test_json_is_valid_in_any_encoding(text: str, encoding: str) -> None:
    written = json_text({text: [text]}, encoding)
    assert json.loads(written.encode(encoding).decode(encoding)) == {text: [text]}
    assert raw(written) == set()


def test_a_stream_is_guarded_once_and_a_closed_one_is_left() -> None:
    stream = guarded(io.TextIOWrapper(io.BytesIO(), "latin-1"))
    assert isinstance(stream, Stream)
    assert guarded(stream) is stream
    assert stream.encoding == "latin-1"
    assert guarded(None) is None


ENVIRONMENTS = [
    {"PYTHONIOENCODING": "latin-1"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "cp1252"},
    {"PYTHONIOENCODING": "cp437:strict"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
]
SAYS = r"""
import sys, warnings
from flows.cli.main import app, main
from flows.cli.options import out, terminal, print_json, warn, fail
from tasks.terminal import bar, print_line, shown_in

def command():
    out.print("a − b ✓ … α 中")
    print_json({"a": "− α 中"})
    warn("− \x1b[2J")
    warnings.warn("− \x1b[2J")
    with shown_in(terminal), bar("stage1") as progress:
        progress(1, 2, "updates", {"loss": 1.0})
        print_line("· ✓")
    raise ValueError("caf\udce9 − \x1b[2J")

main(command)
"""


@pytest.mark.parametrize("variables", ENVIRONMENTS, ids=str)
def test_all_output_of_a_command_fits_the_encoding(variables: dict[str, str], tmp_path: Path) -> None:
    """Its figures, warnings of libraries and an unexpected error's traceback."""
    program = tmp_path / "says.py"
    program.write_text(SAYS, "utf-8")
    completed = subprocess.run([sys.executable, str(program)], env={**os.environ, **variables}, capture_output=True)
    stderr = completed.stderr.decode("latin-1")
    assert "UnicodeEncodeError" not in stderr
    assert stderr.splitlines()[-1].startswith("ValueError: caf\\xe9 - ")
    assert b"\x1b" not in completed.stdout + completed.stderr
    first, _, rest = completed.stdout.decode("latin-1").partition("\n")
    assert first.startswith("a - b ")
    assert json.loads(rest) == {"a": "− α 中"}
