"""The rows of the tables of results: which runs are joined, what they are called, which are compared."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import InputError
from pipeline.evaluate.tables.short_tables import FIRST_STAGES, label

if TYPE_CHECKING:
    from pipeline.evaluate.config import EvaluateConfig

ADAPTED = "adapted"
"""The model that was adapted without questions."""
FUSION = "fusion"
"""The row that joins BM25 with the last dense run."""


def is_fine_tuned(name: str) -> bool:
    """Whether one of the flow's runs is that of a retriever which the flow trained on questions."""
    return name.startswith("stage")


def is_dense(name: str) -> bool:
    """Whether one of the flow's runs is a retriever's, whose index can be searched for further questions."""
    return name in ("pretrained", "model", ADAPTED) or is_fine_tuned(name)


def last_dense(names: Iterable[str]) -> str | None:
    return next((name for name in reversed([*names]) if is_dense(name)), None)


def fusion_rows(config: "EvaluateConfig", names: Sequence[str]) -> dict[str, list[str]]:
    """{row: the runs that it joins} in a flow with the runs `names`. Raises InputError where one is not among them."""
    dense = last_dense(names)
    standard = ["bm25", dense] if dense and "bm25" in names else None
    for members in config.fusions:
        for name in members:
            if name not in names and name not in config.systems:
                raise InputError(f"evaluate.fusions: this recipe has no run {name!r}; its own are {', '.join(names)}")
    rows = {" + ".join(members): members for members in config.fusions if members != standard}
    return ({FUSION: standard} if standard else {}) | rows


def labels(bm25: Path | None, names: Sequence[str], joined: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What tables call each row."""
    from pipeline.bm25.settings import read_settings

    found = {name: label(name) for name in names}
    if bm25 is not None:
        found["bm25"] = FIRST_STAGES[read_settings(bm25)["scores"]]
    return found | {row: " + ".join(found[name] for name in members) for row, members in joined.items()}


def compared(names: Sequence[str], others: Sequence[str], joined: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Returns the pairs of systems whose difference gets a row.

    These are each dense system and the one before it, which is never the adapted one, as nothing is trained from it;
    the last one and systems built on it, or `others`; a fusion and each of its parts; fusions with the adapted model
    and with the model as it was.
    """
    dense = [name for name in names if name not in (*others, *joined) and is_dense(name)]
    start_of: dict[str, str] = {}
    before = None
    for name in dense:
        if before is not None:
            start_of[name] = before
        if name != ADAPTED:
            before = name
    pairs = [*start_of.items()]
    if dense and "rerank" in names:
        pairs.append(("rerank", dense[-1]))
    pairs += [(dense[-1], name) for name in names if dense and name in others]
    pairs += [(row, member) for row, members in joined.items() if row in names for member in members]
    if ADAPTED in start_of:
        start = start_of[ADAPTED]
        by_members = {tuple(members): row for row, members in joined.items() if row in names}
        replaced = {row: tuple(start if m == ADAPTED else m for m in members) for members, row in by_members.items()}
        pairs += [(row, by_members[m]) for row, m in replaced.items() if by_members.get(m, row) != row]
    return pairs
