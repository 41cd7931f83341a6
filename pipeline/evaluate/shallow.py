"""Measures that are deeper than a run's lists, and the meaning of their figures."""

from collections.abc import Iterable

WHOLE = 1000
"""Length of a complete ranking for AP, as in TREC's runs."""
ASK_MORE = ("nDCG", "AP")
"""Measures that depend on all relevant passages, so that a cut list's figure is not the measure at the cut."""


def cut_at(longest: int, passages: int | None = None, depth: int | None = None) -> int | None:
    """Returns the length at which a run's lists were cut: the length of its longest list.

    None if nothing was cut: the longest list has the whole collection (`passages`), or is shorter than the `depth` of
    the search. `passages`, `depth`: None if unknown.
    """
    whole = passages is not None and longest >= passages
    ended = depth is not None and longest < depth
    return None if whole or ended or not longest else longest


def shallow(cut: int | None, measures: Iterable[str]) -> str:
    """Returns a note about figures of lists that were cut at `cut`; empty if no measure is deeper.

    Example: `no list is longer than 100; R@1000 is R@100 there, and AP is cut`.
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
    """Returns `A is`, `A and B are`, `A, B and C are`."""
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are"
