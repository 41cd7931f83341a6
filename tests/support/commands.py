"""Runs command lines of the program in forks of one process, which has imported it: a command need not import it."""

import atexit
import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

LIBRARIES = ("torch", "transformers.models.bert.modeling_bert", "prefect.flows", "flows.flow", "flows.cli.main")
SECONDS = 500
"""The longest time for a command."""
PR_SET_PDEATHSIG = 1
codes: list[int] = []
"""The exit code of a fork whose command has ended."""


@contextmanager
def command_server(environment: Mapping[str, str]) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Yields `run("plan", "tiny", store=STORE)`. After a command that takes too long no other one runs."""
    from flows.deploy.server import QUIET

    with subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__))],
        env={**QUIET, **environment},
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


def end() -> None:
    """Exits without freeing memory: a fork copies what it frees, which takes over a second."""
    if codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0])


def serve() -> None:
    """Forks for each job of standard input, and writes the fork's exit code."""
    die_with_parent()
    atexit.register(end)  # before the libraries register their functions, as the last one runs first
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            replies.close()
            become(json.loads(line))
            return
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), file=replies, flush=True)


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def become(job: Mapping) -> None:
    """Runs the job's command line in this fork, which exits with its code."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows.cli.main import main

    die_with_parent()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(job["files"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(Path(job["store"]).parent)
    os.environ["COCONDENSER_STORE"] = job["store"]
    sys.argv = ["cocondenser", *job["arguments"]]
    code = 1
    try:
        # A flow waits up to two seconds for the end of its heartbeats.
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    codes.append(code)


if __name__ == "__main__":
    serve()
