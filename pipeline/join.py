"""The other nodes of a training: each runs the same job, and torchrun brings their ranks together."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pipeline.launch import JOB, training_environment

SECONDS = 2.0


def join(work: Path, tell: Callable[[str], None]) -> None:
    """Takes part in every training that is announced below the folder `work` of a shared store, until interrupted.

    A job that fails here is told; the node that started it then fails too.
    """
    done: set[str] = set()
    while True:
        for path in work.glob(f"*/checkpoints/{JOB}"):
            try:
                text = path.read_text()
            except FileNotFoundError:  # it has just ended
                continue
            job = json.loads(text)
            if job["id"] in done:
                continue
            done.add(job["id"])
            tell(f"joining {job['function'].split(':')[1]} with {job['ranks']} ranks")
            ended = subprocess.run(
                [sys.executable, "-m", "pipeline.child", text],
                env=training_environment(job["device"], job["threads"], alone=False),
                stdout=subprocess.DEVNULL,
                check=False,
            )
            tell("finished" if ended.returncode == 0 else f"ended with exit code {ended.returncode}")
        time.sleep(SECONDS)
