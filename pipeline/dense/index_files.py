"""The folder of an index: opened once and searched often.

`index` (FAISS) and `docid` are pyserini's; `index.json` says what they are; `vectors.npy` holds what approximate
candidates are rescored from, where `index` itself does not.

A flat index is a header of 45 bytes and then the float32 vectors, so it is written shard by shard and read as a
memory map: neither needs the memory of the whole.
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

from pipeline.data.stored import AGAIN, told
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
    """What a search needs to know of an index. Cheap to make; may be shared by threads."""

    folder: Path
    kind: str
    vectors_ND: np.ndarray
    """Memory-mapped, in passage order: float32 of a flat index, else float16."""
    longest: float
    """The greatest length of a vector."""
    model: str
    """Digest of the encoders' files (reuse.model)."""

    @property
    def is_approximate(self) -> bool:
        return self.kind != "flat"

    @cached_property
    def faiss(self) -> Any:
        """FAISS's own, read into memory at first use."""
        import faiss

        try:
            found = faiss.read_index(str(self.folder / "index"))
        except (RuntimeError, MemoryError) as error:  # a wrong length may ask for any memory
            raise InputError(f"{self.folder / 'index'}: not an index of FAISS, or damaged; {AGAIN}") from error
        if (found.ntotal, found.d) != self.vectors_ND.shape:
            raise InputError(
                f"{self.folder / 'index'}: {found.ntotal} vectors of dimension {found.d}, "
                f"not {self.vectors_ND.shape[0]} of {self.vectors_ND.shape[1]}; {AGAIN}"
            )
        return found

    @cached_property
    def centroids(self) -> tuple[np.ndarray, float]:
        """Of lists: their middles and the greatest length of one."""
        return centroids(self.faiss)


def open_index(folder: Path) -> Index:
    """The index in `folder`, whose bytes the store has hashed. Raises InputError where a file is absent or cut."""
    said = read_description(folder)
    kind, shape = said.kind, (said.passages, said.dimension)
    vectors_ND = read_flat(folder / "index") if kind == "flat" else _read_halves(folder / "vectors.npy")
    if vectors_ND.shape != shape:
        raise InputError(f"{folder}: vectors {vectors_ND.shape}, not {shape}; {AGAIN}")
    return Index(folder, kind, vectors_ND, said.longest, said.model)


def read_description(folder: Path) -> Description:
    """index.json, all of whose files are in `folder`, of the size that it says. Raises InputError."""
    path = folder / "index.json"
    if not path.is_file():
        raise InputError(f"{path}: no such file: lost, or the index was made before the present format; {AGAIN}")
    with told(path):
        said = Description.model_validate_json(path.read_bytes())
    for name, file in said.files.items():
        if Path(name).name != name:
            raise InputError(f"{path}: names {name!r}, which is no file beside it; {AGAIN}")
        _check(folder / name, file.bytes)
    return said


def write_description(folder: Path, said: dict[str, Any]) -> None:
    """index.json: what is said, and size and digest of each file that is there."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.iterdir())
        if path.name != "index.json"
    }
    (folder / "index.json").write_text(json.dumps({**said, "files": files}, indent=1) + "\n")


def _check(path: Path, size: int) -> None:
    with told(path):
        found = path.stat()
    if not S_ISREG(found.st_mode):
        raise InputError(f"{path}: not a file; {AGAIN}")
    if found.st_size != size:
        raise InputError(f"{path}: {found.st_size:,} bytes, not {size:,}: damaged; {AGAIN}")


def flat_header(dimension: int, vectors: int) -> bytes:
    """The header of a flat inner-product index."""
    return HEADER.pack(b"IxFI", dimension, vectors, UNUSED, UNUSED, TRAINED, INNER_PRODUCT, dimension * vectors)


def read_flat(path: Path) -> np.ndarray:
    """The vectors of a flat index, float32 [passages, dimension], memory-mapped. InputError for any other file."""
    try:
        with open(path, "rb") as file:
            kind, dimension, vectors, *_ = HEADER.unpack(file.read(HEADER.size))
    except (OSError, struct.error) as error:
        raise InputError(f"{path}: no FAISS index to read ({error})") from error
    size = HEADER.size + 4 * dimension * vectors
    if kind != b"IxFI" or path.stat().st_size != size:
        raise InputError(f"{path}: not a whole flat inner-product index of FAISS")
    return np.asarray(np.memmap(path, dtype="<f4", mode="r", offset=HEADER.size, shape=(vectors, dimension)))


def _read_halves(path: Path) -> np.ndarray:
    try:
        vectors_ND = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no vectors to read ({error})") from error
    if vectors_ND.dtype != np.float16 or vectors_ND.ndim != 2:
        raise InputError(f"{path}: {vectors_ND.dtype} {vectors_ND.shape}, not float16 [passages, dimension]")
    return np.asarray(vectors_ND)
