"""Reads and writes the settings of a first stage: bm25.json and stop_words.txt."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.bm25.languages import ENGLISH
from pipeline.data.stored import read_json


def write_settings(out: Path, settings: Mapping[str, Any]) -> None:
    (out / SETTINGS).write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def read_settings(artifact: Path) -> dict[str, Any]:
    """Reads the settings of an artifact. Raises InputError if the file is missing or damaged."""
    return {"scores": "bm25", "language": ENGLISH, **read_json(artifact / SETTINGS)}  # older artifacts lack these two


def write_stop_words(out: Path, words: Sequence[str]) -> None:
    (out / STOP_WORDS).write_text("".join(f"{word}\n" for word in words), encoding="utf-8", newline="\n")


def read_stop_words(artifact: Path) -> frozenset[str]:
    """Reads the words that the analyser of an artifact leaves out; empty if it has no list, or is English."""
    path = artifact / STOP_WORDS
    return frozenset(path.read_text(encoding="utf-8").splitlines()) if path.exists() else frozenset()


STOP_WORDS = "stop_words.txt"
"""Words that the analyser leaves out, one in a line."""
SETTINGS = "bm25.json"
"""Settings for a search in `index/`. `scores` is `bm25`, `weights`, or `run` if there is no index. `language` is not
there for English."""
