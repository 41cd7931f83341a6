"""Tables of one ablation that were made apart, such as on several machines, as one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.ablation import kept as ablation_kept
from pipeline.ablation.ablation import render
from pipeline.ablation.config import SEEDED, UNTUNED, AblationConfig, CellConfig
from pipeline.ablation.data import AblationData, Asked, Cell, Place, Run, asked, differing, questions_text
from pipeline.ablation.files import FILES, read
from pipeline.errors import InputError
from pipeline.evaluate.rows import FUSION

SHARED = {"measures": "measures", "test": "test", "samples": "samples", "seed": "test_seed"}
"""Fields that parts have in common, and what an ablation's file calls them."""


def join_folders(parts: Sequence[Path], out: Path, reference: str | None, keep: Path | None = None) -> AblationConfig:
    """Write to `out`, new or empty, what the stage `ablation` would build of the cells of all `parts`.

    A part is such an artifact, its FILES alone, or a file of kept figures. `reference`: as for `join`. `keep`: the file
    that the figures of all parts are kept in. Raises InputError, before anything is written, for parts that do not go
    together.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out}: a new or an empty folder is asked for")
    if out.resolve() == Path.cwd():
        raise InputError(f"--out {out}: the current folder cannot be replaced; name another")
    if keep is not None and (keep.suffix != ablation_kept.SUFFIX or keep.is_dir() or not keep.parent.is_dir()):
        raise InputError(f"--keep {keep}: expected a file *{ablation_kept.SUFFIX} in an existing folder")
    for part in parts:
        if not _is_kept(part):
            _check_folder(part)
    data = join([(str(part), ablation_kept.read(part) if _is_kept(part) else read(part)) for part in parts], reference)
    try:
        to = out.resolve()  # where a link points
        to.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{to.name}-", dir=to.parent) as beside:
            made = Path(beside, "made")
            made.mkdir()
            render(data, made)
            made.replace(to)  # all of it or nothing
    except OSError as error:
        raise InputError(f"--out {out}: {error.strerror or error}") from error
    if keep is not None:
        ablation_kept.write(data, keep)
    return data.config


def _is_kept(part: Path) -> bool:
    return part.suffix == ablation_kept.SUFFIX and part.is_file()


def _check_folder(folder: Path) -> None:
    """Raises InputError where it is no table of an ablation."""
    if not folder.is_dir():
        raise InputError(f"{folder}: {'a file, and no folder' if folder.exists() else 'no such folder'}")
    lacking = next((name for name in FILES if not (folder / name).is_file()), None)
    if lacking is not None:
        within = sorted(str(path.parent) for path in folder.glob(f"*/{FILES[0]}"))
        hint = "or one of an earlier version, which `cocondenser ablation run` builds again"
        if within:
            hint = f"but holds some: name {' '.join(within)}"
        raise InputError(f"{folder}: no table of an ablation (it has no {lacking}), {hint}")


def join(parts: Sequence[tuple[str, AblationData]], reference: str | None) -> AblationData:
    """The cells of all (name, part): rows, sizes and seeds in the order in which they first stand.

    `reference`: None for the first part's, as its title is. Raises InputError, with the parts' names, where they were
    measured otherwise or have the same cell, and for a reference that is not among the rows.
    """
    first_name, first = parts[0]
    for name, part in parts[1:]:
        said = difference(first, part)
        if said is not None:
            raise InputError(f"{first_name} and {name}: {said}")
    cells = _cells(parts)
    _check_seeds(parts)
    _check_fusions(parts)
    rows, sizes, seeds = (list(dict.fromkeys(values)) for values in zip(*cells, strict=True))
    named = f"--reference {reference}"
    if reference is None:
        reference = first.config.reference
        named = f"{first_name}: reference {reference}"
    if reference not in rows:
        raise InputError(f"{named}: no such row; there are {', '.join(rows)}")
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


def _with_cut(split: str, run: Run, parts: Sequence[tuple[str, AblationData]]) -> Run:
    """The first stage's run, the same in all parts, of which some may not tell where its lists were cut."""
    return replace(run, cut_at=next((cut for _, part in parts if (cut := part.first_stage[split].cut_at)), None))


