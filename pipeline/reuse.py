"""Shards of passages by content: where each begins, what its vectors hang on, and those that were made before.

A shard begins where a passage's own ids say so, and at no multiple of a number: what is inserted, changed or removed
moves the bounds around it and no others (content-defined chunks: Muthitacharoen, Chen and Mazières 2001, section 3.1).
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import shards
from pipeline.ragged import Tokens

Span = tuple[int, int]
"""First row, row after the last."""

ENCODER_FILES = (
    *("config.json", "model.safetensors", "modules.json", "tokenizer.json"),
    *("1_Pooling/config.json", "2_Dense/model.safetensors"),
)
"""Of a checkpoint: what its vectors hang on. The tokenizer makes the ids of a prefix."""


def cuts(tokens: Tokens, most: int) -> list[Span]:
    """The shards of all passages: at most `most` rows each, 3/8 of that in the mean.

    One passage in `most` / 4 begins a shard, by a hash of its title and text. An eighth of `most` must lie between
    two, so that a passage that every document has makes no shard of each.
    """
    least, one_in = max(1, most // 8), max(1, most // 4)
    firsts = [0]
    for row, number in enumerate(_numbers(tokens)):
        rows = row - firsts[-1]
        if rows >= most or (rows >= least and number % one_in == 0):
            firsts.append(row)
    total = len(tokens.passages)
    return list(zip(firsts, [*firsts[1:], total], strict=True)) if total else []


def _numbers(tokens: Tokens) -> Iterator[int]:
    """A hash of each passage's ids, those of its title included."""
    titles, texts = tokens.titles, tokens.passages
    title_ids, text_ids = titles.tokens.data, texts.tokens.data
    title_at, text_at = titles.offsets.tolist(), texts.offsets.tolist()
    for i in range(len(texts)):
        before = zlib.crc32(title_ids[title_at[i] : title_at[i + 1]])
        yield zlib.crc32(text_ids[text_at[i] : text_at[i + 1]], before)


def keys(tokens: Tokens, spans: Iterable[Span], checkpoint: Path, settings: Mapping[str, Any]) -> list[str]:
    """SHA-256 of all that a shard's vectors are made from: the passage encoder, `settings`, titles and texts."""
    folder = checkpoint / "passage" if (checkpoint / "passage").is_dir() else checkpoint
    model = {name: sha256(folder / name) for name in ENCODER_FILES if (folder / name).is_file()}
    same = json.dumps([model, settings], sort_keys=True).encode()
    found = []
    for start, stop in spans:
        digest = hashlib.sha256(same)
        for texts in (tokens.titles, tokens.passages):
            offsets = texts.offsets[start : stop + 1]
            digest.update(np.diff(offsets).astype("<i8").data)
            digest.update(np.ascontiguousarray(texts.tokens[offsets[0] : offsets[-1]]).data)
        found.append(digest.hexdigest())
    return found


def take_over(earlier: Sequence[Path], wanted: Sequence[str], folder: Path) -> int:
    """Copy to `folder` the shards `wanted` that earlier embeddings, newest first, hold undamaged; tells how many."""
    known: dict[str, tuple[Path, str]] = {}
    for artifact in earlier:
        for number, shard in enumerate(_listed(artifact)):
            known.setdefault(shard["key"], (artifact / shards.name(number), shard["sha256"]))
    return sum(_copied(*known[key], folder / shards.name(i)) for i, key in enumerate(wanted) if key in known)


def _listed(artifact: Path) -> list[dict[str, Any]]:
    try:
        return json.loads((artifact / "embeddings.json").read_text())["shards"]
    except (OSError, ValueError, KeyError):
        return []


def _copied(source: Path, digest: str, target: Path) -> bool:
    """A copy, not a link: damage to one artifact is not to be another's."""
    try:
        content = source.read_bytes()
    except OSError:
        return False
    if hashlib.sha256(content).hexdigest() != digest:
        return False
    unfinished = target.with_suffix(".part")
    unfinished.write_bytes(content)
    unfinished.rename(target)
    return True


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
