"""Joins tables of one ablation that were built separately, such as on several machines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.ablation import kept as ablation_kept
from pipeline.ablation.ablation import render
from pipeline.ablation.config import SEEDED, UNTUNED, AblationConfig, CellConfig
from pipeline.ablation.data import (
    AblationData,
    Cell,
    MeasuredQuestions,
    Place,
    RunResults,
    differing,
    measured_questions,
    questions_text,
)
from pipeline.ablation.files import FILES, read_data
from pipeline.errors import InputError
from pipeline.evaluate.rows import FUSION
from pipeline.paths import check_new_folder

SHARED = {"measures": "measures", "test": "test", "samples": "samples", "seed": "test_seed"}
"""Fields that all parts must share -> their names in an ablation's file."""


def join_folders(parts: Sequence[Path], out: Path, reference: str | None, keep: Path | None = None) -> AblationConfig:
    """Write to `out`, new or empty, what the stage `ablation` would build of the cells of all `parts`.

    A part is such an artifact, its FILES alone, or a file of kept figures. `reference`: as for `join`. `keep`: the file
    that the figures of all parts are kept in. Raises InputError, before anything is written, for parts that do not go
    together.
    """
    check_new_folder(out, "--out")
    if out.resolve() == Path.cwd():
        raise InputError(f"--out {out}: the current folder cannot be replaced; use another")
    if keep is not None and (keep.suffix != ablation_kept.SUFFIX or keep.is_dir() or not keep.parent.is_dir()):
        raise InputError(f"--keep {keep}: expected a file *{ablation_kept.SUFFIX} in an existing folder")
    for part in parts:
        if not _is_kept(part):
            _check_folder(part)
    data = join(
        [(str(part), ablation_kept.read_data_file(part) if _is_kept(part) else read_data(part)) for part in parts],
        reference,
    )
    try:
        target = out.resolve()  # where a link points
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
            rendered = Path(temporary, "rendered")
            rendered.mkdir()
            render(data, rendered)
            rendered.replace(target)  # all of it or nothing
    except OSError as error:
        raise InputError(f"--out {out}: {error.strerror or error}") from error
    if keep is not None:
        ablation_kept.write_data_file(data, keep)
    return data.config


def _is_kept(part: Path) -> bool:
    return part.suffix == ablation_kept.SUFFIX and part.is_file()


def _check_folder(folder: Path) -> None:
    """Raises InputError if the folder is not an ablation's table."""
    if not folder.is_dir():
        raise InputError(f"{folder}: {'a file, not a folder' if folder.exists() else 'no such folder'}")
    missing_file = next((name for name in FILES if not (folder / name).is_file()), None)
    if missing_file is not None:
        within = sorted(str(path.parent) for path in folder.glob(f"*/{FILES[0]}"))
        hint = "or one of an earlier version, which `cocondenser ablation run` builds again"
        if within:
            hint = f"but holds some: use {' '.join(within)}"
        raise InputError(f"{folder}: not the table of an ablation (it has no {missing_file}), {hint}")


def join(parts: Sequence[tuple[str, AblationData]], reference: str | None) -> AblationData:
    """Returns the cells of all (name, part); rows, sizes and seeds in the order of their first occurrence.

    `reference`: None for the first part's; the title is the first part's too. Raises InputError, with the parts' names,
    if they were measured in different ways or have the same cell, and for a reference that is not a row.
    """
    first_name, first = parts[0]
    for name, part in parts[1:]:
        reason = difference(first, part)
        if reason is not None:
            raise InputError(f"{first_name} and {name}: {reason}")
    cells = _cells(parts)
    _check_seeds(parts)
    _check_fusions(parts)
    rows, sizes, seeds = (list(dict.fromkeys(values)) for values in zip(*cells, strict=True))
    named = f"--reference {reference}"
    if reference is None:
        reference = first.config.reference
        named = f"{first_name}: reference {reference}"
    if reference not in rows:
        raise InputError(f"{named}: no such row; known are {', '.join(rows)}")
    placed = {place: cells[place] for place in product(rows, sizes, seeds) if place in cells}
    by_row = [[one for one in placed.values() if one[0].row == row] for row in rows]
    untuned = {_first(own, lambda config, cell: UNTUNED in config.systems) for own in by_row}
    drawn = {_first(own, lambda config, cell: cell.curves is not None) for own in by_row}
    kept = [_kept(*one, place in untuned, place in drawn) for place, one in placed.items()]
    return replace(
        first,
        config=first.config.model_copy(update={"reference": reference, "cells": [config for config, _ in kept]}),
        cells=[cell for _, cell in kept],
        first_stage={split: _with_cut(split, run, parts) for split, run in first.first_stage.items()},
        collections=list(dict.fromkeys(digest for _, part in parts for digest in part.collections)),
    )


