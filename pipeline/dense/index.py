"""Builds an index of a collection's vectors that pyserini's `FaissSearcher` reads."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.collection import passage_batches
from pipeline.data.stored import AGAIN, input_error_on_read, read_json
from pipeline.dense import index_kinds
from pipeline.dense.index_files import flat_header, write_description
from pipeline.dense.index_kinds import IndexConfig
from pipeline.dense.prefix import prefixes
from pipeline.dense.shard_reuse import sha256
from pipeline.errors import InputError
from pipeline.notices import one_line
from pipeline.runtime import shards
from pipeline.runtime.work import Metrics, Progress, Work

BLOCK = 16384
"""Passages added at a time. HNSW's graph depends on it."""
DIGEST = ".sha256"
"""Ending of the file with a checkpoint's digest."""


def index(config: IndexConfig, collection: Path, embeddings: Path, work: Work, normalise: bool = False) -> Metrics:
    """Writes `index` (FAISS), `docid` (one passage id per line, in passage order) and `index.json`.

    Kinds other than flat also have `vectors.npy` (float16 [passages, dimension]). A child process with one thread
    builds them, because FAISS's bytes depend on threads; a killed build resumes from its last checkpoint.
    `normalise`: whether the encoder does; read only with `index.dimension`.

    Raises InputError if the embeddings are not this collection's, a shard is missing or damaged, there are too few
    passages, the vectors are shorter than `index.dimension`, `index.pq_m` does not divide the dimension, or a passage
    id does not fit on a line.
    """
    started_at = time.monotonic()
    path_of_embeddings = embeddings / "embeddings.json"
    description = read_json(path_of_embeddings, "dim", "shards", "model")
    with input_error_on_read(path_of_embeddings):
        rows, whole = [int(shard["rows"]) for shard in description["shards"]], int(description["dim"])
    total = sum(rows)
    index_kinds.check_dimension(config, whole)
    index_kinds.check_passages(config, total)
    passages = _write_ids(collection, work.out / "docid")
    if passages != total:
        raise InputError(f"{path_of_embeddings}: {total} vectors for {passages} passages")
    flat = config.kind == "flat"
    path = work.out / ("index" if flat else "vectors.npy")
    shards_RD = _shards(embeddings, description["shards"], whole)
    dimension = config.dimension or whole
    if dimension < whole:
        shards_RD = (prefixes(shard_RE, dimension, normalise) for shard_RE in shards_RD)
    longest = _write_vectors(path, flat, shards_RD, total, dimension, work.progress)
    if not flat:
        _build(config, path, work)
    sizes = {"passages": total, "dimension": dimension, "longest": longest}
    write_description(work.out, {"kind": config.kind, **sizes, "model": description["model"]})
    megabytes = round(sum(file.stat().st_size for file in work.out.iterdir()) / 1e6, 3)
    seconds = round(time.monotonic() - started_at, 2)
    numbers = {"passages": total, "dimension": dimension, "build_seconds": seconds, "megabytes": megabytes}
    return {**numbers, "kind": config.kind}


def _write_ids(collection: Path, path: Path) -> int:
    passages = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for batch in passage_batches(collection, ["passage_id"]):
            for passage_id in batch["passage_id"]:
                if passage_id != passage_id.strip() or len(passage_id.splitlines()) != 1:
                    raise InputError(
                        f"{collection / 'passages.parquet'}: passage id '{one_line(passage_id)}' does not fit on a line"
                    )
                file.write(passage_id + "\n")
            passages += len(batch["passage_id"])
    return passages


def _write_vectors(
    path: Path, flat: bool, shards_RD: Iterable[np.ndarray], total: int, dimension: int, progress: Progress
) -> float:
    """Writes FAISS's flat index (float32) or a NumPy file (float16). Returns the greatest vector norm."""
    longest, written = 0.0, 0
    with open(path, "wb") as file:
        if flat:
            file.write(flat_header(dimension, total))
        else:
            header = {"descr": "<f2", "fortran_order": False, "shape": (total, dimension)}
            np.lib.format.write_array_header_1_0(file, header)
        for shard_RD in shards_RD:
            floats_RD = shard_RD.astype("<f4")
            longest = max(longest, float(np.sqrt(np.vecdot(floats_RD, floats_RD, dtype=np.float64).max(initial=0))))
            file.write((floats_RD if flat else np.ascontiguousarray(shard_RD, "<f2")).data)
            written += len(shard_RD)
            progress(written, total, "passages")
    return longest


