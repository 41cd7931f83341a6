"""The kinds of index that FAISS builds, and their requirements.

Nothing depends on FAISS's number of threads: it builds with one thread and fixed seeds, and IVF's lists are chosen by
this project's exact search, because BLAS sums a batch in another order than one vector.

Shapes: N passages, D dimension, L lists, B passages of a block.
"""

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from pipeline.advice import Changes, check_fits
from pipeline.config import Config, CountOrAuto, Seed, Whole, number_or
from pipeline.dense.exact import exact_top_k
from pipeline.errors import InputError

POINTS = 40  # passages to train a centroid from; FAISS warns below 39
CODES = 256  # centroids per byte of product quantisation
SAMPLE = 65536  # passages that train everything but the lists
LISTS_PER_ROOT = 4  # times the square root of the passages: FAISS's guidelines, 4 to 16
WITH_LISTS = ("ivf", "ivfpq")
READ = {
    "flat": (),
    "hnsw": ("hnsw_m", "ef_construction", "seed"),
    "ivf": ("nlist", "seed"),
    "ivfpq": ("nlist", "pq_m", "seed"),
    "int8": ("seed",),
    "binary": ("seed",),
}
"""Configuration fields that each kind uses."""


class IndexConfig(Config):
    kind: Literal["flat", "hnsw", "ivf", "ivfpq", "int8", "binary"]
    """`flat`: exact inner products. Approximate: `hnsw` (a graph of neighbours; Malkov and Yashunin 2018), `ivf`
    (lists of k-means; Jégou et al. 2011, section 4), `ivfpq` (the same, product-quantised, section 3), `int8` (a byte
    per dimension), `binary` (a bit per dimension). Candidates are rescored exactly with vectors stored next to them."""
    hnsw_m: int = Field(ge=2, le=256)
    """M of HNSW: neighbours of a passage in the graph. 32; twice that in the lowest layer."""
    ef_construction: int = Field(ge=1)
    """efConstruction of HNSW: candidates for each new passage's neighbours. 200."""
    nlist: CountOrAuto
    """Lists of ivf and ivfpq. `auto`: 4 times the square root of the passages, but at least 40 passages per list."""
    pq_m: int = Field(ge=1)
    """M of product quantisation: parts of a vector, a byte each; divides the dimension."""
    seed: Seed
    """Seed of the graph's layers, the training sample and the start of k-means. Only its lowest 31 bits are used."""
    dimension: Annotated[Whole, Field(ge=1)] | None = None
    """The first numbers of each vector that are indexed and searched, at length 1 again if the encoder normalises. It
    needs no new training and no new encoding; a model loses least if it was trained with `encoder.dimensions`. null:
    all."""


def unread(config: IndexConfig) -> tuple[str, ...]:
    """Returns the fields that this kind of index does not use."""
    read = ("kind", "dimension", *READ[config.kind])
    return tuple(name for name in type(config).model_fields if name not in read)


def libraries(config: IndexConfig) -> tuple[str, ...]:
    """Returns FAISS if it writes the bytes; a flat index is written by this project."""
    return () if config.kind == "flat" else ("faiss",)


