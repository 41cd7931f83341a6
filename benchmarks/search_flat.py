"""Exact search against one call of FAISS's IndexFlatIP on the same data: 200,000 x 256, 100 passages a question.

The ratio is the least of all batch sizes. FAISS is timed with its defaults, with which small batches leave BLAS, and
with BLAS for every batch; whichever is faster counts. It holds the vectors in memory, this project maps its file.
Seconds are the processor's, for one thread: so other load on the machine matters less.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.paired import Figures, Running, Step, Way, ask, running

PASSAGES, DIMENSION, K = 200_000, 256, 100
REPEATS = {1: 24, 8: 12, 64: 4, 128: 2, 256: 1, 1000: 1}
"""{questions in a batch: searches in a step}."""
ROUNDS = 5
SAME = 0.999
"""Share of the lists' passages that both find: FAISS's last bits decide some of the last ones."""


def write_index(folder: Path) -> None:
    """Writes a flat index of random passages, and questions."""
    from pipeline.dense.index_files import flat_header, write_description

    rng = np.random.default_rng(0)
    vectors_ND = rng.normal(size=(PASSAGES, DIMENSION)).astype(np.float16).astype(np.float32)
    np.save(folder / "questions.npy", rng.normal(size=(max(REPEATS), DIMENSION)).astype(np.float32))
    index = folder / "ours"
    index.mkdir()
    (index / "index").write_bytes(flat_header(DIMENSION, PASSAGES) + vectors_ND.tobytes())
    longest = float(np.linalg.norm(vectors_ND.astype(np.float64), axis=1).max())
    description = {"kind": "flat", "passages": PASSAGES, "dimension": DIMENSION, "longest": longest, "model": ""}
    write_description(index, description)


def ours(folder: str) -> Step:
    from pipeline.dense.index_files import open_index
    from pipeline.dense.search import top_k

    index, questions_QD = open_index(Path(folder, "ours")), np.load(Path(folder, "questions.npy"))

    def step(batch: int) -> Figures:
        started_at = time.process_time()
        for _ in range(REPEATS[batch]):
            rows_QK, _ = top_k(questions_QD[:batch], index, K)
        seconds = time.process_time() - started_at
        np.save(Path(folder, f"ours-{batch}.npy"), rows_QK)
        return {"seconds": seconds}

    return step


def flat(folder: str, always_blas: bool) -> Step:
    import faiss

    faiss.omp_set_num_threads(1)
    if always_blas:
        faiss.cvar.distance_compute_blas_threshold = 1
    index, questions_QD = faiss.read_index(str(Path(folder, "ours", "index"))), np.load(Path(folder, "questions.npy"))
    name = "blas" if always_blas else "default"

    def step(batch: int) -> Figures:
        started_at = time.process_time()
        for _ in range(REPEATS[batch]):
            _, rows_QK = index.search(questions_QD[:batch], K)
        seconds = time.process_time() - started_at
        np.save(Path(folder, f"{name}-{batch}.npy"), rows_QK)
        return {"seconds": seconds}

    return step


def compare_searches() -> float:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_index(folder)
        ways = {
            "default": Way("benchmarks.search_flat:flat", {"folder": place, "always_blas": False}, tuned=True),
            "ours": Way("benchmarks.search_flat:ours", {"folder": place}, tuned=True),
            "blas": Way("benchmarks.search_flat:flat", {"folder": place, "always_blas": True}, tuned=True),
        }
        with running(ways) as processes:
            ratios = {batch: ratio(processes, batch) for batch in REPEATS}
        for batch in REPEATS:
            check_passages(folder, batch)
    return min(ratios.values())


def ratio(processes: dict[str, Running], batch: int) -> float:
    """Returns seconds of the faster FAISS over ours, the median of the rounds; an earlier round finds the faster."""
    warm = {name: ask(process, batch)["seconds"] for name, process in processes.items()}
    best = min(("default", "blas"), key=warm.__getitem__)
    rounds = [{name: ask(processes[name], batch)["seconds"] for name in (best, "ours")} for _ in range(ROUNDS)]
    found = median(each[best] / each["ours"] for each in rounds)
    speed = batch * REPEATS[batch] / median(each["ours"] for each in rounds)
    print(f"{batch} questions: {found:.3f} of IndexFlatIP ({best}), {speed:,.0f} a second", file=sys.stderr)
    return found


def check_passages(folder: Path, batch: int) -> None:
    """SystemExit unless all found the same passages."""
    lists = {name: np.sort(np.load(folder / f"{name}-{batch}.npy"), axis=1) for name in ("ours", "default", "blas")}
    for name in ("default", "blas"):
        same = np.mean([np.isin(a, b).mean() for a, b in zip(lists["ours"], lists[name], strict=True)])
        if same < SAME:
            raise SystemExit(f"search_flat: {name} finds {same:.4f} of the same passages")


ROWS = {"search_flat": compare_searches}
