"""BM25, an existing model as it is, and their fusion on collections in BEIR's layout: nDCG@10 on the test questions.

    python -m benchmarks.fusion --model DIR --store STORE COLLECTION ...

Prints the rows of docs/results.md's table, with the p of the fusion against the better of its two runs (paired
randomisation, corrected by Holm's method for both comparisons). Exit code 1 if the fusion is worse with p < .05.
"""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from artifacts.store import Store
from flows.cli import main as cli
from flows.cli.options import out
from flows.cli.running.run import run_flow, run_outcome
from flows.graph.prepare import prepare
from flows.graph.selection import store_folder
from flows.runs.zero_shot import zero_shot_recipe
from pipeline.evaluate.significance.paired import is_significant
from pipeline.evaluate.tables.short_tables import way_of
from pipeline.formatting import counted, p_text, share_text

MEASURE = "nDCG@10"


def main(
    collections: Annotated[list[str], typer.Argument(metavar="COLLECTION...", help="Folders in BEIR's layout.")],
    model: Annotated[str, typer.Option(help="A folder of Hugging Face or sentence-transformers.")],
    store: Annotated[Path | None, typer.Option(help="Store of the runs.")] = None,
    tokens: Annotated[int, typer.Option(help="Of a passage, special tokens included.")] = 256,
) -> None:
    """Measures each collection in turn; the store keeps the stages."""
    rows = {Path(name).name: measured(model, name, store_folder(store), tokens) for name in collections}
    out.print(
        "| nDCG@10, test | BM25 | dense | fusion | fusion − the better | p | method |\n|---|---|---|---|---|---|---|"
    )
    for name, metrics in rows.items():
        out.print(row(name, metrics), markup=False, highlight=False, soft_wrap=True)
    if any(difference["mean"] < 0 and is_significant(difference) for difference in map(to_better, rows.values())):
        sys.exit(1)


def measured(model: str, collection: str, root: Path, tokens: int) -> dict[str, Any]:
    """Returns the content of metrics.json."""
    settings = [f"encode.passage_tokens={tokens}"]
    recipe, _ = zero_shot_recipe(Store(root), model, collection, settings, name=None)
    metrics: dict[str, Any] = run_outcome(run_flow(prepare(recipe, settings, store=root, device="cpu")))["results"]
    return metrics


def to_better(metrics: dict[str, Any]) -> dict[str, float]:
    """Returns the difference of the fusion to the better of its two runs, with its p."""
    test = metrics["splits"]["test"]
    better = max(("bm25", "model"), key=lambda name: test["systems"][name][MEASURE]["mean"])
    difference: dict[str, float] = test["differences"][f"fusion - {better}"][MEASURE]
    return difference


def row(name: str, metrics: dict[str, Any]) -> str:
    test, difference = metrics["splits"]["test"], to_better(metrics)
    figures = [share_text(test["systems"][system][MEASURE]["mean"]) for system in ("bm25", "model", "fusion")]
    interval = f"[{share_text(difference['low'])}, {share_text(difference['high'])}]"
    cells = [f"{name}, {counted(test['questions'], 'questions')}", *figures]
    cells += [f"{share_text(difference['mean'])} {interval}", p_text(difference["p_holm"]), way_of(metrics, "fusion")]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    cli.main(lambda: typer.run(main))
