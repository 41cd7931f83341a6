"""Collections whose passages have metadata."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.data.collection import PASSAGE_COLUMNS, Passage, schemas, write_table
from pipeline.data.metadata import keep_metadata
from pipeline.runtime.work import Metrics


def described(folder: Path, rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None) -> Metrics:
    """Writes passages p0, p1 ... (two to a document, titled `Title 0` ...) with this metadata; `names` of it are kept.

    None: all. Returns what ingest would tell of the columns.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told: Metrics = {}
    placed = ((f"line {i}", Passage(f"p{i}", f"d{i // 2}", f"Title {i}", "text", row)) for i, row in enumerate(rows))
    kept = list(dict.fromkeys(name for row in rows for name in row)) if names is None else names
    passages = (row[: len(PASSAGE_COLUMNS)] for row in keep_metadata(placed, kept, folder, told))
    write_table(folder / "passages.parquet", schemas()["passages"], passages)
    return told
