"""A child's function whose shards are the numbers of their rows. Used by several test files."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.runtime import shards


def count(
    *,
    progress: Any,
    device: str,
    folder: str,
    spans: list,
    workers: int,
    numbers: list[int] | None,
    seconds: float = 0.0,
    bad: str = "",
) -> dict:
    """Each shard takes `seconds`. The one that begins at row 0 is `bad`: wrong input, or the end of its parent."""

    def make(start: int, stop: int, tick: shards.Tick) -> np.ndarray:
        if bad == "input" and start == 0:
            raise InputError("row 0 is wrong")
        if bad == "deadly" and start == 0:
            os.kill(int(os.environ["PIPELINE_PARENT"]), 9)
            time.sleep(60)  # it dies with its parent
        (Path(folder) / f"begun-{start}-{os.getpid()}").touch()
        time.sleep(seconds)
        return np.arange(start, stop)

    shards.build_shards(Path(folder), spans, make, device=device, unit="things", progress=progress, numbers=numbers)
    return {}
