"""Fixtures of several test files."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

from pipeline.collection import passage_batches, read_negatives, read_qrels, read_queries
from pipeline.ingest import IngestConfig, ingest
from pipeline.work import Machine, Work, silent


@pytest.fixture
def ingested(tmp_path):
    """A function from the fields of an ingest configuration to what the stage wrote."""

    def run(**fields) -> SimpleNamespace:
        folder = tmp_path / f"collection{len(list(tmp_path.glob('collection*')))}"
        folder.mkdir()
        machine = Machine(
            device="cpu", ranks=1, threads=1, workers=1, token_budget=1, chunk_spans=0, checkpoint_minutes=0
        )
        metrics = ingest(TypeAdapter(IngestConfig).validate_python(fields), Work(folder, folder, machine, silent))
        assert metrics == json.loads((folder / "ingest.json").read_text())
        batches = passage_batches(folder, ["passage_id", "doc_id", "title", "text"])
        return SimpleNamespace(
            folder=folder,
            counts=metrics,
            passages=[row for batch in batches for row in zip(*batch.values(), strict=True)],
            queries=read_queries(folder),
            qrels=read_qrels(folder),
            negatives=read_negatives(folder),
        )

    return run


@pytest.fixture
def shared_data() -> Path:
    """The real collections beside the project."""
    folder = Path(__file__).parents[2].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is not here")
    return folder
