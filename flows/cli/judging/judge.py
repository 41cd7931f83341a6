"""`cocondenser judge`: a person judges what systems find, and the systems are compared."""

import contextlib
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import (
    Json,
    Relevance,
    SampleSeed,
    StoreFolder,
    differences_table,
    existing_store,
    measures_table,
    out,
    print_json,
    print_table,
    terminal,
    warn,
)
from flows.cli.serve import ADDRESS, listening_socket
from pipeline.errors import InputError
from pipeline.paths import expand_home

if TYPE_CHECKING:
    from flows.judging.comparison import Comparison


def judge(
    folder: Annotated[
        Path,
        typer.Option(
            "--out", parser=expand_home, metavar="FOLDER", help="Folder of the judgements, new or to continue."
        ),
    ],
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Recipe or id of a run (see `cocondenser runs`). Default: the newest run."),
    ] = None,
    systems: Annotated[
        str,
        typer.Option(
            metavar="METHODS",
            help="Search methods to compare, such as bm25,fusion (default: of one run all, of several the one that "
            "answers in each).",
        ),
    ] = "",
    questions: Annotated[
        Path | None,
        typer.Option(
            parser=expand_home,
            metavar="FILE",
            help="Questions: one per line, or BEIR's queries.jsonl. Others are typed.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            parser=expand_home, metavar="FILE", help="Log of `serve-search --log`: its questions, in random order."
        ),
    ] = None,
    planned: Annotated[
        int,
        typer.Option(
            "--questions-planned", min=10, metavar="N", help="Number of questions after which the comparison ends."
        ),
    ] = 50,
    depth: Annotated[int, typer.Option(min=1, max=100, help="Number of first passages of each system to judge.")] = 10,
    measure: Annotated[str, typer.Option(help="Measure to compare.")] = "nDCG@10",
    relevance: Relevance = 1,
    seed: SampleSeed = 42,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="OpenAI-compatible server, up to /v1, whose language model judges instead of a person.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="The server's model.")] = None,
    key_variable: Annotated[
        str, typer.Option(metavar="NAME", help="Environment variable with the server's key.")
    ] = "OPENAI_API_KEY",
    answer_tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most tokens of an answer; a model that thinks first needs more.")
    ] = 300,
    concurrent: Annotated[
        int, typer.Option(min=1, max=256, metavar="N", help="Requests to the server at the same time.")
    ] = 8,
    timeout_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time for each answer of the server; then it is queried again.")
    ] = 120.0,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page.")] = 8081,
    store: StoreFolder = None,
    as_json: Json = False,
) -> None:
    """Judge what two or more systems find, on a page at http://127.0.0.1:8081.

    The page shows the passages of all systems together, shuffled and unnamed.

    Ctrl-C ends it and shows the comparison. The same command continues. With --endpoint a language model judges.

    The judgements are a collection in BEIR's layout.
    """
    from flows.judging.comparison import Rules, check_measure
    from flows.judging.folder import JudgingFolder, Settings
    from flows.judging.language_model import judge_by_model, server_config
    from flows.judging.questions import distinct, read_questions, sample_questions
    from flows.judging.systems import choose_systems

    server = None
    if endpoint is not None or model is not None:
        if endpoint is None or model is None:
            raise InputError("--endpoint and --model belong together: a server's address, and the name of its model")
        server = server_config(endpoint, model, key_variable, answer_tokens, concurrent, timeout_seconds)
        if questions is None and log is None:
            raise InputError("--endpoint: a language model types no questions; name some with --questions or --log")
    rules = Rules(check_measure(measure, depth), relevance, planned, seed)
    wanted = [] if questions is None else read_questions(questions)
    if log is not None:
        wanted = distinct([*wanted, *sample_questions(log, seed)])
    ways = [one.strip() for one in systems.split(",") if one.strip()]
    chosen = choose_systems(existing_store(store), runs or [], ways)
    engine = chosen[0].engine
    identities = {one.name: f"{one.engine.run.nodes['evaluate'].digest} {one.by}" for one in chosen}
    collection = engine.run.nodes[engine.part("ingest")].digest
    settings = Settings(collection, identities, depth, rules, "" if server is None else str(server.model))
    place = JudgingFolder(folder)
    place.check(settings)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts the command with & ignores SIGINT
        signal.signal(number, signal.default_int_handler)
    with ExitStack() as running:
        listener = running.enter_context(listening_socket(port)) if server is None else None
        with terminal.status("Loading ..."):
            from flows.judging.judging import Judging
            from flows.judging.server import serve
            from flows.judging.systems import open_systems, pooled
            from flows.serving.line_log import LineLog

            opened = running.enter_context(open_systems(chosen))
            running.enter_context(place.held())
            place.start(settings, engine.collection)
            record = running.enter_context(LineLog(place.record, alone=True))
            judging = Judging(
                place, settings, record, wanted, lambda query_id, text: pooled(opened, query_id, text, depth, seed)
            )

        def print_address() -> None:
            for one in chosen:
                terminal.print(one.label, style="dim", markup=False, highlight=False, soft_wrap=True)
            terminal.print(f"\nPage:   http://{ADDRESS}:{port}\nStop:   Ctrl-C\n", highlight=False)

        labels = {one.name: one.label for one in chosen}
        with contextlib.suppress(KeyboardInterrupt):  # what is judged counts
            if listener is not None:
                serve(judging, labels, listener, print_address)
            elif server is not None:
                with terminal.status("Judging ...") as status:
                    judge_by_model(judging, server, lambda n, of: status.update(f"Judging: question {n} of {of}"), warn)
        for line in judging.left_out:
            warn(f"{line}; it is left out")
        comparison = judging.comparison()
        if as_json:
            print_json({"out": str(folder), **comparison.as_json(), "labels": labels})
        else:
            print_comparison(comparison, labels)
            terminal.print(f"{folder}: the judgements, in BEIR's layout", markup=False, highlight=False, soft_wrap=True)


def print_comparison(comparison: "Comparison", labels: dict[str, str]) -> None:
    """Means and differences, and the outcome of the plan."""
    from flows.judging.comparison import outcome
    from pipeline.formatting import counted

    out.print(f"{counted(comparison.questions, 'questions')}, mean [95 % interval]", highlight=False)
    if comparison.questions:
        print_table(measures_table({labels[name]: figures for name, figures in comparison.figures["systems"].items()}))
        for pair, figures in comparison.figures["differences"].items():
            a, b = (labels[name] for name in pair.split(" - "))
            out.print(f"\n{a} − {b}", markup=False, highlight=False, soft_wrap=True)
            print_table(differences_table(figures))
    out.print(f"\n{outcome(comparison, labels)}", markup=False, highlight=False, soft_wrap=True)
