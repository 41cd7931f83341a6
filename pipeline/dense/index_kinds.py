"""What FAISS builds of each kind of index, and what that needs.

FAISS itself is told what it would else decide by its number of threads: it builds with one, its seeds are given, and
the lists of IVF are chosen by this project's exact search, for BLAS sums a batch in another order than one vector.

Shapes: N passages, D dimension, L lists, B passages of a block.
"""

import math
from typing import Any, Literal

import numpy as np
from pydantic import Field

from pipeline.advice import Changes, check_fits
from pipeline.config import Config, Seed
from pipeline.dense.exact import exact_top_k
from pipeline.errors import InputError

POINTS = 40  # passages to train a centroid from; FAISS warns below 39
CODES = 256  # centroids of a byte of product quantisation
SAMPLE = 65536  # passages that all but lists are trained from
LISTS_PER_ROOT = 4  # times the root of the passages: FAISS's guidelines, 4 to 16
WITH_LISTS = ("ivf", "ivfpq")
READ = {
    "flat": (),
    "hnsw": ("hnsw_neighbours", "hnsw_construction", "seed"),
    "ivf": ("ivf_lists", "seed"),
    "ivfpq": ("ivf_lists", "pq_bytes", "seed"),
    "int8": ("seed",),
    "binary": ("seed",),
}
"""Fields of the configuration that each kind looks at."""


class IndexConfig(Config):
    kind: Literal["flat", "hnsw", "ivf", "ivfpq", "int8", "binary"]
    """`flat`: exact inner products. Approximate: `hnsw` (a graph of neighbours; Malkov and Yashunin 2018), `ivf`
    (lists of k-means; Jégou et al. 2011, section 4), `ivfpq` (the same, product-quantised, section 3), `int8` (a byte a
    dimension), `binary` (a bit a dimension). Their candidates are rescored exactly from vectors kept beside them."""
    hnsw_neighbours: int = Field(ge=2, le=256)
    """Neighbours of a passage in the graph (M). 32; twice that in its lowest layer."""
    hnsw_construction: int = Field(ge=1)
    """Candidates for each new passage's neighbours (efConstruction). 200."""
    ivf_lists: int = Field(ge=0)
    """Lists of ivf and ivfpq. 0: 4 times the root of the passages, as far as 40 passages a list go."""
    pq_bytes: int = Field(ge=1)
    """Bytes of a passage in ivfpq; divides the dimension."""
    seed: Seed
    """Of the graph's layers, and of the sample and the beginning of k-means. Its lowest 31 bits count."""


def unread(config: IndexConfig) -> tuple[str, ...]:
    """The fields that an index of its kind does not look at."""
    return tuple(name for name in type(config).model_fields if name not in ("kind", *READ[config.kind]))


def libraries(config: IndexConfig) -> tuple[str, ...]:
    """FAISS, where the bytes are its own; a flat index is this project's."""
    return () if config.kind == "flat" else ("faiss",)


def lists(config: IndexConfig, passages: int) -> int:
    """Lists of an index of so many passages."""
    return config.ivf_lists or max(1, min(round(LISTS_PER_ROOT * passages**0.5), passages // POINTS))


def check_passages(config: IndexConfig, passages: int) -> None:
    """Raise InputError, with values that fit, where there are too few passages to train the index."""
    fewer: list[Changes] = [{"ivf_lists": passages // POINTS}, {"kind": "flat"}]
    check_fits("index", config, lambda c: _check_passages(c, passages), lambda: fewer)


def _check_passages(config: IndexConfig, passages: int) -> None:
    needed = {}
    if config.kind in WITH_LISTS:
        needed[f"index.ivf_lists: {lists(config, passages)}"] = POINTS * lists(config, passages)
    if config.kind == "ivfpq":
        needed["index.kind: ivfpq"] = POINTS * CODES
    for field, least in needed.items():
        if passages < least:
            raise InputError(f"{field} needs {least:,} passages to train on, but the collection has {passages:,}")


def check_dimension(config: IndexConfig, *dimensions: int) -> None:
    """Raise InputError, with a number that fits, where product quantisation cannot cut vectors into equal parts."""

    def check(config: IndexConfig) -> None:
        for dimension in dimensions if config.kind == "ivfpq" else ():
            if dimension % config.pq_bytes:
                raise InputError(
                    f"index.pq_bytes: {config.pq_bytes} does not divide the vectors' dimension, {dimension}"
                )

    check_fits("index", config, check, lambda: [{"pq_bytes": most_bytes(config.pq_bytes, *dimensions)}])


def most_bytes(most: int, *dimensions: int) -> int:
    """The largest number up to `most` that divides all of them."""
    common = math.gcd(*dimensions)
    return next(number for number in range(most, 0, -1) if common % number == 0)


def empty(config: IndexConfig, vectors_ND: np.ndarray) -> Any:
    """A trained index without vectors. Memory: the sample, 40 vectors a list and at least 65,536."""
    import faiss

    (passages, dimension), inner = vectors_ND.shape, faiss.METRIC_INNER_PRODUCT
    seed, many = config.seed & 0x7FFFFFFF, lists(config, passages)
    if config.kind == "hnsw":
        made = faiss.IndexHNSWSQ(dimension, faiss.ScalarQuantizer.QT_fp16, config.hnsw_neighbours, inner)
        made.hnsw.efConstruction = made.hnsw.efSearch = config.hnsw_construction  # the latter for who says nothing
        return made
    if config.kind == "int8":
        made = faiss.IndexScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_8bit, inner)
    elif config.kind == "binary":
        made = faiss.IndexLSH(dimension, dimension, False, True)  # no rotation: its sums would hang on the batch
    else:
        part = f"PQ{config.pq_bytes}" if config.kind == "ivfpq" else "SQfp16"
        made = faiss.index_factory(dimension, f"IVF{many},{part}", inner)
        made.by_residual = config.kind == "ivfpq"  # float16 holds the vectors themselves, and no difference of them
        made.nprobe = round(many**0.5)  # for who says nothing, as pyserini
        made.cp.seed = seed
        made.cp.min_points_per_centroid = 1
        if config.kind == "ivfpq":
            made.pq.cp.seed = seed
            made.do_polysemous_training = False  # an order of the codes that nothing here asks for
    size = min(passages, max(SAMPLE, POINTS * many if config.kind in WITH_LISTS else 0))
    sample = np.sort(np.random.default_rng(config.seed).permutation(passages)[:size])
    made.train(vectors_ND[sample].astype(np.float32))
    return made


def add(made: Any, kind: str, vectors_BD: np.ndarray, seed: int, middles: tuple[np.ndarray, float] | None) -> None:
    """Add a block of passages. `seed` is the block's own; `middles`: the index's `centroids`, None without lists."""
    import faiss

    block_BD = np.ascontiguousarray(vectors_BD, dtype=np.float32)
    if kind == "hnsw":
        made.hnsw.rng = faiss.RandomGenerator(seed & 0x7FFFFFFF)
    if middles is None:
        made.add(block_BD)
        return
    middle_LD, longest = middles
    list_B = np.ascontiguousarray(exact_top_k(block_BD, middle_LD, 1, longest)[0][:, 0])
    made.add_core(len(block_BD), faiss.swig_ptr(block_BD), None, faiss.swig_ptr(list_B))


def centroids(made: Any) -> tuple[np.ndarray, float]:
    """(the middle of each list, float32 [L, D]; the greatest length of one)."""
    centroids_LD = made.quantizer.reconstruct_n(0, made.nlist)
    return centroids_LD, float(np.linalg.norm(centroids_LD.astype(np.float64), axis=1).max())
