"""The vectors as a FAISS index that pyserini's `FaissSearcher` reads.

A flat index is a header of 45 bytes and then the float32 vectors, so it is written shard by shard and read as a
memory map: neither needs the memory of the whole.
"""

import json
import struct
from pathlib import Path
from typing import Literal

import numpy as np

from pipeline.collection import passage_batches
from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.work import Metrics, Work

HEADER = struct.Struct("<4siqqqBiQ")
"""FAISS's `IndexFlatIP`: "IxFI", dimension, vectors, two unused numbers, is_trained, metric, floats that follow."""
UNUSED, TRAINED, INNER_PRODUCT = 1 << 20, 1, 0


class IndexConfig(Config):
    kind: Literal["flat"]
    """`flat`: exact inner products (IndexFlatIP)."""


def index(config: IndexConfig, collection: Path, embeddings: Path, work: Work) -> Metrics:
    """Write `index` (FAISS) and `docid` (a passage id a line), in passage order.

    Raises InputError where the embeddings are not this collection's or a passage id cannot stand on a line.
    """
    shape = json.loads((embeddings / "embeddings.json").read_text())
    shards, dimension = [shard["rows"] for shard in shape["shards"]], shape["dim"]
    total = sum(shards)
    passages = 0
    with open(work.out / "docid", "w", encoding="utf-8", newline="\n") as file:
        for batch in passage_batches(collection, ["passage_id"]):
            for passage_id in batch["passage_id"]:
                if passage_id != passage_id.strip() or len(passage_id.splitlines()) != 1:
                    raise InputError(
                        f"{collection / 'passages.parquet'}: passage id {passage_id!r} cannot stand on a line"
                    )
                file.write(passage_id + "\n")
            passages += len(batch["passage_id"])
    if passages != total:
        raise InputError(f"{embeddings / 'embeddings.json'}: {total} vectors for {passages} passages")
    with open(work.out / "index", "wb") as file:
        file.write(header(dimension, total))
        written = 0
        for number, rows in enumerate(shards):
            shard = np.load(embeddings / f"shard-{number:05d}.npy", mmap_mode="r")
            if shard.shape != (rows, dimension):
                raise InputError(f"{embeddings / f'shard-{number:05d}.npy'}: {shard.shape}, not {(rows, dimension)}")
            file.write(np.ascontiguousarray(shard, dtype="<f4").data)
            written += rows
            work.progress(written, total, "passages")
    return {"passages": total, "dimension": dimension, "kind": config.kind}


def header(dimension: int, vectors: int) -> bytes:
    """The header of a flat inner-product index."""
    return HEADER.pack(b"IxFI", dimension, vectors, UNUSED, UNUSED, TRAINED, INNER_PRODUCT, dimension * vectors)


def read_vectors(path: Path) -> np.ndarray:
    """The vectors of a flat index, float32 [passages, dimension], memory-mapped. InputError for any other file."""
    try:
        with open(path, "rb") as file:
            kind, dimension, vectors, *_ = HEADER.unpack(file.read(HEADER.size))
    except (OSError, struct.error) as error:
        raise InputError(f"{path}: no FAISS index to read ({error})") from error
    size = HEADER.size + 4 * dimension * vectors
    if kind != b"IxFI" or path.stat().st_size != size:
        raise InputError(f"{path}: not a whole flat inner-product index of FAISS")
    return np.memmap(path, dtype="<f4", mode="r", offset=HEADER.size, shape=(vectors, dimension))
