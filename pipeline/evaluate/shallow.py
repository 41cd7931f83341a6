"""Measures that look deeper than a run's lists go, and what their figures are."""

from collections.abc import Iterable

WHOLE = 1000
"""Passages of a list that AP takes for the whole ranking, as TREC's runs have them."""
ASK_MORE = ("nDCG", "AP")
"""Measures that also ask what could have been found, so that a shorter list has no figure of another name."""


def cut_at(longest: int, passages: int | None = None, depth: int | None = None) -> int | None:
    """Where the lists of a run were cut: the length of its longest one.

    None where nothing was cut: the longest list holds the whole collection (`passages`), or is shorter than the
    `depth` of the search. `passages`, `depth`: None where they are not known.
    """
    whole = passages is not None and longest >= passages
    ended = depth is not None and longest < depth
    return None if whole or ended or not longest else longest


def shallow(cut: int | None, measures: Iterable[str]) -> str:
    """What a reader of the figures must know of lists that were cut there; empty where no measure looks deeper.

    Such as `no list is longer than 100; R@1000 is R@100 there, and AP is cut`.
    """
    deeper = [name for name in measures if cut is not None and int(name.partition("@")[2] or WHOLE) > cut]
    same: dict[str, list[str]] = {}
    for name in deeper:
        if not name.startswith(ASK_MORE):
            same.setdefault(f"{name.partition('@')[0]}@{cut}", []).append(name)
    less = [name for name in deeper if name.startswith(ASK_MORE)]
    parts = []
    if same:
        parts.append(", ".join(f"{_are(names)} {figure}" for figure, names in same.items()) + " there")
    if less:
        parts.append(f"{_are(less)} cut")
    return f"no list is longer than {cut:,}; {', and '.join(parts)}" if parts else ""


def _are(names: list[str]) -> str:
    """`A is`, `A and B are`, `A, B and C are`."""
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are"
