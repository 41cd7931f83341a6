"""`cocondenser evaluate --model --collection`: a ready model on a collection, by the flow."""

from pathlib import Path
from typing import Literal

from flows.cli.options import out, print_json, terminal
from flows.cli.prefect import prefect
from pipeline.errors import InputError


def evaluate_model(
    model: str,
    collection: str,
    settings: list[str],
    *,
    name: str | None,
    write: Path | None,
    store: Path | None,
    device: Literal["auto", "cpu", "cuda"] | None,
    as_json: bool,
) -> None:
    """Runs the recipe of flows/runs/zero_shot.py and prints all its measures, or only writes it to `write`."""
    import yaml

    from artifacts.store import Store
    from flows.cli.run import outcome
    from flows.graph.prepare import prepare
    from flows.graph.selection import store_folder
    from flows.runs.zero_shot import zeroshot
    from pipeline.runtime.launch import gpus

    root = store_folder(store)
    cpu = device == "cpu" or (device != "cuda" and not gpus())
    recipe, described = zeroshot(Store(root), model, collection, settings, name=name, cpu=cpu)
    if write is not None:
        keep(write, yaml.safe_dump(described, sort_keys=False, allow_unicode=True))
        if as_json:
            print_json({"recipe": recipe.name, "file": str(write)})
        else:
            terminal.print(
                f"{write}: `cocondenser plan {write}` shows what it would do",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        return
    ready = prepare(recipe, settings, store=root, device=device)
    with prefect(ready):
        from flows.flow import flow_of

        refs = flow_of(ready)(**ready.parameters)
    done = outcome(refs)
    if as_json:
        print_json({"recipe": recipe.name, **done})
        return
    show(done["results"])


def keep(path: Path, text: str) -> None:
    """Writes the file unless it is there already. Raises InputError where it is with other content, or cannot be."""
    if path.suffix not in (".yaml", ".yml"):  # `plan` and `run` would take it for one of the project's recipes
        raise InputError(f"--write {path}: its name must end in .yaml")
    try:
        if path.exists() and path.read_bytes() != text.encode():
            raise InputError(f"--write {path}: is there already, with other content")
        path.write_text(text, "utf-8")
    except OSError as error:
        raise InputError(f"--write {path}: {str(error.strerror).lower()}") from error


def show(metrics: dict) -> None:
    """Every measure of every system, a table a split; the flow's own table has but three."""
    from flows.cli.options import table
    from pipeline.evaluate.short_tables import shallow_notes
    from pipeline.formatting import counted

    for split, judged in metrics["splits"].items():
        for found, kind in ((judged, ""), (judged.get("answers"), " with answers")):
            if found and found["systems"]:
                questions = counted(found["questions"], "questions")
                out.print(f"\n{split}: {questions}{kind}, mean [95 % interval]", highlight=False)
                out.print(table({metrics["labels"][name]: figures for name, figures in found["systems"].items()}))
                for line in shallow_notes(metrics, split, next(iter(found["systems"].values())), found["systems"]):
                    out.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
