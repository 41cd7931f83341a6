"""The command line. Everything heavy is imported inside the commands, to keep --help quick."""

import errno
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from artifacts.errors import StoreError
from flows.cli.artifacts import artifacts_app
from flows.cli.compare import compare
from flows.cli.evaluate import evaluate
from flows.cli.evaluate_model import evaluate_model
from flows.cli.export import export
from flows.cli.fuse import fuse
from flows.cli.judging.agreement import agreement
from flows.cli.judging.judge import judge
from flows.cli.judging.log_questions import log_questions
from flows.cli.listing import print_recipes
from flows.cli.options import Json, fail
from flows.cli.pack import list_pushed, pack_run, pull_run, push_run, unpack_run
from flows.cli.running.ablation import ablation_app
from flows.cli.running.plan import plan
from flows.cli.running.run import run, update
from flows.cli.running.sentences import sentences_app
from flows.cli.running.train_node import train_node
from flows.cli.runs import runs
from flows.cli.search import search
from flows.cli.serve import serve_search
from pipeline.errors import InputError, JavaFailed
from pipeline.notices import escaped
from tasks.printable import abandon_output, guard_streams

EXPECTED_ERRNOS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE),
    *(errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP),
)
"""Errors of the system that the user can fix, whatever option or field they come from."""
INTERRUPTED = 130
"""Exit code of typer after Ctrl-C."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Train a search model (a dense retriever) on your own documents, as one Prefect flow of cached stages.",
    epilog="Example: [bold]cocondenser run pydocs-small[/bold]",
)
EXAMPLES: dict[Callable[..., None], str] = {
    run: """run pydocs-small --set cocondenser.budget='1_000_000 tokens' --until stage1
run text --model models/all-MiniLM-L6-v2 --adapt --set ingest.path=notes
run adapt --model models/all-MiniLM-L6-v2 --adapt --collection data/adi
run adapt --model intfloat/e5-small-v2 --collection data/scifact
run adapt --model intfloat/e5-small-v2 --collection data/scifact --set 'evaluate.others=\\[data/nfcorpus]'
run generated --model models/all-MiniLM-L6-v2 --collection notes --set generate.pretrained=google/flan-t5-base""",
    update: """update text
update text --judged judged --measure nDCG@10""",
    runs: "runs --recipe pydocs-small",
    compare: "compare pydocs-small text --measure nDCG@10",
    plan: """plan pydocs-small --set stage2.epochs=4
plan text --model models/all-MiniLM-L6-v2 --adapt --set ingest.path=notes
plan text --set ingest.path=notes --set generate.endpoint=http://localhost:11434/v1 --set generate.model=llama3.2""",
    search: """search "How do I merge two sorted lists into one?"
search "how is a date parsed" --where "source = 'pandas'" --by dense
search "merge two sorted lists" --rerank 50 --reranker cross-encoder/ms-marco-MiniLM-L6-v2""",
    serve_search: """serve-search --port 8080
serve-search --log searches.jsonl
serve-search --recipe text --follow
serve-search --host 0.0.0.0 --token-file token --certificate server.pem --key server.key""",
    export: """export my-model
export my-model --only model --only vectors
export my-model --only model --push hub:my-name/my-model""",
    evaluate: "evaluate bm25.trec dense.trec --qrels qrels.test.tsv",
    evaluate_model: """evaluate-model models/all-MiniLM-L6-v2 data/scifact
evaluate-model models/all-MiniLM-L6-v2 data/adi --adapt""",
    judge: """judge --questions questions.txt --out judged
judge pydocs-small text --systems fusion --out judged
judge --questions questions.txt --out judged-by-model --endpoint http://127.0.0.1:8000/v1 --model NAME""",
    log_questions: "log-questions searches.jsonl --judged judged --out clicked",
    agreement: "agreement judged/qrels/test.tsv colleague/qrels/test.tsv",
    fuse: "fuse bm25.trec gar.trec --qrels qrels.dev.tsv --out both.trec",
    train_node: "train-node --store /shared/store",
}
for command, examples in EXAMPLES.items():
    lines = [f"Example: [bold]cocondenser {example}[/bold]" for example in examples.splitlines()]
    app.command(epilog="\n\n".join(lines))(command)
for name, pack_command, example in (
    ("pack", pack_run, "pack pydocs-small run.tar.zst"),
    ("unpack", unpack_run, "unpack run.tar.zst --store other"),
    ("push", push_run, "push s3://bucket/runs pydocs-small"),
    ("pull", pull_run, "pull s3://bucket/runs pydocs-small"),
    ("pushed", list_pushed, "pushed s3://bucket/runs"),
):
    epilog = f"Example: [bold]cocondenser artifacts {example}[/bold]"
    artifacts_app.command(name, epilog=epilog)(pack_command)
app.add_typer(artifacts_app, name="artifacts")
app.add_typer(ablation_app, name="ablation")
app.add_typer(sentences_app, name="sentences")


@app.command(epilog="Example: [bold]cocondenser recipes --json[/bold]")
def recipes(as_json: Json = False) -> None:
    """List the recipes."""
    from flows.recipes.yaml_layers import RECIPES, summaries

    print_recipes(summaries(RECIPES), as_json)


@app.command(
    epilog="Example: [bold]cocondenser up --port 4200[/bold]\n\n"
    "Example: [bold]cocondenser up --notify slack-webhook/search[/bold]"
)
def up(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of Prefect's page and its API.")] = 4200,
    notify: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE/NAME",
            help="A notification block of Prefect, such as slack-webhook/search: it reports updates that fail, or "
            "after which figures are lower.",
        ),
    ] = None,
) -> None:
    """Start Prefect's server, all deployments and one worker. Stop them with Ctrl-C."""
    from flows.cli.up import up as start

    start(port, notify)


@app.command(epilog="Example: [bold]cocondenser deployments --write[/bold]")
def deployments(
    write: Annotated[bool, typer.Option("--write", help="Write it to the file prefect.yaml.")] = False,
) -> None:
    """Print prefect.yaml, with one deployment per recipe."""
    from flows.deploy.deployments import PREFECT_YAML, render

    if write:
        PREFECT_YAML.write_text(render(), encoding="utf-8")
    else:
        print(render(), end="", flush=True)


def main(command: Callable[[], object] = app) -> None:
    """Runs the command line.

    An error that the user can fix is one line and exit code 2. A failed stage shows its last lines, with exit code 1.
    """
    guard_streams()
    try:
        command()
    except (InputError, StoreError, JavaFailed) as error:
        fail(str(error), 2)
    except OSError as error:
        if error.errno not in EXPECTED_ERRNOS:
            raise
        place = "" if error.filename is None else f"{escaped(str(error.filename))}: "
        if error.filename is None:  # standard output has no name
            abandon_output()
        fail(f"{place}{str(error.strerror).lower()}", 2)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            resumes = sys.argv[1:2] in (["run"], ["update"]) or sys.argv[2:3] == ["run"]
            moves = sys.argv[1:3] in (["artifacts", "push"], ["artifacts", "pull"])
            advice = "; the same command resumes from the last checkpoint" if resumes else ""
            advice = "; the same command continues" if moves else advice
            fail(f"interrupted{advice}", INTERRUPTED)
        raise