def _cells(parts: Sequence[tuple[str, AblationData]]) -> dict[Place, tuple[CellConfig, Cell]]:
    """Those of all parts. Raises InputError for one that two parts have."""
    cells: dict[Place, tuple[CellConfig, Cell]] = {}
    found_in: dict[Place, str] = {}
    for name, part in parts:
        for config, cell in zip(part.config.cells, part.cells, strict=True):
            place = config.row, config.size, config.seed
            if place in cells:
                said = f"{config.row}, {questions_text(config.size)}, seed {config.seed} is in both"
                raise InputError(f"{found_in[place]} and {name}: {said}")
            cells[place], found_in[place] = (config, cell), name
    return cells


def _check_seeds(parts: Sequence[tuple[str, AblationData]]) -> None:
    """Raises InputError where cells of one row and size are different experiments: their mean would be of neither."""
    first: dict[tuple[str, int | None], tuple[str, CellConfig]] = {}
    for name, config in ((name, config) for name, part in parts for config in part.config.cells):
        before, other = first.setdefault((config.row, config.size), (name, config))
        settings = sorted(_settings(other) ^ _settings(config))
        if settings:
            where = f"{config.row}, {questions_text(config.size)}"
            said = f"seeds of {where} differ in more than their seeds: {', '.join(settings)}"
            raise InputError(f"{before} and {name}: {said}")


def _check_fusions(parts: Sequence[tuple[str, AblationData]]) -> None:
    """Raises InputError where BM25 is joined with stage 1 in one part and with stage 2 in another, in one column."""
    with_stage: dict[bool, str] = {}
    for name, part in parts:
        for cell in part.config.cells:
            if FUSION in cell.systems:
                with_stage.setdefault("mined" in cell.systems, name)
    if len(with_stage) > 1:
        said = "BM25 is joined with stage 1 in the first and with stage 2 in the second"
        raise InputError(f"{with_stage[False]} and {with_stage[True]}: {said}")


def difference(one: AblationData, other: AblationData) -> str | None:
    """Why their figures cannot stand in one table; None: they can."""
    for field, name in SHARED.items():
        settings = [getattr(part.config, field) for part in (one, other)]
        if settings[0] != settings[1]:
            texts = (", ".join(value) if isinstance(value, list) else str(value) for value in settings)
            return f"other {name}: {' and '.join(texts)}"
    split = differing(_asked(one), _asked(other))
    if split is not None:
        return f"measured on different questions of {split}"
    if one.training_questions != other.training_questions:
        return f"other training questions: {one.training_questions:,} and {other.training_questions:,}"
    if _baseline(one) != _baseline(other):
        return f"figures of {one.label or other.label} differ: not the same collection or settings"
    return None


def _settings(cell: CellConfig) -> set[str]:
    """What makes a cell, without its seed."""
    seeds = tuple(f"{field}=" for field in SEEDED)
    return {word for word in cell.command if not word.startswith(seeds)} | {f"start: {cell.start}"}


def _asked(part: AblationData) -> Asked:
    runs = [(split, run) for cell in part.cells for (split, _), run in cell.runs.items()]
    return asked([*part.first_stage.items(), *runs])


def _baseline(part: AblationData) -> tuple[str, Mapping[str, object]]:
    return part.label, {split: run.figures for split, run in part.first_stage.items()}


def _first(cells: Sequence[tuple[CellConfig, Cell]], has: Callable[[CellConfig, Cell], bool]) -> Place | None:
    """The first seed of the last size of a row's cells that have it: what stands once a row each part may have made."""
    there = [config for config, cell in cells if has(config, cell)]
    return next(((c.row, c.size, c.seed) for c in there if c.size == there[-1].size), None)


def _kept(config: CellConfig, cell: Cell, untuned: bool, drawn: bool) -> tuple[CellConfig, Cell]:
    """What a table of all cells has of one: the model before fine-tuning and the curves stand once a row."""
    if not untuned:
        config = config.model_copy(update={"systems": {k: run for k, run in config.systems.items() if k != UNTUNED}})
        cell = replace(cell, runs={place: run for place, run in cell.runs.items() if place[1] != UNTUNED})
    if not drawn:
        inputs = {stage: digest for stage, digest in cell.inputs.items() if stage == "evaluate"}
        cell = replace(cell, curves=None, inputs=inputs)
    return config, cell
