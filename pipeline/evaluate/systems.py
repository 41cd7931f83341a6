"""Other systems' runs, which every table shows next to the flow's own: ME-BERT, TCT-ColBERT, GAR, DPR-PAQ, ..."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from pipeline.data import run_files
from pipeline.data.text.text_files import wrong_beginning
from pipeline.evaluate.tables.short_tables import LABELS
from pipeline.notices import Examples
from pipeline.runtime.work import Progress

if TYPE_CHECKING:
    import pyarrow

    from pipeline.data.runs import Run

Name = Annotated[str, Field(pattern=r"^[\w(][\w.()-]*( [\w(][\w.()-]*)*$")]
"""Words of letters, digits and `.()-_`: tables join names by ` + ` and ` - `."""
OWN = re.compile("|".join(["bm25", "stage1", "stage2(-[2-9])?", *LABELS]))
"""What the flow calls its own runs."""
TAKEN = re.compile(
    "|".join(["bm25", *LABELS, *LABELS.values(), "pre-trained", r"stage ?\d.*", "fusion", "first stage.*"]),
    re.IGNORECASE,
)
"""Names that would be ambiguous in a table; the flow's labels are among them."""


def check_names(systems: Sequence[str], fusions: Sequence[Sequence[str]]) -> None:
    """Raises ValueError for a name of the flow's own, and for fusions of unknown systems."""
    for name in systems:
        if TAKEN.fullmatch(name):
            raise ValueError(f"systems.{name} is what the flow calls one of its own rows; choose another name")
    for members in fusions:
        for name in members:
            if name not in systems and not OWN.fullmatch(name):
                raise ValueError(
                    f"fusions: no system {name!r}; there are bm25, stage1, stage2, stage2-2, ..., {', '.join(LABELS)} "
                    f"and {', '.join(systems) or 'no other systems'}"
                )
        if len({*members}) < len(members):
            raise ValueError(f"fusions: a system appears twice in {' + '.join(members)}")
    if len({tuple(members) for members in fusions}) < len(fusions):
        raise ValueError("fusions: one appears twice")


def missing(systems: Mapping[str, Path]) -> list[str]:
    """What is wrong with the beginning of each run file, a line each. Quick."""
    return [
        line
        for name, path in systems.items()
        for line in wrong_beginning(f"evaluate.systems.{name}", path, run_files.run_file_rows)
    ]


def read_systems(
    systems: Mapping[str, Path],
    query_ids: Mapping[str, "pyarrow.Array"],
    passage_ids: "pyarrow.Array",
    progress: Progress,
) -> tuple[dict[str, dict[str, "Run"]], dict[str, dict[str, Any]]]:
    """Returns ({split: {system: its run}}, {system: counts of its file's rows, and first `examples` left out}),
    with systems in the order of names.

    Each file is read once. `query_ids`: the counted questions of each split. A system is only in the splits of which
    its file has rows. Raises InputError as `run_files.read_run_file` does.
    """
    found: dict[str, dict[str, Run]] = {split: {} for split in query_ids}
    counts: dict[str, dict[str, Any]] = {}
    if not systems:
        return found, counts
    places = {query_id: n for n, query_id in enumerate(i for ids in query_ids.values() for i in ids.to_pylist())}
    passages = {passage_id: row for row, passage_id in enumerate(passage_ids.to_pylist())}
    ends = np.cumsum([0, *map(len, query_ids.values())])
    for name, path in sorted(systems.items()):
        examples: Examples = {}
        rows, counted = run_files.read_run_file(path, places.get, passages.get, progress, examples)
        counts[name] = {**counted, **({"examples": examples} if examples else {})}
        for split, (start, end) in zip(query_ids, pairwise(ends), strict=True):
            first, last = np.searchsorted(rows.question_R, [start, end])
            if first < last:
                found[split][name] = rows.run(slice(first, last), start)
    return found, counts
