"""Embeddings and indexes of given vectors, as the stages write them."""

import hashlib
import json
from pathlib import Path

import numpy as np

from pipeline.data.collection import schemas, write_table
from pipeline.dense.approximate import ApproximateConfig
from pipeline.dense.index_files import flat_header, write_description
from pipeline.dense.index_kinds import IndexConfig
from pipeline.runtime import shards
from pipeline.runtime.spans import shard_spans

FLAT = IndexConfig(kind="flat", hnsw_m=8, ef_construction=40, nlist="auto", pq_m=4, seed=5)
EFFORT = ApproximateConfig(ef_search=32, nprobe=8, candidates=4)
KINDS = ("flat", "hnsw", "ivf", "ivfpq", "int8", "binary")


def write_passages(folder: Path, number: int) -> Path:
    """A collection of which the passages' ids alone matter: p0, p1, ..."""
    folder.mkdir()
    rows = [(f"p{n}", f"d{n}", "", "text") for n in range(number)]
    write_table(folder / "passages.parquet", schemas()["passages"], rows)
    return folder


def write_embeddings(folder: Path, vectors_ND: np.ndarray, rows: int, model: str = "a model") -> Path:
    """Shards of `rows` passages."""
    folder.mkdir()
    listed = []
    for number, (start, stop) in enumerate(shard_spans(len(vectors_ND), rows)):
        path = folder / shards.name(number)
        np.save(path, vectors_ND[start:stop].astype(np.float16))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        listed.append({"rows": stop - start, "key": str(number), "sha256": digest})
    said = {"dim": vectors_ND.shape[1], "pooling": "cls", "model": model, "shards": listed}
    (folder / "embeddings.json").write_text(json.dumps(said))
    return folder


def write_flat_index(folder: Path, vectors_ND: np.ndarray, ids: list[str], model: str) -> Path:
    """`model`: the digest of its checkpoint (pipeline.dense.shard_reuse.model)."""
    folder.mkdir()
    (folder / "index").write_bytes(flat_header(vectors_ND.shape[1], len(vectors_ND)) + vectors_ND.tobytes())
    (folder / "docid").write_text("".join(f"{one}\n" for one in ids))
    longest = float(np.linalg.norm(vectors_ND.astype(np.float64), axis=1).max())
    shape = {"passages": len(vectors_ND), "dimension": vectors_ND.shape[1]}
    write_description(folder, {"kind": "flat", **shape, "longest": longest, "model": model})
    return folder
