"""Notices: what a stage dropped, cut or did not know, in one line each, for the user to read.

A stage returns them among its metrics. The terminal, the page, `--json` and the report show them, also where the
artifact comes from the store.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unicodedata import category

Examples = dict[str, list[str]]
"""The first examples of what a count of that name counts."""
METRIC = "notice"
EXAMPLES = 3
"""Examples that a line names."""
LONGEST = 60
"""Characters of an example, or of a wrong value in a message."""


def notice(what: str, count: int, examples: Sequence[str] = (), advice: str = "") -> str:
    """One line, such as `files left out, not UTF-8: 12 (first: a.md, b.md, c.md); save them as UTF-8`.

    `examples`: ids or relative names, the first ones; a path outside the source would make equal inputs differ.
    `advice`: the field to change, or what else the user can do.
    """
    return f"{what}: {count:,}{first(examples)}{f'; {advice}' if advice else ''}"


def first(examples: Sequence[str]) -> str:
    """` (first: a.md, b.md, c.md)`; empty where there are none."""
    shown = [one_line(example) for example in examples[:EXAMPLES]]
    return f" (first: {', '.join(shown)})" if shown else ""


def one_line(text: str, longest: int = LONGEST) -> str:
    """The text, or its first characters, as part of one line (see `escaped`)."""
    return escaped(text if len(text) <= longest else f"{text[: longest - 1]}…")


def escaped(text: str) -> str:
    """The text in one line: what cannot be seen there is escaped.

    Format characters stay: Persian and the scripts of India join and part letters by them.
    """
    return "".join(c if c.isprintable() or category(c) == "Cf" else repr(c)[1:-1] for c in text)


def keep(examples: Examples, name: str, example: str) -> None:
    """Adds an example of what `name` counts, if it is one of the first ones that differ."""
    kept = examples.setdefault(name, [])
    if len(kept) < EXAMPLES and example not in kept:
        kept.append(example)


def of_counts(
    told: Mapping[str, tuple[str, str]], counts: Mapping[str, Any], examples: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """A line for each of the counts that is not 0. `told`: {count: (what is counted, advice)}, in the lines' order."""
    return [
        notice(what, counts[name], (examples or {}).get(name, ()), advice)
        for name, (what, advice) in told.items()
        if counts.get(name)
    ]


def noticed(lines: Iterable[str]) -> dict[str, str]:
    """The lines as a stage's metrics; empty where there is none."""
    text = "\n".join(line for line in lines if line)
    return {METRIC: text} if text else {}


def read_notices(metrics: Mapping[str, Any]) -> list[str]:
    """The lines among a stage's metrics."""
    return str(metrics.get(METRIC) or "").splitlines()
