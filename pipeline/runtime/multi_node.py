"""The other nodes of a training: each runs the same job, and torchrun brings their ranks together."""

import json
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from pipeline.runtime.launch import JOB, child_environment
from pipeline.runtime.processes import ending, listen, python
from pipeline.runtime.work import silent

SECONDS = 2.0
"""Between two looks for jobs, and whether one is still there."""
GRACE = 20.0
"""Seconds in which a job that has ended elsewhere should end here by itself."""


def join(work: Path, tell: Callable[[str], None]) -> None:
    """Takes part in every training that is announced below the folder `work` of a shared store, until interrupted.

    A job whose announcement is gone has ended where it was started, and so ends here too.
    """
    done: set[str] = set()
    while True:
        for path in work.glob(f"*/checkpoints/{JOB}"):
            text = announced(path)
            if text is not None and json.loads(text)["id"] not in done:
                done.add(json.loads(text)["id"])
                take_part(path, text, tell)
        time.sleep(SECONDS)  # a shared file system tells nobody of new files


def announced(path: Path) -> str | None:
    """The job at `path`, or None where it has ended."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def take_part(path: Path, text: str, tell: Callable[[str], None]) -> None:
    """Runs the job `text` until it ends, or until `path` does not hold it any more."""
    job = json.loads(text)
    tell(f"joining {job['function'].split(':')[1]} with {job['ranks']} ranks")
    child = subprocess.Popen(
        python("pipeline.runtime.child", text),
        env=child_environment(job["device"], job["threads"], alone=False),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(listen, child, silent)
        try:
            while not ended(heard, SECONDS):
                if announced(path) != text and not ended(heard, GRACE):
                    child.terminate()
        finally:
            if not heard.done():  # Ctrl-C
                child.terminate()
        code, answer = child.wait(), heard.result()
    if "result" in answer:
        tell("finished")
    else:
        tell(f"failed: {answer.get('input_error') or answer.get('error') or ending(code)}")


def ended(heard: Future[Any], seconds: float) -> bool:
    """Has the process said its last words, or does it within so many seconds?"""
    return bool(wait([heard], seconds).done)
