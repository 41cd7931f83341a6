"""Fixtures of several test files."""

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from machines import make_machine
from pydantic import TypeAdapter
from world import (  # noqa: F401
    autoclass,
    faiss_searcher,
    inline,
    model_writer,
    negatives_writer,
    pair_start,
    teacher,
    work,
    world,
)

from pipeline.data import metadata
from pipeline.data.collection import passage_batches, read_qrels, read_queries
from pipeline.data.ingest import IngestConfig, ingest
from pipeline.notices import METRIC, read_notices
from pipeline.runtime.work import Work, silent


@pytest.fixture
def ingested(tmp_path):
    """A function that runs the ingest stage with these fields and returns what it wrote."""

    def run(**fields) -> SimpleNamespace:
        folder = tmp_path / f"collection{len(list(tmp_path.glob('collection*')))}"
        folder.mkdir()
        machine = make_machine(token_budget=1, checkpoint_minutes=0)
        metrics = ingest(TypeAdapter(IngestConfig).validate_python(fields), Work(folder, folder, machine, silent))
        counts = {name: count for name, count in metrics.items() if name != METRIC}
        assert counts == json.loads((folder / "ingest.json").read_text())
        batches = passage_batches(folder, ["passage_id", "doc_id", "title", "text"])
        return SimpleNamespace(
            folder=folder,
            counts=counts,
            notices=read_notices(metrics),
            passages=[row for batch in batches for row in zip(*batch.values(), strict=True)],
            queries=read_queries(folder),
            qrels=read_qrels(folder),
            negatives=negatives(folder / "negatives.parquet"),
            metadata=metadata.read_metadata(folder, range(metrics["passages"])),
        )

    return run


def negatives(path: Path) -> dict[str, list[str]]:
    """{query id: passage ids} that belong to the collection; empty if it has none."""
    by_query: dict[str, list[str]] = {}
    for row in pq.read_table(path).to_pylist() if path.exists() else ():
        by_query.setdefault(row["query_id"], []).append(row["passage_id"])
    return by_query


@pytest.fixture
def shared_data() -> Path:
    """The real collections next to the project."""
    folder = Path(__file__).parents[2].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is not here")
    return folder
