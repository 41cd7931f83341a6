"""`cocondenser evaluate-model`: measures an existing model on a collection, as a run of the flow."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.options import (
    Device,
    Json,
    Settings,
    StoreFolder,
    differences_table,
    measures_table,
    out,
    print_json,
    print_table,
    terminal,
    warn,
)
from pipeline.errors import InputError
from pipeline.paths import expand_home


def evaluate_model(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A folder of Hugging Face or sentence-transformers; or a name on the hub (OWNER/NAME); or a node of a "
            "run (NODE or RUN:NODE); or a digest.",
        ),
    ],
    collection: Annotated[
        str,
        typer.Argument(metavar="COLLECTION", help="A folder in BEIR's layout, an id of ir_datasets, or a recipe."),
    ],
    relevance: Annotated[
        int | None,
        typer.Option(min=1, help="Lowest grade that counts as relevant (default: the collection's recipe's, or 1)."),
    ] = None,
    adapt: Annotated[
        bool,
        typer.Option("--adapt", help="Also adapt the model to the collection without questions, and compare the two."),
    ] = False,
    set: Settings = None,
    name: Annotated[str | None, typer.Option(help="Name of the run (default: MODEL on COLLECTION).")] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            parser=expand_home,
            metavar="FILE.yaml",
            help="Only write the recipe, for `cocondenser plan` and `cocondenser run`.",
        ),
    ] = None,
    store: StoreFolder = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Measure any model on any collection without training it (zero-shot), together with BM25.

    The store keeps all stages, and other runs reuse them.
    """
    import yaml

    from flows.cli.running.run import run_flow, run_outcome
    from flows.graph.ineffective_settings import ineffective_settings
    from flows.graph.prepare import prepare
    from flows.graph.selection import store_to_fill
    from flows.runs.zero_shot import zero_shot_recipe

    settings = [*([] if relevance is None else [f"evaluate.relevance={relevance}"]), *(set or [])]
    target = store_to_fill(store)
    recipe_with = partial(zero_shot_recipe, target, model, collection, name=name, adapt=adapt, device=device)
    recipe, changes = recipe_with(settings)
    for line in ineffective_settings(lambda chosen: recipe_with(chosen)[0], settings, set or []):
        warn(line)
    if write is not None:
        write_recipe_file(write, yaml.safe_dump(changes, sort_keys=False, allow_unicode=True))
        if as_json:
            print_json({"recipe": recipe.name, "file": str(write)})
        else:
            text = f"{write}: `cocondenser plan {write}` shows what it would do"
            terminal.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    prepared = prepare(recipe, settings, store=target.root, device=device)
    refs = run_flow(prepared)
    outcome = run_outcome(refs)
    if as_json:
        print_json({"recipe": recipe.name, **outcome})
        return
    print_measures(outcome["results"])
    if adapt:
        print_adaptation(outcome["results"])


def write_recipe_file(path: Path, text: str) -> None:
    """Writes the file. Raises InputError if it exists with other content, or cannot be written."""
    if path.suffix not in (".yaml", ".yml"):  # without it, `plan` and `run` look for a recipe of this name
        raise InputError(f"--write {path}: the file name must end in .yaml")
    try:
        if path.exists() and path.read_bytes() != text.encode():
            raise InputError(f"--write {path}: the file exists already, with other content")
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"--write {path}: {str(error.strerror).lower()}") from error


def print_measures(metrics: dict[str, Any]) -> None:
    """All measures of all systems, one table per split. (The flow itself shows three measures.)"""
    from pipeline.evaluate.tables.short_tables import shallow_notes
    from pipeline.formatting import counted

    for split, by_judgements in metrics["splits"].items():
        for part, kind in ((by_judgements, ""), (by_judgements.get("answers"), " with answers")):
            if part and part["systems"]:
                systems = part["systems"]
                questions = counted(part["questions"], "questions")
                out.print(f"\n{split}: {questions}{kind}, mean [95 % interval]", highlight=False)
                print_table(measures_table({metrics["labels"][name]: figures for name, figures in systems.items()}))
                for line in shallow_notes(metrics, split, next(iter(systems.values())), systems):
                    out.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def print_adaptation(metrics: dict[str, Any]) -> None:
    """The adapted model and its fusion against the model as it is, a table for each split and pair."""
    from pipeline.evaluate.rows import ADAPTED, FUSION
    from pipeline.evaluate.tables.short_tables import TABLE

    labels = metrics["labels"]
    for split, part in metrics["splits"].items():
        for after, before in ((ADAPTED, "model"), (FUSION, "bm25 + model")):
            if figures := part.get("differences", {}).get(f"{after} - {before}"):
                title = f"\n{split}: {labels[after]} − {labels[before]}, difference [95 % interval]"
                out.print(title, markup=False, highlight=False, soft_wrap=True)
                print_table(differences_table({measure: figures[measure] for measure in TABLE}))
