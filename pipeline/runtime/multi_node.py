"""The other nodes of a training: each runs the same job, and torchrun connects their ranks."""

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from pipeline.runtime.launch import JOB, child_environment
from pipeline.runtime.processes import end_child, ending, listen, python, start_child
from pipeline.runtime.work import silent

SECONDS = 2.0
"""Seconds between two checks for new jobs, and for the end of the current one."""
GRACE = 20.0
"""Seconds that a job gets to end by itself after it has ended on the first node."""


def join(work: Path, tell: Callable[[str], None]) -> None:
    """Takes part in every training that is announced below the folder `work` of a shared store, until interrupted.

    If the announcement of a job is removed, the job has ended on the first node, so it ends here too.
    `tell` gets a line when a job starts and when it ends.
    """
    done: set[str] = set()
    while True:
        for path in work.glob(f"*/checkpoints/{JOB}"):
            text = announced(path)
            if text is not None and json.loads(text)["id"] not in done:
                done.add(json.loads(text)["id"])
                take_part(path, text, tell)
        time.sleep(SECONDS)  # a shared file system does not report new files


def announced(path: Path) -> str | None:
    """Returns the job at `path`, or None if it has ended."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def take_part(path: Path, text: str, tell: Callable[[str], None]) -> None:
    """Runs the job `text` until it ends, or until `path` no longer holds it."""
    job = json.loads(text)
    tell(f"joining {job['function'].split(':')[1]} with {job['ranks']} ranks")
    child = start_child(
        python("pipeline.runtime.child", text),
        child_environment(job["device"], job["threads"], alone=False),
        own_session=False,
    )
    with ThreadPoolExecutor(1) as pool:
        listening = pool.submit(listen, child, silent)
        try:
            while not ended(listening, SECONDS):
                if announced(path) != text and not ended(listening, GRACE):
                    child.terminate()
        finally:
            if not listening.done():  # Ctrl-C
                child.terminate()
        code, reply = child.wait(), listening.result()
    end_child(child)
    if "result" in reply:
        tell("finished")
    else:
        tell(f"failed: {reply.get('input_error') or reply.get('error') or ending(code)}")


def ended(listening: Future[Any], seconds: float) -> bool:
    """Whether the process has ended, or ends within `seconds`."""
    return bool(wait([listening], seconds).done)
