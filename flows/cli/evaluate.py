"""`cocondenser evaluate`: run files of any systems in one table, outside the store; or a model on a collection."""

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from flows.cli.options import (
    Device,
    Json,
    Samples,
    SampleSeed,
    Settings,
    StoreFolder,
    TestOfDifferences,
    columns,
    out,
    print_json,
    print_table,
    table,
    terminal,
    warn,
)
from pipeline.paths import given

if TYPE_CHECKING:
    from pipeline.evaluate.run_files import Counts, Estimates

FORMS = (
    ("runs", "qrels", "test", "samples", "seed"),
    ("model", "collection", "set", "name", "write", "store", "device"),
)
"""Options of files and of a model, the two that must be given first; --relevance and --json are of both."""
FLAGS = {"runs": "--run"}
"""Where an option's name is not that of its parameter."""


def evaluate(
    context: typer.Context,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--run",
            parser=given,
            metavar="FILE",
            help="A TREC run, or MS MARCO's three columns; plain or packed. May stand often.",
        ),
    ] = None,
    qrels: Annotated[
        Path | None,
        typer.Option(
            parser=given,
            metavar="FILE",
            help="Judgements: TREC's 4 columns, BEIR's tsv, or the test of a qrels.parquet.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="A Hugging Face or sentence-transformers folder, or NODE, RUN:NODE, a digest."
        ),
    ] = None,
    collection: Annotated[
        str | None, typer.Option(metavar="DIR", help="A BEIR folder, an ir_datasets id, or a recipe's collection.")
    ] = None,
    relevance: Annotated[
        int, typer.Option(min=1, help="Least judgement that is relevant; 2 for TREC Deep Learning. nDCG takes grades.")
    ] = 1,
    test: TestOfDifferences = "randomisation",
    samples: Samples = 10_000,
    seed: SampleSeed = 42,
    set: Settings = None,
    name: Annotated[
        str | None, typer.Option(help="Of the run of a model; MODEL on COLLECTION where not given.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(parser=given, metavar="FILE.yaml", help="Only write the model's recipe, for `plan` and `run`."),
    ] = None,
    store: StoreFolder = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Measure run files of any systems by judgements, or any model on any collection, zero-shot, beside BM25.

    Of several run files, how far they differ. A model's stages are kept in the store and shared with other runs.
    """
    # Not by the enumeration's member: typer may bring a click of its own.
    sources = {option: context.get_parameter_source(option) for option in context.params}
    given = [option for option, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    check_form(given)
    if model is None or collection is None:
        assert runs
        assert qrels
        evaluate_runs(runs, qrels, relevance, test, samples, seed, as_json)
        return
    from flows.cli.zeroshot import evaluate_model

    graded = [f"evaluate.relevance={relevance}"] if "relevance" in given else []
    settings = [*graded, *(set or [])]
    evaluate_model(model, collection, settings, name=name, write=write, store=store, device=device, as_json=as_json)


def check_form(given: Collection[str]) -> None:
    """InputError where options of both forms are given, or one of a form's pair without the other."""
    from pipeline.errors import InputError

    used = [option for form in FORMS for option in form if option in given]
    for form in FORMS:
        strange = [option for option in used if option not in form]
        if form[0] in given and strange:
            pair = " and ".join(FLAGS.get(option, f"--{option}") for option in form[:2])
            raise InputError(f"{FLAGS.get(strange[0], f'--{strange[0]}')} does not go with {pair}")
    for form in FORMS:
        has = [option for option in form[:2] if option in given]
        lacks = [option for option in form[:2] if option not in given]
        if has and lacks:
            raise InputError(f"{FLAGS.get(has[0], f'--{has[0]}')} needs {FLAGS.get(lacks[0], f'--{lacks[0]}')}")
    if not any(form[0] in given for form in FORMS):
        raise InputError("give --run and --qrels, to measure files, or --model and --collection, to measure a model")


def evaluate_runs(
    runs: list[Path],
    qrels: Path,
    relevance: int,
    test: Literal["randomisation", "t"],
    samples: int,
    seed: int,
    as_json: bool,
) -> None:
    """Measures files, outside the store."""
    from pipeline.evaluate.run_files import evaluate_files
    from pipeline.formatting import counted

    with terminal.status("Measuring ..."):
        found = evaluate_files(runs, qrels, relevance, test, samples, seed)
    if as_json:
        print_json(asdict(found))
        return
    out.print(f"{counted(found.questions, 'questions')}, mean [95 % interval]", highlight=False)
    print_table(table(found.systems))
    for pair in found.differences:
        out.print(f"\n{pair.a} − {pair.b}", markup=False, highlight=False, soft_wrap=True)
        print_table(difference(pair.measures))
    if found.questions_without_relevant:
        warn(f"{qrels}: questions left out, for want of a relevant passage: {found.questions_without_relevant:,}")
    for name, counts in found.counts.items():
        for line in warnings(counts):
            warn(f"{name}: {line}")


def difference(figures: "Estimates") -> Table:
    """A row a measure."""
    from pipeline.evaluate.short_tables import DIFFERENCE, difference_texts

    shown = columns()
    for name in ("", "difference", *DIFFERENCE):
        shown.add_column(name, justify="right" if name else "left")
    for measure, found in figures.items():
        shown.add_row(measure, *difference_texts(found))
    return shown


def warnings(counts: "Counts") -> list[str]:
    """What a reader of the figures must know of a file."""
    said = []
    if counts.questions_without_results:
        said.append(f"questions without results, each counted as zero: {counts.questions_without_results:,}")
    if counts.rows_of_other_questions:
        of = f"{counts.rows_of_other_questions:,} of {counts.rows:,}"
        said.append(f"rows left out, whose questions have no relevant passage in the judgements: {of}")
    if counts.shallow:
        said.append(counts.shallow)
    return said
