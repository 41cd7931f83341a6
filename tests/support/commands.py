"""Runs command lines of the program in forks of one process, which has imported it: a command need not import it."""

import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pipeline.runtime.host import can_fork
from pipeline.runtime.processes import die_with_parent, quick_exit

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("torch", "transformers.models.bert.modeling_bert", "prefect.flows", "flows.flow", "flows.cli.main")
SECONDS = 500
"""The longest time for a command."""

Command = Callable[..., subprocess.CompletedProcess[str]]
"""`run("plan", "tiny", store=STORE)`."""


@contextmanager
def command_server(environment: Mapping[str, str], code: Path = ROOT) -> Iterator[Command]:
    """Yields a function that runs a command of the program in the folder `code`.

    After a command that takes too long no other one runs. Where a process must not fork, each command starts from
    scratch.
    """
    from flows.deploy.server import QUIET

    path = os.pathsep.join([str(code), environment.get("PYTHONPATH", "")])
    if not can_fork():
        there = {**QUIET, **environment, "PYTHONPATH": path}

        def run_from_scratch(*arguments: str, store: Path) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-P", "-m", "flows.cli", *arguments],
                env={**there, "COCONDENSER_STORE": str(store)},
                cwd=store.parent,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )

        yield run_from_scratch
        return
    with subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__))],
        env={**QUIET, **environment, "PYTHONPATH": path, "PIPELINE_PARENT": str(os.getpid())},
        cwd="/",  # pyproject.toml has settings of Prefect
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def run(*arguments: str, store: Path) -> subprocess.CompletedProcess[str]:
            assert server.stdin is not None
            assert server.stdout is not None
            with tempfile.TemporaryDirectory() as folder:
                output, messages = Path(folder, "output"), Path(folder, "messages")
                job = {"arguments": arguments, "store": str(store), "files": [str(output), str(messages)]}
                print(json.dumps(job), file=server.stdin, flush=True)
                try:
                    ready, _, _ = select.select([server.stdout], [], [], SECONDS)
                    reply = server.stdout.readline() if ready else ""
                    assert reply, f"{arguments}: no end within {SECONDS} s, or the end of the server"
                except BaseException:
                    server.kill()
                    raise
                return subprocess.CompletedProcess(arguments, int(reply), output.read_text(), messages.read_text())

        yield run


def serve() -> None:
    """Forks for each job of standard input, and writes the fork's exit code."""
    die_with_parent()
    mark_finished = quick_exit()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            replies.close()
            mark_finished(exit_code_of(json.loads(line)))
            return
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), file=replies, flush=True)


def exit_code_of(job: Mapping) -> int:
    """Runs the job's command line in this fork."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows.cli.main import main

    os.environ["PIPELINE_PARENT"] = str(os.getppid())
    die_with_parent()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(job["files"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(Path(job["store"]).parent)
    os.environ["COCONDENSER_STORE"] = job["store"]
    sys.argv = ["cocondenser", *job["arguments"]]
    try:
        # A flow waits up to two seconds for the end of its heartbeats.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            main()
    except SystemExit as ended:
        return int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve()
