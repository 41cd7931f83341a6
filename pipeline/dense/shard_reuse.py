"""Shards of passages by content: their bounds, what their vectors depend on, and reuse of earlier shards.

A passage's token ids decide whether a shard begins at it, so an inserted, changed or removed passage moves only the
bounds around it (content-defined chunks: Muthitacharoen, Chen and Mazières 2001, section 3.1).
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pipeline.data.stored import read_json
from pipeline.errors import InputError
from pipeline.modeling.model_files.sentence_transformers_files import side
from pipeline.runtime import shards
from pipeline.runtime.spans import Span
from pipeline.tokenization.token_files import Tokens

ROWS = 1 << 16  # passages per step
ENCODER_FILES = (
    *("config.json", "model.safetensors", "modules.json", "tokenizer.json"),
    *("1_Pooling/config.json", "2_Dense/model.safetensors"),
)
"""Files of a checkpoint that its vectors depend on. The tokenizer gives the token ids of a prefix."""


def cuts(tokens: Tokens, most: int) -> list[Span]:
    """Returns the shards of all passages: at most `most` rows each, 3/8 of that in the mean.

    One passage in `most` / 4 begins a shard, by a hash of its title and text. A shard has at least `most` / 8 rows, so
    that a passage that occurs in every document does not begin a shard each time.
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
    """Yields a hash of each passage's token ids, including those of its title."""
    titles, texts = tokens.titles, tokens.passages
    title_ids, text_ids = titles.tokens.data, texts.tokens.data
    for first in range(0, len(texts), ROWS):  # Python lists of all offsets would take 80 bytes per passage
        title_at, text_at = (one.offsets[first : first + ROWS + 1].tolist() for one in (titles, texts))
        for i in range(len(text_at) - 1):
            before = zlib.crc32(title_ids[title_at[i] : title_at[i + 1]])
            yield zlib.crc32(text_ids[text_at[i] : text_at[i + 1]], before)


def shard_keys(tokens: Tokens, spans: Iterable[Span], checkpoint: Path, settings: Mapping[str, Any]) -> list[str]:
    """Returns each shard's SHA-256 of what its vectors depend on: passage encoder, `settings`, titles and texts."""
    same = json.dumps([_files(side(checkpoint, "passage")), settings], sort_keys=True).encode()
    shard_keys = []
    for start, stop in spans:
        digest = hashlib.sha256(same)
        for texts in (tokens.titles, tokens.passages):
            offsets = texts.offsets[start : stop + 1]
            digest.update(np.diff(offsets).astype("<i8").data)
            digest.update(np.ascontiguousarray(texts.tokens[offsets[0] : offsets[-1]]).data)
        shard_keys.append(digest.hexdigest())
    return shard_keys


def model(checkpoint: Path, known: Mapping[Path, str] = MappingProxyType({})) -> str:
    """Returns the SHA-256 of the encoder's files (both encoders if untied), equal for questions and their passages.

    `known`: SHA-256 of files that need not be hashed again.
    """
    folders = dict.fromkeys((side(checkpoint, "query"), side(checkpoint, "passage")))
    return hashlib.sha256(json.dumps([_files(one, known) for one in folders], sort_keys=True).encode()).hexdigest()


def _files(encoder: Path, known: Mapping[Path, str] = MappingProxyType({})) -> dict[str, str]:
    """Returns {name: SHA-256} of the encoder's files."""
    paths = {name: encoder / name for name in ENCODER_FILES}
    return {name: known.get(path) or sha256(path) for name, path in paths.items() if path.is_file()}


def take_over(earlier: Sequence[Path], wanted: Sequence[str], folder: Path) -> int:
    """Copies to `folder` the missing shards `wanted` from undamaged earlier embeddings, newest first.

    Returns how many of `wanted` earlier embeddings have and `folder` now holds.
    """
    known: dict[str, tuple[Path, str]] = {}
    for artifact in earlier:
        for number, (key, digest) in enumerate(_listed(artifact)):
            known.setdefault(key, (artifact / shards.name(number), digest))
    return sum(_copied(*known[key], folder / shards.name(i)) for i, key in enumerate(wanted) if key in known)


def _listed(artifact: Path) -> list[tuple[str, str]]:
    """Returns (key, SHA-256) of each shard; none if the list is damaged, because shards can be built again."""
    try:
        description = read_json(artifact / "embeddings.json", "shards")
        return [(shard["key"], shard["sha256"]) for shard in description["shards"]]
    except (InputError, LookupError, TypeError):
        return []


def _copied(source: Path, digest: str, target: Path) -> bool:
    """Copies a shard, because a link would share damage between artifacts. Returns whether the copy is good."""
    if target.is_file() and sha256(target) == digest:  # copied before a kill
        return True
    try:
        content = source.read_bytes()
    except OSError:
        return False
    if hashlib.sha256(content).hexdigest() != digest:
        return False
    with shards.whole(target) as file:
        file.write(content)
    return True


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
