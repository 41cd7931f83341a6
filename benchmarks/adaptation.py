"""An existing model as it is, adapted without questions, and fine-tuned with questions, alone and fused with BM25.

    python -m benchmarks.adaptation --model DIR --store STORE COLLECTION ...

Each collection in BEIR's layout is run with each seed: the recipe `adapt` with `adapt.queries=1000`, or, without
training questions, `evaluate-model --adapt`. Prints the rows of docs/results.md's table: nDCG@10 on the test questions,
the mean over seeds, and p against the model as it is (paired by question, whose values are means over seeds;
randomisation, not corrected). Exit code 1 if something is worse than the model as it is with p < .05.
"""

import sys
from collections import defaultdict
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow.parquet as pq
import typer

from artifacts.records import Ref
from artifacts.store import Store
from flows.cli import main as cli
from flows.cli.options import out
from flows.cli.running.run import run_flow
from flows.graph.prepare import prepare
from flows.graph.selection import store_folder
from flows.runs.adaptation import ADAPT_QUERIES
from flows.runs.fine_tuning import fine_tuning
from flows.runs.zero_shot import zero_shot_recipe
from pipeline.data.readers.beir import qrels_files
from pipeline.evaluate.significance.paired import p_values
from pipeline.formatting import p_text, share_text

MEASURE = "nDCG@10"
PERMUTATIONS = 10_000
SEEDS = (42, 43, 44)
TRAINED = ("stage1", "stage2", "mine")
"""Sections whose seeds are set, besides that of `adapt`."""

Figures = dict[str, np.ndarray]
"""{system: MEASURE of each test question, in the order of their ids}."""


def main(
    collections: Annotated[list[Path], typer.Argument(metavar="COLLECTION...", help="Folders in BEIR's layout.")],
    model: Annotated[str, typer.Option(help="A folder of Hugging Face or sentence-transformers.")],
    store: Annotated[Path | None, typer.Option(help="Store of the runs.")] = None,
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="Repeatable (default: 42, 43, 44).")] = None,
    set: Annotated[list[str] | None, typer.Option(help="Setting of the recipe. Repeatable.")] = None,
) -> None:
    """Measures each collection in turn; the store keeps the stages."""
    worse = False
    columns = "BM25 | zero-shot | adapted | trained | zero-shot, fused | adapted | trained"
    head = f"| {MEASURE}, test | {columns} |\n|---|---|---|---|---|---|---|---|"
    out.print(head, markup=False, highlight=False, soft_wrap=True)
    for collection in collections:
        found = mean_of([measured(model, collection, store_folder(store), seed, set or []) for seed in seeds or SEEDS])
        text, is_worse = row(collection.name, found)
        worse = worse or is_worse
        out.print(text, markup=False, highlight=False, soft_wrap=True)
    if worse:
        sys.exit(1)


def measured(model: str, collection: Path, root: Path, seed: int, settings: list[str]) -> Figures:
    """Runs a collection with a seed."""
    asked = [f"adapt.seed={seed}", *settings]
    if "train" in qrels_files(collection):
        joined = "evaluate.fusions=[[bm25, pretrained], [bm25, adapted]]"
        more = [f"adapt.queries={ADAPT_QUERIES}", joined, "attention.sections=0"]
        more += [f"{name}.seed={seed}" for name in TRAINED]
        recipe = "adapt"
        asked = fine_tuning(Store(root), recipe, model, str(collection), [*more, *asked]).settings
        run = prepare(recipe, asked, store=root, device="cpu")
    else:
        run = prepare(
            zero_shot_recipe(Store(root), model, str(collection), asked, adapt=True)[0], asked, store=root, device="cpu"
        )
    return figures(run_flow(run)["evaluate"])


def figures(evaluate: Ref) -> Figures:
    """Returns the test questions' values, of systems named as in the table."""
    table = pq.read_table(
        evaluate.path / "per_query.parquet", filters=[("split", "==", "test")], columns=["query_id", "system", MEASURE]
    )
    values: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for one in table.to_pylist():
        values[one["system"]][one["query_id"]] = one[MEASURE]
    start = "pretrained" if "pretrained" in values else "model"
    names = {"BM25": "bm25", "zero-shot": start, "adapted": "adapted", "trained": "stage2"}
    adapted = "bm25 + adapted" if "bm25 + adapted" in values else "fusion"
    fused = {"zero-shot, fused": f"bm25 + {start}", "adapted, fused": adapted, "trained, fused": "fusion"}
    if "stage2" not in values:
        del names["trained"], fused["trained, fused"]
    return {label: np.array([values[name][q] for q in sorted(values[name])]) for label, name in (names | fused).items()}


def mean_of(runs: list[Figures]) -> Figures:
    """Returns the mean over seeds of each question's value."""
    return {name: np.mean([run[name] for run in runs], axis=0) for name in runs[0]}


def row(name: str, found: Figures) -> tuple[str, bool]:
    """Returns a row of the table, and whether something is worse than the model as it is with p < .05."""
    cells = [share_text(float(found[label].mean())) for label in ("BM25", "zero-shot")]
    worse = False
    for end in ("", ", fused"):
        start_Q = found[f"zero-shot{end}"]
        if end:
            cells.append(share_text(float(start_Q.mean())))
        for label in ("adapted", "trained"):
            value_Q = found.get(f"{label}{end}")
            if value_Q is None:
                cells.append("–")
                continue
            (p,) = p_values((value_Q - start_Q)[:, None], "randomisation", PERMUTATIONS, 42)
            worse = worse or bool(p < 0.05 and value_Q.mean() < start_Q.mean())
            shown = p_text(float(p))
            cells.append(f"{share_text(float(value_Q.mean()))} (p {shown if shown.startswith('<') else f'= {shown}'})")
    return f"| {name}, {len(found['BM25']):,} questions | {' | '.join(cells)} |", worse


if __name__ == "__main__":
    cli.main(lambda: typer.run(main))
