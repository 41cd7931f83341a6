"""A run to pack, and packs taken apart and written again."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from artifacts import schema
from artifacts.keys import canonical
from artifacts.records import Ref
from artifacts.runs import RunRecord, record_run, runs
from artifacts.store import Request, Store

LONG = "a-name-of-more-letters-than-a-tar-header-has-room-for" * 3


def make_run(store: Store, key: Any, writes: Any) -> RunRecord:
    """tokens -> bm25 (whose bytes vary) and stage1; the newest run of the store."""

    def long_named(out: Path, checkpoints: Path) -> dict[str, Any]:
        (out / LONG).write_bytes(b"")
        (out / "model.bin").write_bytes(bytes(range(256)) * 9000)
        return {"loss": 0.5, "none": None}

    tokens = store.build(Request(key(stage="tokens", inputs={}), node="tokens"), writes("tokens", words=3)).ref
    bm25 = built_bm25(store, key, writes, tokens)
    stage1 = store.build(
        Request(key(stage="finetune", inputs={"tokens": tokens.identity, "bm25": bm25.identity}), node="stage1"),
        long_named,
    ).ref
    nodes = {"tokens": tokens, "bm25": bm25, "stage1": stage1}
    record_run(store, "tiny", nodes, {"recipe": {"name": "tiny"}, "set": []}, datetime(2026, 11, 22, tzinfo=UTC))
    return runs(store)[0]


def built_bm25(store: Store, key: Any, writes: Any, tokens: Ref, text: str = "lucene") -> Ref:
    return store.build(
        Request(key(stage="bm25", inputs={"tokens": tokens.identity}), node="bm25", identity="key"), writes(text)
    ).ref


def everything(root: Path) -> dict[str, bytes]:
    """{path below `root`: bytes} of all files."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def members(path: Path) -> list[tuple[str, bytes]]:
    """(name, bytes) of a pack's files, in order."""
    with pa.CompressedInputStream(str(path), "zstd") as stream, tarfile.open(mode="r|", fileobj=stream) as tar:
        return [(member.name, tar.extractfile(member).read()) for member in tar]


def unsigned(given: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The files with records as older versions wrote them, without their own digest, so that a test can edit them."""

    def plain(name: str, data: bytes) -> bytes:
        if not name.startswith(("keys/", "runs/")):
            return data
        return json.dumps(json.loads(schema.without_digest(data)), indent=1).encode()

    return [(name, plain(name, data)) for name, data in given]


def write_members(path: Path, given: list[tuple[str, bytes]], change: Callable[[tarfile.TarInfo], None] | None = None):
    with pa.CompressedOutputStream(str(path), "zstd") as packed:
        tar = tarfile.open(mode="w|", fileobj=packed, format=tarfile.GNU_FORMAT)  # noqa: SIM115
        for name, data in given:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if change:
                change(info)
            tar.addfile(info, io.BytesIO(data))
        tar.close()


def indexed(given: list[tuple[str, bytes]], **changed: Any) -> list[tuple[str, bytes]]:
    """With an index that tells of them as they are now."""
    index = json.loads(given[0][1])
    index["members"] = [[name, len(data), hashlib.sha256(data).hexdigest()] for name, data in given[1:]]
    return [("pack.json", canonical(index | changed)), *given[1:]]


def rewritten(record: bytes, old: str, new: str) -> bytes:
    """A record as one that says something else would have been written."""
    return schema.signed_json(json.loads(schema.without_digest(record).decode().replace(old, new)))
