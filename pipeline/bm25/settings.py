"""Reads and writes bm25.json: the settings of a first stage."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.data.stored import read_json


def write_settings(out: Path, settings: Mapping[str, Any]) -> None:
    (out / SETTINGS).write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def read_settings(artifact: Path) -> dict[str, Any]:
    """Reads the settings of an artifact. Raises InputError if the file is missing or damaged."""
    return {"scores": "bm25", **read_json(artifact / SETTINGS)}  # older artifacts have no `scores`


SETTINGS = "bm25.json"
"""Settings for a search in `index/`. `scores` is `bm25`, `weights`, or `run` if there is no index."""
