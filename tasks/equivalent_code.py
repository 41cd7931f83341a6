"""Code that builds equal bytes: after a refactoring the artifacts of older code stay valid.

    python -m tasks.equivalent_code COMMIT

runs the golden recipes with the code of COMMIT and with today's, compares every artifact byte by byte, and writes
equivalent_code.json: {stage: {hash of older code: hash of today's}}. Where a configuration has other names than in
older code, tasks/older_names.py translates.
"""

import argparse
import fnmatch
import json
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from artifacts.keys import Equivalent, code_hash
from artifacts.objects import MANIFEST
from artifacts.records import Record
from artifacts.store import Store
from pipeline.runtime.processes import environment, python
from tasks import older_names
from tasks.stages import STAGES

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).parent / "equivalent_code.json"
Table = dict[str, dict[str, str]]

BUDGETS = ["condenser.budget=null", "cocondenser.budget=null", "ict.budget=6 steps"]
OLDER_BUDGETS = [
    *("condenser.steps=0", "condenser.tokens=null", "cocondenser.steps=0", "cocondenser.tokens=null", "ict.steps=6"),
]
"""The same settings, for code without the field `budget`."""
METHODS = [
    *("ict.batch_passages=16", "encoder.tied=false", "encoder.projection=16", "attention.sections=20"),
    *("cross_encoder.loss=pointwise", "cross_encoder.negatives_per_query=1"),
    *("denoise.threshold=0.6", "rerank={depth: 10, splits: [dev, test]}"),
]


def golden(budgets: bool) -> dict[str, list[str]]:
    """Returns commands whose artifacts must be equal, by the name of their store; together they run nearly every stage.

    `budgets`: whether the code knows the field `budget`.
    """
    settings = [*(BUDGETS if budgets else OLDER_BUDGETS), *METHODS]
    return {
        "tiny": ["run", "tiny"],
        "methods": ["run", "tiny", *(word for setting in settings for word in ("--set", setting))],
        "ablation": ["ablation", "run", "tiny"],
    }


METRICS = "metrics.json"
"""An evaluation's figures. They include its configuration, whose fields may have older names."""
VARYING = {"bm25": "index/*", "report": "report.html"}
"""Files that differ from build to build of the same code: Lucene's, and a page that shows times."""


class Comparison(NamedTuple):
    codes: dict[str, tuple[str, str]]
    """Stage -> (hash of the older code, hash of today's), of stages whose artifacts are all equal."""
    different: dict[str, str]
    """Stage -> the first artifact that differs, in one line."""


@cache
def read_table() -> Table:
    found: Table = json.loads(TABLE.read_text())
    return found


def equivalent(stage: str, code: Mapping[str, str]) -> Equivalent:
    """Returns the older code of the stage that builds the same bytes as `code`."""
    now = code_hash(code)
    older = frozenset(then for then, same in read_table().get(stage, {}).items() if same == now)
    names = tuple(name for name, todays in older_names.STAGES.items() if todays == stage)
    return Equivalent(older, names, partial(older_names.todays_config, stage), older_names.todays_inputs)


def compare_builds(before: Iterable[Record], after: Iterable[Record], objects: Sequence[Path]) -> Comparison:
    """Compares two builds of the same command, node by node. `objects`: the folders of their stores' objects.

    A store may hold several builds of a node, newest first: the newest counts.
    """
    older: dict[str, Record] = {}
    for record in before:
        older.setdefault(older_names.todays_node(record.node), record)
    codes: dict[str, tuple[str, str]] = {}
    different: dict[str, str] = {}
    compared: set[str] = set()
    for record in after:
        if record.node in compared:
            continue
        compared.add(record.node)
        then = older.get(record.node)
        problem = f"{record.node}: not built by the older code" if then is None else difference(then, record, objects)
        if problem is not None:
            different.setdefault(record.stage, problem)
        elif then is not None:
            codes[record.stage] = (code_hash(then.code), code_hash(record.code))
    return Comparison({stage: pair for stage, pair in codes.items() if stage not in different}, different)


def difference(then: Record, now: Record, objects: Sequence[Path]) -> str | None:
    """Returns one line about the file in which two artifacts differ; None if they are equal."""
    both = [*zip(objects, (then, now), strict=True)]
    files = [
        {
            entry["name"]: entry["sha256"]
            for entry in json.loads((folder / record.digest / MANIFEST).read_text())["files"]
            if not fnmatch.fnmatch(entry["name"], VARYING.get(record.stage, ""))
        }
        for folder, record in both
    ]
    names = [name for name in sorted({*files[0], *files[1]}) if files[0].get(name) != files[1].get(name)]
    if now.stage == "evaluate" and names == [METRICS]:
        before, after = (json.loads((folder / record.digest / METRICS).read_text()) for folder, record in both)
        before["config"] = older_names.todays_config(now.stage, before["config"])
        names = [] if before == after else names
    return f"{now.node}: {names[0]} differs" if names else None


def updated(table: Table, codes: Mapping[str, tuple[str, str]]) -> Table:
    """Returns the table with today's code of each stage of `codes`; older entries lead to today's code too."""
    result = dict(table)
    for stage, (then, now) in codes.items():
        earlier = [old for old, same in table.get(stage, {}).items() if same in (then, now)]
        result[stage] = {old: now for old in sorted({*earlier, then}) if old != now}
    return {stage: entry for stage, entry in sorted(result.items()) if entry}


def run_command(code: Path, words: Sequence[str], store: Path) -> None:
    """Runs the command line of a checkout. Raises CalledProcessError."""
    own = {**environment(), "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}
    command = python("flows.cli", *words, "--store", str(store))
    subprocess.run(command, cwd=code, env=own, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def checkout(commit: str) -> Any:
    """Yields a temporary worktree of `commit`."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "code"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(place), commit], cwd=ROOT, check=True)
        try:
            yield place
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(place)], cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tasks.equivalent_code", description=__doc__.partition("\n")[0])
    parser.add_argument("commit", help="the commit whose artifacts are to stay valid")
    parser.add_argument("--stores", type=Path, help="keep the stores of both builds in this folder, for another call")
    parser.add_argument(
        "--only", choices=golden(True), nargs="*", default=list(golden(True)), help="these golden commands alone"
    )
    options = parser.parse_args()
    found: dict[str, list[Comparison]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as temporary, checkout(options.commit) as older:
        folder = options.stores or Path(temporary)
        for name in options.only:
            stores = [Store((folder / f"{name}-{side}").absolute()) for side in ("before", "after")]
            for code, store in zip((older, ROOT), stores, strict=True):
                words = golden("\n  budget:" in (code / "flows" / "recipes" / "base.yaml").read_text())[name]
                print(f"{code.name if code == ROOT else options.commit}: {shlex.join(words)}", file=sys.stderr)
                run_command(code, words, store.root)
            found[name].append(compare_builds(stores[0].records(), stores[1].records(), [s.objects for s in stores]))
    parts = [part for parts in found.values() for part in parts]
    different = {stage: line for part in parts for stage, line in part.different.items()}
    codes = {stage: pair for part in parts for stage, pair in part.codes.items() if stage not in different}
    for stage, line in different.items():
        print(f"{stage}: {line}: left out of the table")
    table = {stage: entry for stage, entry in read_table().items() if stage not in different}
    TABLE.write_text(json.dumps(updated(table, codes), indent=1) + "\n")
    others = ", ".join(sorted({*STAGES} - {*codes, *different}))
    print(f"{TABLE.relative_to(ROOT)}: {len(codes)} stages; not built: {others}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