def lists(config: IndexConfig, passages: int) -> int:
    """Returns the number of lists of an index of `passages` passages."""
    return number_or(config.nlist, max(1, min(round(LISTS_PER_ROOT * passages**0.5), passages // POINTS)))


def check_passages(config: IndexConfig, passages: int) -> None:
    """Raises InputError, with values that fit, if there are too few passages to train the index."""
    fewer: list[Changes] = [{"nlist": passages // POINTS}, {"kind": "flat"}]
    check_fits("index", config, lambda c: _check_passages(c, passages), lambda: fewer)


def _check_passages(config: IndexConfig, passages: int) -> None:
    needed = {}
    if config.kind in WITH_LISTS:
        needed[f"index.nlist: {lists(config, passages)}"] = POINTS * lists(config, passages)
    if config.kind == "ivfpq":
        needed["index.kind: ivfpq"] = POINTS * CODES
    for field, least in needed.items():
        if passages < least:
            raise InputError(f"{field} needs {least:,} passages to train on, but the collection has {passages:,}")


def check_dimension(config: IndexConfig, *dimensions: int) -> None:
    """Raises InputError, with a value that fits, if vectors of one of these dimensions are shorter than
    `index.dimension`, or if product quantisation cannot cut what is indexed of them into equal parts."""
    indexed = [config.dimension or dimension for dimension in dimensions]

    def check(config: IndexConfig) -> None:
        for whole, dimension in zip(dimensions, indexed, strict=True):
            if dimension > whole:
                raise InputError(f"index.dimension: {dimension} is more than the vectors' dimension, {whole}")
            if config.kind == "ivfpq" and dimension % config.pq_m:
                raise InputError(f"index.pq_m: {config.pq_m} does not divide the vectors' dimension, {dimension}")

    check_fits("index", config, check, lambda: [{"pq_m": most_parts(config.pq_m, *indexed)}])


def most_parts(most: int, *dimensions: int) -> int:
    """Returns the largest number up to `most` that divides all dimensions."""
    common = math.gcd(*dimensions)
    return next(number for number in range(most, 0, -1) if common % number == 0)


def empty_index(config: IndexConfig, vectors_ND: np.ndarray) -> Any:
    """Returns a trained index without vectors. Memory: the sample, 40 vectors per list and at least 65,536."""
    import faiss

    (passages, dimension), inner = vectors_ND.shape, faiss.METRIC_INNER_PRODUCT
    seed, many = config.seed & 0x7FFFFFFF, lists(config, passages)
    if config.kind == "hnsw":
        faiss_index = faiss.IndexHNSWSQ(dimension, faiss.ScalarQuantizer.QT_fp16, config.hnsw_m, inner)
        # efSearch is the default for searches
        faiss_index.hnsw.efConstruction = faiss_index.hnsw.efSearch = config.ef_construction
        return faiss_index
    if config.kind == "int8":
        faiss_index = faiss.IndexScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_8bit, inner)
    elif config.kind == "binary":
        # no rotation: its sums would depend on the batch
        faiss_index = faiss.IndexLSH(dimension, dimension, False, True)
    else:
        part = f"PQ{config.pq_m}" if config.kind == "ivfpq" else "SQfp16"
        faiss_index = faiss.index_factory(dimension, f"IVF{many},{part}", inner)
        faiss_index.by_residual = config.kind == "ivfpq"  # float16 stores the vectors themselves, not residuals
        faiss_index.nprobe = round(many**0.5)  # the default for searches, such as pyserini's
        faiss_index.cp.seed = seed
        faiss_index.cp.min_points_per_centroid = 1
        if config.kind == "ivfpq":
            faiss_index.pq.cp.seed = seed
            faiss_index.do_polysemous_training = False  # an order of the codes that nothing here uses
    size = min(passages, max(SAMPLE, POINTS * many if config.kind in WITH_LISTS else 0))
    sample = np.sort(np.random.default_rng(config.seed).permutation(passages)[:size])
    faiss_index.train(vectors_ND[sample].astype(np.float32))
    return faiss_index


def add_vectors(
    faiss_index: Any, kind: str, vectors_BD: np.ndarray, seed: int, middles: tuple[np.ndarray, float] | None
) -> None:
    """Adds a block of passages. `seed`: of this block; `middles`: the index's `centroids`, None without lists."""
    import faiss

    block_BD = np.ascontiguousarray(vectors_BD, dtype=np.float32)
    if kind == "hnsw":
        faiss_index.hnsw.rng = faiss.RandomGenerator(seed & 0x7FFFFFFF)
    if middles is None:
        faiss_index.add(block_BD)
        return
    centroids_LD, longest = middles
    list_B = np.ascontiguousarray(exact_top_k(block_BD, centroids_LD, 1, longest)[0][:, 0])
    faiss_index.add_core(len(block_BD), faiss.swig_ptr(block_BD), None, faiss.swig_ptr(list_B))


def centroids(faiss_index: Any) -> tuple[np.ndarray, float]:
    """Returns (the centroid of each list, float32 [L, D]; the greatest norm of a centroid)."""
    centroids_LD = faiss_index.quantizer.reconstruct_n(0, faiss_index.nlist)
    return centroids_LD, float(np.linalg.norm(centroids_LD.astype(np.float64), axis=1).max())
