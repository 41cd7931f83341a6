"""The folder of an index, which is opened once and searched often.

`index` (FAISS) and `docid` have pyserini's format; `index.json` describes them; `vectors.npy` contains the vectors
for rescoring approximate candidates, unless `index` itself contains them.

A flat index is a header of 45 bytes and then the float32 vectors. It is written shard by shard and read as a memory
map, so neither needs memory for all vectors.
"""

import json
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from pipeline.data.stored import AGAIN, input_error_on_read
from pipeline.dense.index_kinds import centroids
from pipeline.dense.shard_reuse import sha256
from pipeline.errors import InputError

HEADER = struct.Struct("<4siqqqBiQ")
"""FAISS's `IndexFlatIP`: "IxFI", dimension, vectors, two unused numbers, is_trained, metric, floats that follow."""
UNUSED, TRAINED, INNER_PRODUCT = 1 << 20, 1, 0


class File(BaseModel):
    model_config = ConfigDict(strict=True)

    bytes: int = Field(ge=0)
    sha256: str


class Description(BaseModel):
    """index.json."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    kind: str
    passages: int = Field(ge=0)
    dimension: int = Field(ge=0)
    longest: float
    model: str
    files: dict[str, File]


@dataclass(frozen=True)
class Index:
    """What a search needs of an index. Cheap to create; threads may share it."""

    folder: Path
    kind: str
    vectors_ND: np.ndarray
    """Memory-mapped, in passage order: float32 of a flat index, else float16."""
    longest: float
    """The greatest vector norm."""
    model: str
    """Digest of the encoders' files (shard_reuse.model)."""

    @property
    def dimension(self) -> int:
        """D, to which question encoders are cut (`biencoder.Encoder.cut_to`)."""
        return int(self.vectors_ND.shape[1])

    @property
    def is_approximate(self) -> bool:
        return self.kind != "flat"

    @cached_property
    def faiss(self) -> Any:
        """The FAISS index, read into memory at first use."""
        import faiss

        try:
            faiss_index = faiss.read_index(str(self.folder / "index"))
        except (RuntimeError, MemoryError) as error:  # a wrong length may request any amount of memory
            raise InputError(f"{self.folder / 'index'}: not a FAISS index, or damaged; {AGAIN}") from error
        if (faiss_index.ntotal, faiss_index.d) != self.vectors_ND.shape:
            raise InputError(
                f"{self.folder / 'index'}: {faiss_index.ntotal} vectors of dimension {faiss_index.d}, "
                f"not {self.vectors_ND.shape[0]} of {self.vectors_ND.shape[1]}; {AGAIN}"
            )
        return faiss_index

    @cached_property
    def centroids(self) -> tuple[np.ndarray, float]:
        """The lists' centroids and their greatest norm."""
        return centroids(self.faiss)


def open_index(folder: Path) -> Index:
    """Returns the index in `folder`, whose bytes the store has checked. Raises InputError for a missing or cut file."""
    description = read_description(folder)
    kind, shape = description.kind, (description.passages, description.dimension)
    vectors_ND = read_flat(folder / "index") if kind == "flat" else _read_halves(folder / "vectors.npy")
    if vectors_ND.shape != shape:
        raise InputError(f"{folder}: vectors {vectors_ND.shape}, not {shape}; {AGAIN}")
    return Index(folder, kind, vectors_ND, description.longest, description.model)


def read_description(folder: Path) -> Description:
    """Reads index.json. Raises InputError if a file that it lists is missing or has another size."""
    path = folder / "index.json"
    if not path.is_file():
        raise InputError(f"{path}: no such file: lost, or the index has an older format; {AGAIN}")
    with input_error_on_read(path):
        description = Description.model_validate_json(path.read_bytes())
    for name, file in description.files.items():
        if Path(name).name != name:
            raise InputError(f"{path}: names {name!r}, which is not a file in its folder; {AGAIN}")
        _check(folder / name, file.bytes)
    return description


def write_description(folder: Path, fields: dict[str, Any]) -> None:
    """Writes index.json: `fields`, and size and digest of each file in the folder."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.iterdir())
        if path.name != "index.json"
    }
    (folder / "index.json").write_text(json.dumps({**fields, "files": files}, indent=1) + "\n")


def _check(path: Path, size: int) -> None:
    with input_error_on_read(path):
        stat = path.stat()
    if not S_ISREG(stat.st_mode):
        raise InputError(f"{path}: not a file; {AGAIN}")
    if stat.st_size != size:
        raise InputError(f"{path}: {stat.st_size:,} bytes, not {size:,}: damaged; {AGAIN}")


def flat_header(dimension: int, vectors: int) -> bytes:
    """Returns the header of a flat inner-product index."""
    return HEADER.pack(b"IxFI", dimension, vectors, UNUSED, UNUSED, TRAINED, INNER_PRODUCT, dimension * vectors)


def read_flat(path: Path) -> np.ndarray:
    """Returns the vectors of a flat index, float32 [passages, dimension], memory-mapped. Else raises InputError."""
    try:
        with open(path, "rb") as file:
            kind, dimension, vectors, *_ = HEADER.unpack(file.read(HEADER.size))
    except (OSError, struct.error) as error:
        raise InputError(f"{path}: not a readable FAISS index ({error})") from error
    size = HEADER.size + 4 * dimension * vectors
    if kind != b"IxFI" or path.stat().st_size != size:
        raise InputError(f"{path}: not a complete flat inner-product index of FAISS")
    return np.asarray(np.memmap(path, dtype="<f4", mode="r", offset=HEADER.size, shape=(vectors, dimension)))


def _read_halves(path: Path) -> np.ndarray:
    try:
        vectors_ND = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a readable array of vectors ({error})") from error
    if vectors_ND.dtype != np.float16 or vectors_ND.ndim != 2:
        raise InputError(f"{path}: {vectors_ND.dtype} {vectors_ND.shape}, not float16 [passages, dimension]")
    return np.asarray(vectors_ND)
