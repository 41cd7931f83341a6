"""Shards of passages by content: where each begins, what its vectors hang on, and those that were made before.

A shard begins where a passage's own ids say so, and at no multiple of a number: what is inserted, changed or removed
moves the bounds around it and no others (content-defined chunks: Muthitacharoen, Chen and Mazières 2001, section 3.1).
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
from pipeline.modeling.sentence_transformers_files import side
from pipeline.runtime import shards
from pipeline.runtime.spans import Span
from pipeline.tokenization.token_files import Tokens

ROWS = 1 << 16  # passages looked at together
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
    for first in range(0, len(texts), ROWS):  # as a list of Python's, all places would take 80 bytes a passage
        title_at, text_at = (one.offsets[first : first + ROWS + 1].tolist() for one in (titles, texts))
        for i in range(len(text_at) - 1):
            before = zlib.crc32(title_ids[title_at[i] : title_at[i + 1]])
            yield zlib.crc32(text_ids[text_at[i] : text_at[i + 1]], before)


def keys(tokens: Tokens, spans: Iterable[Span], checkpoint: Path, settings: Mapping[str, Any]) -> list[str]:
    """SHA-256 of all that a shard's vectors are made from: the passage encoder, `settings`, titles and texts."""
    same = json.dumps([_files(side(checkpoint, "passage")), settings], sort_keys=True).encode()
    found = []
    for start, stop in spans:
        digest = hashlib.sha256(same)
        for texts in (tokens.titles, tokens.passages):
            offsets = texts.offsets[start : stop + 1]
            digest.update(np.diff(offsets).astype("<i8").data)
            digest.update(np.ascontiguousarray(texts.tokens[offsets[0] : offsets[-1]]).data)
        found.append(digest.hexdigest())
    return found


def model(checkpoint: Path, known: Mapping[Path, str] = MappingProxyType({})) -> str:
    """SHA-256 of the encoders' files, both where untied: what questions and passages must have in common.

    `known`: SHA-256 of files that need not be hashed again.
    """
    folders = dict.fromkeys((side(checkpoint, "query"), side(checkpoint, "passage")))
    return hashlib.sha256(json.dumps([_files(one, known) for one in folders], sort_keys=True).encode()).hexdigest()


def _files(encoder: Path, known: Mapping[Path, str] = MappingProxyType({})) -> dict[str, str]:
    """{name: SHA-256} of the encoder's files."""
    paths = {name: encoder / name for name in ENCODER_FILES}
    return {name: known.get(path) or sha256(path) for name, path in paths.items() if path.is_file()}


def take_over(earlier: Sequence[Path], wanted: Sequence[str], folder: Path) -> int:
    """Copy to `folder` the shards `wanted` that it lacks and earlier embeddings, newest first, hold undamaged.

    Tells how many are there now that they hold.
    """
    known: dict[str, tuple[Path, str]] = {}
    for artifact in earlier:
        for number, (key, digest) in enumerate(_listed(artifact)):
            known.setdefault(key, (artifact / shards.name(number), digest))
    return sum(_copied(*known[key], folder / shards.name(i)) for i, key in enumerate(wanted) if key in known)


def _listed(artifact: Path) -> list[tuple[str, str]]:
    """(key, SHA-256) of each shard; none where the list is damaged, for they can be built again."""
    try:
        said = read_json(artifact / "embeddings.json", "shards")
        return [(shard["key"], shard["sha256"]) for shard in said["shards"]]
    except (InputError, LookupError, TypeError):
        return []


def _copied(source: Path, digest: str, target: Path) -> bool:
    """A copy, not a link: damage to one artifact is not to be another's."""
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