def _shards(embeddings: Path, listed: list[dict[str, Any]], dimension: int) -> Iterator[np.ndarray]:
    """Yields each shard's vectors, float16 [rows, D], memory-mapped. Raises InputError if one is missing or damaged."""
    for number, shard in enumerate(listed):
        path = embeddings / shards.name(number)
        if not path.is_file():
            raise InputError(f"{path}: no such shard of the embeddings; {AGAIN}")
        if sha256(path) != shard["sha256"]:
            raise InputError(f"{path}: damaged: its SHA-256 differs from that in embeddings.json; {AGAIN}")
        vectors_RD = np.load(path, mmap_mode="r")
        if vectors_RD.shape != (shard["rows"], dimension):
            raise InputError(f"{path}: {vectors_RD.shape}, not {(shard['rows'], dimension)}")
        yield np.asarray(vectors_RD)


def _build(config: IndexConfig, vectors: Path, work: Work) -> None:
    from pipeline.runtime.launch import launch, without_model

    arguments = {
        "config": config.model_dump(mode="json"),
        "vectors": str(vectors),
        "out": str(work.out / "index"),
        "checkpoint": str(work.checkpoints / "index"),
        "checkpoint_seconds": 60 * work.machine.checkpoint_minutes,
    }
    machine = without_model(work.machine)
    launch("pipeline.dense.index:build_index", arguments, machine, work.progress, work.checkpoints)


def build_index(
    *,
    progress: Progress,
    device: str,
    config: dict,
    vectors: str,
    out: str,
    checkpoint: str,
    checkpoint_seconds: float,
) -> dict:
    """Child process of `index`: trains, adds block after block, writes. Each block has its own seed, so that a build
    that resumes from a checkpoint gives the same bytes."""
    import faiss

    faiss.omp_set_num_threads(1)
    settings, vectors_ND = IndexConfig(**config), np.load(vectors, mmap_mode="r")
    saved, total = Path(checkpoint), len(vectors_ND)
    faiss_index = _resumed(saved) or index_kinds.empty_index(settings, vectors_ND)
    centroids = index_kinds.centroids(faiss_index) if settings.kind in index_kinds.WITH_LISTS else None
    last = time.monotonic()
    for start in range(faiss_index.ntotal, total, BLOCK):
        block_BD, seed = vectors_ND[start : start + BLOCK], settings.seed + start // BLOCK
        index_kinds.add_vectors(faiss_index, settings.kind, block_BD, seed, centroids)
        progress(faiss_index.ntotal, total, "passages")
        if time.monotonic() - last > checkpoint_seconds and faiss_index.ntotal < total:
            _checkpoint(faiss_index, saved)
            last = time.monotonic()
    _written(faiss_index, Path(out)).replace(out)
    return {}


def _resumed(checkpoint: Path) -> Any:
    """Returns the partial index of a checkpoint; None if it is missing or damaged (FAISS might read a damaged one)."""
    import faiss

    digest = checkpoint.with_suffix(DIGEST)
    if not checkpoint.is_file() or not digest.is_file() or sha256(checkpoint).encode() != digest.read_bytes():
        return None
    return faiss.read_index(str(checkpoint))


def _checkpoint(faiss_index: Any, path: Path) -> None:
    unfinished = _written(faiss_index, path)
    path.with_suffix(DIGEST).write_text(sha256(unfinished))
    unfinished.replace(path)  # a kill just before leaves a wrong digest, and the build starts from scratch


def _written(faiss_index: Any, path: Path) -> Path:
    """Writes the index to a file next to `path`. Returns that file."""
    import faiss

    unfinished = path.with_suffix(".part")
    faiss.write_index(faiss_index, str(unfinished))
    return unfinished
