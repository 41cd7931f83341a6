"""bm25.json: the settings that a first stage was built with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.data.stored import read_json


def write_settings(out: Path, settings: Mapping[str, Any]) -> None:
    (out / SETTINGS).write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def read_settings(artifact: Path) -> dict[str, Any]:
    """Those that an artifact was made with. Raises InputError."""
    return {"scores": "bm25", **read_json(artifact / SETTINGS)}  # older artifacts know no other


SETTINGS = "bm25.json"
"""What a search in `index/` must know, `scores` among it: `bm25`, `weights`, or `run` where there is no index."""
