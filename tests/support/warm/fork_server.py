"""A process that has imported the libraries of a training and forks itself for each child that asks for it.

Run as a script: fork_server.py SOCKET. It imports the libraries when the first child asks, and ends with its parent.
A fork is like the process of its own that it replaces: the files, folder, environment and import path of the process
that asks, which ends with the fork's exit code. When that process is killed, so is the fork.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import warnings

LIBRARIES = (
    *("numpy", "pandas", "pyarrow.parquet", "pydantic", "scipy.stats", "faiss", "safetensors.torch", "tokenizers"),
    *("torch", "torch.distributed.run", "torch.utils.flop_counter"),
    *("transformers.models.bert.modeling_bert", "transformers.models.roberta.modeling_roberta"),
    *("transformers.models.auto.modeling_auto", "transformers.models.auto.tokenization_auto"),
)
"""No module of the project: a fork may run a copy of its source."""


PR_SET_PDEATHSIG = 1
codes: list[int] = []
"""The exit code of a fork that has ended its work."""


def end() -> None:
    """Exits without freeing memory: a fork copies what it frees, which takes over a second."""
    if codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0])


def main(path: str) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of forks of a process with threads
    atexit.register(end)  # before the libraries register their functions, as the last one runs first
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    asking: dict[int, tuple[int, socket.socket, int]] = {}
    """File of a fork or of its asker -> (process, the asker's connection, the fork's file)."""
    imported = False
    while True:
        # New jobs last: one of them may get the file number of a job that has just ended.
        for key, _ in sorted(selector.select(), key=lambda event: event[0].fileobj is listener):
            if key.fileobj is listener:
                asker, _ = listener.accept()
                if not imported:
                    imported = True
                    for name in LIBRARIES:
                        importlib.import_module(name)
                files, job = receive(asker)
                if job is None:
                    asker.close()
                    continue
                process = os.fork()
                if process == 0:
                    for one in (listener, asker, *(connection for _, connection, _ in asking.values())):
                        one.close()
                    selector.close()
                    become(job, files)
                    return
                for file in files:
                    os.close(file)
                fork = os.pidfd_open(process)
                for one in (fork, asker.fileno()):
                    asking[one] = process, asker, fork
                    selector.register(one, selectors.EVENT_READ)
            elif key.fd in asking:
                process, asker, fork = asking[key.fd]
                if key.fd != fork:  # the asker has ended
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                _, status = os.waitpid(process, 0)
                with contextlib.suppress(OSError):
                    asker.sendall(str(os.waitstatus_to_exitcode(status)).encode())
                for one in (fork, asker.fileno()):
                    selector.unregister(one)
                    del asking[one]
                os.close(fork)
                asker.close()


def receive(asker: socket.socket) -> tuple[list[int], dict | None]:
    """Returns the three files and the job, or None where the asker has ended."""
    length, files, _, _ = socket.recv_fds(asker, 8, 3)
    with asker.makefile("rb") as stream:
        message = stream.read(int.from_bytes(length, "big"))
    return files, json.loads(message) if message else None


def become(job: dict, files: list[int]) -> None:
    """Runs the module in this fork, as the process would that asks for it."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(job["folder"])
    environment = {**job["environment"], "PIPELINE_PARENT": str(os.getppid())}
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.argv = ["", *job["arguments"]]
    if "PYTHONFAULTHANDLER" in environment:
        faulthandler.enable()
    if "COVERAGE_PROCESS_CONFIG" in environment:
        import coverage

        coverage.process_startup(force=True)
    try:
        runpy.run_module(job["module"], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            codes.append(ended.code or 0)
        raise
    codes.append(0)


if __name__ == "__main__":
    main(sys.argv[1])
