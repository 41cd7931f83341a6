"""Adaptive Batch Scheduling: sums updated after each swap against sums computed again (5,000 pairs, batches of 64).

python -m benchmarks.abs     100,000 pairs in candidate lists: seconds and peak memory (ten minutes)
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median

import numpy as np

from pipeline.finetune import examples
from pipeline.finetune.scheduling import batch_search as scheduling
from pipeline.finetune.scheduling.process import HARDNESS, JOB, PASSAGES, QUESTIONS, ScheduleJob
from pipeline.finetune.scheduling.similarity import Similarity, dense, grid

ROUNDS = 2
MOST = 2 << 30
"""Bytes that scheduling 100,000 pairs may take."""
CHILD = """
import sys
from pathlib import Path
from benchmarks.peak import peak_bytes
from pipeline.finetune.scheduling.process import search_batches

search_batches(Path(sys.argv[1]))
print(peak_bytes())
"""


def vectors(pairs: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns questions and passages around topics of about 50 pairs, [N, D] float32."""
    rng = np.random.default_rng(0)
    topics = rng.standard_normal((pairs // 50, dimension), dtype=np.float32)
    of_pair = topics[rng.integers(len(topics), size=pairs)]
    of_pair += rng.standard_normal((pairs, dimension), dtype=np.float32)
    noise = (rng.standard_normal((pairs, dimension), dtype=np.float32) / 2 for _ in range(2))
    questions, passages = (of_pair + x for x in noise)
    return questions, passages


def recomputed(sums: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> scheduling.Improve:
    """Greedy search that computes sums(some, others), of each of some with all others, for every swap."""

    def improve(similarity: Similarity, sums_N: np.ndarray, batch_B: np.ndarray) -> np.ndarray:
        unused = np.flatnonzero(sums_N >= 0)
        while len(unused):
            place = sums(batch_B, batch_B).argmin()
            leaving, rest = batch_B[place], np.delete(batch_B, place)
            gains = sums(unused, rest)
            entering = unused[gains.argmax()]
            if gains.max() <= sums(leaving[None], rest)[0]:
                break
            batch_B = np.sort(np.append(rest, entering))
            unused = np.sort(np.append(unused[unused != entering], leaving))
        return batch_B

    return improve


def compare_similarities(pairs: int = 5000, batch: int = 64) -> float:
    """Returns the ratio to row and column sums as defined; prints the ratio to a shortcut.

    The shortcut adds up whole rows of the symmetric sum of similarities, candidates or not, which are contiguous.
    """
    questions, passages = vectors(pairs, 64)
    scores_NN = questions @ passages.T
    similarity = dense(scores_NN, np.zeros((0, 2), np.int64))
    steps_NN = grid(scores_NN).steps(scores_NN)
    np.fill_diagonal(steps_NN, 0)
    both_NN = steps_NN + steps_NN.T
    ways = {
        "kept": scheduling.greedy,
        "by definition": recomputed(lambda a, b: steps_NN[np.ix_(a, b)].sum(1) + steps_NN[np.ix_(b, a)].sum(0)),
        "by whole rows": recomputed(
            lambda a, b: both_NN[b].sum(0)[a] if len(a) > batch else both_NN[np.ix_(a, b)].sum(1)
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        batches = {}
        for name, improve in ways.items():
            started = time.perf_counter()
            sizes = np.diff(examples.batches(pairs, batch)).tolist()
            batches[name] = np.concatenate(list(scheduling.schedule(similarity, sizes, 0, 0, improve)))
            seconds[name].append(time.perf_counter() - started)
        assert all(np.array_equal(found, batches["kept"]) for found in batches.values())
    print(", ".join(f"{name} {median(s):.2f} s" for name, s in seconds.items()), file=sys.stderr)
    return median(slow / fast for slow, fast in zip(seconds["by definition"], seconds["kept"], strict=True))


def large(pairs: int = 100_000, batch: int = 8, dimension: int = 768) -> None:
    """Schedules an epoch in its own process. SystemExit if it needs more than MOST."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, vectors_ND in zip((QUESTIONS, PASSAGES), vectors(pairs, dimension), strict=True):
            np.save(folder / name, vectors_ND)
        sizes = np.diff(examples.batches(pairs, batch)).tolist()
        job = ScheduleJob("greedy", sizes, seed=0, epoch=0, width=0, depth=100, pool=None)
        (folder / JOB).write_text(json.dumps(asdict(job)))
        started = time.monotonic()
        command = [sys.executable, "-c", CHILD, place]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout  # its errors are shown
        spent, took = time.monotonic() - started, int(said.split()[-1])
        print(f"{pairs:,} pairs: {spent:.0f} s, {took / 2**20:,.0f} MiB, {(folder / HARDNESS).read_text().strip()}")
    if took > MOST:
        sys.exit("beyond 2 GB")


ROWS = {"abs_greedy": compare_similarities}

if __name__ == "__main__":
    large()
