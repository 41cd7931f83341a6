"""Notices: one line each for what a stage dropped, cut, did not know or decided, for the user to read.

A stage returns them among its metrics. The terminal, the page, `--json` and the report show them, also if the artifact
comes from the store.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unicodedata import category

Examples = dict[str, list[str]]
"""{name of a count: the first examples of what it counts}."""
METRIC = "notice"
EXAMPLES = 3
"""Maximum number of examples in a line."""
LONGEST = 60
"""Maximum length of an example, or of a wrong value in a message, in characters."""


def notice(what: str, count: int, examples: Sequence[str] = (), advice: str = "") -> str:
    """Returns a line such as `files left out, not UTF-8: 12 (first: a.md, b.md, c.md); save them as UTF-8`.

    `examples`: the first ids or relative names; with absolute paths, equal inputs would give different notices.
    `advice`: the field to change, or another action of the user.
    """
    return f"{what}: {count:,}{first(examples)}{f'; {advice}' if advice else ''}"


def first(examples: Sequence[str]) -> str:
    """Returns ` (first: a.md, b.md, c.md)`; empty without examples."""
    shown = [one_line(example) for example in examples[:EXAMPLES]]
    return f" (first: {', '.join(shown)})" if shown else ""


def one_line(text: str, longest: int = LONGEST) -> str:
    """Returns the text, shortened to `longest` characters, for use within a line (see `escaped`)."""
    return escaped(text if len(text) <= longest else f"{text[: longest - 1]}…")


def escaped(text: str) -> str:
    """Returns the text in one line: unprintable characters are escaped.

    Format characters stay: Persian and the scripts of India join and separate letters with them.
    """
    return "".join(c if c.isprintable() or category(c) == "Cf" else escape(c) for c in text)


def escape(character: str) -> str:
    """Returns Python's escape, such as `\\n`; of a byte of a file's name that is not text, the byte: `\\xe9`."""
    is_byte = "\udc80" <= character <= "\udcff"  # as os.fsdecode returns it
    return f"\\x{ord(character) - 0xDC00:02x}" if is_byte else repr(character)[1:-1]


def keep(examples: Examples, name: str, example: str) -> None:
    """Adds an example of what `name` counts, if it is new and one of the first EXAMPLES."""
    first_ones = examples.setdefault(name, [])
    if len(first_ones) < EXAMPLES and example not in first_ones:
        first_ones.append(example)


def cut_metrics(name: str, cut: int, texts: int, lost: int, tokens: int) -> dict[str, int | float]:
    """Returns the metrics of truncated texts: their number, their share of `texts`, and the share of tokens not read.

    `name`: of the texts, such as `passages`. `lost`: tokens that are not read, of all `tokens` of these texts.
    """
    return {
        f"{name}_cut": cut,
        f"{name}_cut_share": cut / max(1, texts),
        f"{name}_unread_share": lost / max(1, tokens),
    }


def with_shares(what: str, name: str, metrics: Mapping[str, Any]) -> str:
    """Returns what the count `name` (`passages_cut`) counts, with the shares if `metrics` has them (`cut_metrics`)."""
    if f"{name}_share" not in metrics:
        return what
    cut, lost = (percent(metrics[share]) for share in (f"{name}_share", f"{name.removesuffix('_cut')}_unread_share"))
    return f"{what}, {cut} of them, so that {lost} of their tokens are not read"


def percent(share: float) -> str:
    """Formats a share as `12%`, or `< 1%`."""
    return f"{share:.0%}" if share >= 0.01 else "< 1%"


def of_counts(
    texts: Mapping[str, tuple[str, str]], counts: Mapping[str, Any], examples: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Returns a notice for each count above 0. `texts`: {count: (what is counted, advice)}, in output order.

    A count of truncated texts is followed by their shares, if `counts` has them.
    """
    return [
        notice(with_shares(what, name, counts), counts[name], (examples or {}).get(name, ()), advice)
        for name, (what, advice) in texts.items()
        if counts.get(name)
    ]


def noticed(lines: Iterable[str]) -> dict[str, str]:
    """Returns the lines as a stage's metrics; empty without lines."""
    text = "\n".join(line for line in lines if line)
    return {METRIC: text} if text else {}


def read_notices(metrics: Mapping[str, Any]) -> list[str]:
    """Returns the notices among a stage's metrics, one line each."""
    return str(metrics.get(METRIC) or "").splitlines()