def _with_cut(split: str, run: RunResults, parts: Sequence[tuple[str, AblationData]]) -> RunResults:
    """Returns the first stage's run with `cut_at` from any part: the runs are equal, but some lack `cut_at`."""
    return replace(run, cut_at=next((cut for _, part in parts if (cut := part.first_stage[split].cut_at)), None))


def _cells(parts: Sequence[tuple[str, AblationData]]) -> dict[Place, tuple[CellConfig, Cell]]:
    """Returns the cells of all parts. Raises InputError for a cell in two parts."""
    cells: dict[Place, tuple[CellConfig, Cell]] = {}
    found_in: dict[Place, str] = {}
    for name, part in parts:
        for config, cell in zip(part.config.cells, part.cells, strict=True):
            place = config.row, config.size, config.seed
            if place in cells:
                reason = f"{config.row}, {questions_text(config.size)}, seed {config.seed} is in both"
                raise InputError(f"{found_in[place]} and {name}: {reason}")
            cells[place], found_in[place] = (config, cell), name
    return cells


def _check_seeds(parts: Sequence[tuple[str, AblationData]]) -> None:
    """Raises InputError if cells of one row and size are different experiments: their mean would be meaningless."""
    first: dict[tuple[str, int | None], tuple[str, CellConfig]] = {}
    for name, config in ((name, config) for name, part in parts for config in part.config.cells):
        first_part, other = first.setdefault((config.row, config.size), (name, config))
        settings = sorted(_settings(other) ^ _settings(config))
        if settings:
            where = f"{config.row}, {questions_text(config.size)}"
            reason = f"cells of {where} differ in more than their seeds: {', '.join(settings)}"
            raise InputError(f"{first_part} and {name}: {reason}")


def _check_fusions(parts: Sequence[tuple[str, AblationData]]) -> None:
    """Raises InputError if one column fuses BM25 with stage 1 in one part and with stage 2 in another."""
    with_stage: dict[bool, str] = {}
    for name, part in parts:
        for cell in part.config.cells:
            if FUSION in cell.systems:
                with_stage.setdefault("mined" in cell.systems, name)
    if len(with_stage) > 1:
        reason = "BM25 is fused with stage 1 in the first and with stage 2 in the second"
        raise InputError(f"{with_stage[False]} and {with_stage[True]}: {reason}")


def difference(one: AblationData, other: AblationData) -> str | None:
    """Returns why their figures cannot be in one table; None if they can."""
    for field, name in SHARED.items():
        settings = [getattr(part.config, field) for part in (one, other)]
        if settings[0] != settings[1]:
            texts = (", ".join(value) if isinstance(value, list) else str(value) for value in settings)
            return f"different {name}: {' and '.join(texts)}"
    split = differing(_asked(one), _asked(other))
    if split is not None:
        return f"measured on different questions of {split}"
    if one.training_questions != other.training_questions:
        return f"different training questions: {one.training_questions:,} and {other.training_questions:,}"
    if _baseline(one) != _baseline(other):
        return f"figures of {one.label or other.label} differ: not the same collection or settings"
    return None


def _settings(cell: CellConfig) -> set[str]:
    """Returns what defines a cell, except its seed."""
    seeds = tuple(f"{field}=" for field in SEEDED)
    return {word for word in cell.command if not word.startswith(seeds)} | {f"start: {cell.start}"}


def _asked(part: AblationData) -> MeasuredQuestions:
    runs = [(split, run) for cell in part.cells for (split, _), run in cell.runs.items()]
    return measured_questions([*part.first_stage.items(), *runs])


def _baseline(part: AblationData) -> tuple[str, Mapping[str, object]]:
    return part.label, {split: run.figures for split, run in part.first_stage.items()}


def _first(cells: Sequence[tuple[CellConfig, Cell]], has: Callable[[CellConfig, Cell], bool]) -> Place | None:
    """Returns the first seed of the last size among a row's cells with `has`: several parts may have built it."""
    having = [config for config, cell in cells if has(config, cell)]
    return next(((c.row, c.size, c.seed) for c in having if c.size == having[-1].size), None)


def _kept(config: CellConfig, cell: Cell, untuned: bool, drawn: bool) -> tuple[CellConfig, Cell]:
    """Returns a cell for the joined table, which has the model before fine-tuning and the curves once per row."""
    if not untuned:
        config = config.model_copy(update={"systems": {k: run for k, run in config.systems.items() if k != UNTUNED}})
        cell = replace(cell, runs={place: run for place, run in cell.runs.items() if place[1] != UNTUNED})
    if not drawn:
        inputs = {stage: digest for stage, digest in cell.inputs.items() if stage == "evaluate"}
        cell = replace(cell, curves=None, inputs=inputs)
    return config, cell
