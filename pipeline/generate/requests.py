"""The requests of a collection: which passages questions are written for, and the prompts.

Shapes: N passages, C chosen ones.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.data.collection import ROWS, passage_batches
from pipeline.data.ids import hash_id
from pipeline.data.text.words import count
from pipeline.generate.answer_store import request_key
from pipeline.generate.config import GenerateConfig, Kind
from pipeline.generate.prompts import Example, messages, of_kind, read_examples
from pipeline.language_model.chat_completion import Message
from pipeline.runtime import hub


class Request(NamedTuple):
    """One question to the language model."""

    row: int
    """Of the passage."""
    passage_id: str
    kind: Kind
    text: str
    """The passage with its title."""
    key: str
    """What the answer is stored under."""
    messages: list[Message]


@dataclass(frozen=True)
class Requests:
    """All requests of a collection, in passage order; each iteration reads the collection again. Memory: one batch."""

    config: GenerateConfig
    collection: Path
    chosen_C: np.ndarray
    """Rows, ascending."""
    examples: dict[Kind, list[Example]]
    writer: tuple[Any, ...]
    """What identifies the language model."""

    def __iter__(self) -> Iterator[Request]:
        start = 0
        for batch in passage_batches(self.collection, ["passage_id", "title", "text"]):
            ids, titles, texts = batch.values()
            first, last = np.searchsorted(self.chosen_C, [start, start + len(ids)])
            for row in self.chosen_C[first:last].tolist():
                at = row - start
                for kind in self.config.kinds:
                    yield self._request(row, kind, ids[at], titles[at], texts[at])
            start += len(ids)

    def __len__(self) -> int:
        return len(self.chosen_C) * len(self.config.kinds)

    def _request(self, row: int, kind: Kind, passage_id: str, title: str, text: str) -> Request:
        asked = messages(self.config, kind, title, text, self.examples[kind])
        config = self.config
        key = request_key(self.writer, asked, config.answer_tokens, config.temperature, self._drawn)
        return Request(row, passage_id, kind, f"{title}\n{text}", key, asked)

    @property
    def _drawn(self) -> tuple[int, ...]:
        """What else a local model's answer depends on."""
        config = self.config
        sampled = (config.seed,) if config.temperature and config.endpoint is None else ()
        return (*sampled, config.questions) if config.prompt == "passage" else sampled


HashFiles = Callable[[Sequence[Path]], Mapping[str, str]]
"""Returns {name: SHA-256} of the files of a folder."""


def hash_files(files: Sequence[Path]) -> dict[str, str]:
    import hashlib

    found = {}
    for path in files:
        with open(path, "rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def read_requests(
    config: GenerateConfig, collection: Path, folder: Path | None, hash_files: HashFiles = hash_files
) -> Requests:
    """Returns the requests of a collection. `folder`: of a local model. Reads the passages and the examples.

    `hash_files`: for callers that keep the hashes of a model's files.
    """
    examples = read_examples(config.examples)
    by_kind = {kind: of_kind(examples, kind, config.max_examples) for kind in config.kinds}
    return Requests(config, collection, choose(config, collection), by_kind, writer_of(config, folder, hash_files))


def choose(config: GenerateConfig, collection: Path) -> np.ndarray:
    """Returns the rows of the passages that questions are written for, int64 [C], ascending.

    Of passages with the same text it is the first. A random choice is of the smallest hashes of the texts, so that it
    does not depend on the other passages' order. Memory: 8 bytes per passage.
    """
    hash_N, long_N = [], []
    for batch in passage_batches(collection, ["title", "text"], ROWS):
        pairs = list(zip(batch["title"], batch["text"], strict=True))
        hash_N.append(np.array([hash_id(f"{config.seed} {title}\n{text}") for title, text in pairs], np.uint64))
        long_N.append(np.array([count(text) >= config.min_words for _, text in pairs], bool))
    hashes, long_enough = np.concatenate(hash_N), np.concatenate(long_N)
    _, first = np.unique(hashes, return_index=True)  # ascending hashes
    usable = first[long_enough[first]]
    return np.sort(usable[: config.passages]).astype(np.int64)


def writer_of(config: GenerateConfig, folder: Path | None, hash_files: HashFiles) -> tuple[Any, ...]:
    """Returns what identifies the language model: its address and name, its name on the hub, or its files."""
    if config.endpoint is not None:
        return ("endpoint", config.endpoint, config.model)
    if config.pretrained is not None:
        return ("hub", config.pretrained, config.revision)
    assert folder is not None
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    hashes = hash_files(files)
    return ("folder", request_key([(path.name, hashes[path.name]) for path in files]))


FILES = ("model.safetensors", "model.safetensors.index.json")
"""One of them holds, or names, a model's weights."""
HUB_FILES = (
    *("model*.safetensors", "model.safetensors.index.json", "*.json", "*.jinja"),
    *("tokenizer.model", "spiece.model", "vocab.txt", "merges.txt"),
)


def model_folder(config: GenerateConfig) -> Path | None:
    """Returns the folder of a local model, which is downloaded if it is not on this machine; None for a server's."""
    if config.pretrained is not None:
        return hub.fetch(config.pretrained, config.revision, HUB_FILES, FILES)
    return config.checkpoint
