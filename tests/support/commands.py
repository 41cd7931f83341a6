"""Runs command lines of the program in forks of one process, which has imported it: that saves each its imports."""

import atexit
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

LIBRARIES = ("torch", "transformers.models.bert.modeling_bert", "prefect.flows", "flows.flow", "flows.cli.main")


@contextmanager
def command_server(environment: Mapping[str, str]) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Yields `run("plan", "tiny", store=STORE)`, which runs the command in the folder that holds the store."""
    command = [sys.executable, str(Path(__file__))]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def run(*arguments: str, store: Path) -> subprocess.CompletedProcess[str]:
            with tempfile.TemporaryDirectory() as folder:
                output, messages = Path(folder, "output"), Path(folder, "messages")
                job = {"arguments": arguments, "store": str(store), "files": [str(output), str(messages)]}
                print(json.dumps(job), file=server.stdin, flush=True)
                code = int(server.stdout.readline())
                return subprocess.CompletedProcess(arguments, code, output.read_text(), messages.read_text())

        yield run


def serve() -> None:
    """Forks for each job of standard input, and writes the fork's exit code."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            become(json.loads(line))
            return
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def become(job: Mapping) -> None:
    """Runs the job's command line in this fork, which ends with its exit code."""
    from flows.cli.main import main

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(job["files"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(Path(job["store"]).parent)
    os.environ["COCONDENSER_STORE"] = job["store"]
    sys.argv = ["cocondenser", *job["arguments"]]
    codes: list[int] = []

    def end() -> None:
        """Frees no memory: a fork copies what it frees, which takes over a second."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0] if codes else 1)

    atexit.register(end)
    try:
        main()
    except SystemExit as ended:
        codes.append(int(ended.code or 0))
        raise
    codes.append(0)


if __name__ == "__main__":
    serve()
