"""A small evaluation with two trainings, and the page of its report."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluating import EVALUATE
from reported import CONFIG, LINEAGE, WHOLE, work

from pipeline.data import runs
from pipeline.data.collection import schemas, write_table
from pipeline.evaluate.evaluate import evaluate
from pipeline.report.build import report

SCRIPT = '<script>alert("x")</script> & <b>more</b>'


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> dict[str, Path | None]:
    """A collection with a script in its texts, BM25's and stage 2's runs evaluated, two trainings."""
    tmp_path = tmp_path_factory.mktemp("report")
    collection = tmp_path / ("c0" * 32)
    collection.mkdir()
    tables = schemas()
    passages = [(f"p{n}", f"p{n}", SCRIPT if n == 0 else f"title {n}", f"{SCRIPT} number {n}") for n in range(4)]
    write_table(collection / "passages.parquet", tables["passages"], passages)
    queries = [(f"{split}{n}", split, f"{SCRIPT} question {split}{n}", []) for split in ("dev", "test") for n in (0, 1)]
    write_table(collection / "queries.parquet", tables["queries"], queries)
    judged = [(split, f"{split}{n}", f"p{n}", 1) for split in ("dev", "test") for n in (0, 1)]
    write_table(collection / "qrels.parquet", tables["qrels"], judged)
    (collection / "ingest.json").write_text(json.dumps({"passages": 12345, "passages_empty": 0}))
    folders = {}
    for name, best_first in (("bm25", ["p0", "p1"]), ("stage2", ["p3", "p1", "p0"])):
        folders[name] = tmp_path / name
        folders[name].mkdir()
        with runs.writer(folders[name]) as write:
            for split in ("dev", "test"):
                for n in (0, 1):
                    scores = np.arange(len(best_first), 0, -1.0)
                    write(split, [f"{split}{n}"] * len(best_first), best_first, scores)
    (folders["bm25"] / "bm25.json").write_text('{"scores": "bm25"}')
    metrics = tmp_path / "metrics"
    evaluate(EVALUATE, collection, folders["bm25"], work(metrics), stage2=folders["stage2"])
    steps = np.arange(1, 601)
    cocondenser, stage2 = tmp_path / ("a1" * 32), tmp_path / "untied"
    cocondenser.mkdir()
    (stage2 / "query").mkdir(parents=True)
    shape = {"model_type": "bert", "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 4}
    losses = {"head_mlm": 9 / steps, "late_mlm": 8 / steps, "contrastive": 5 / steps, "skipped": steps == 7}
    pq.write_table(pa.table({"step": steps, **losses}), cocondenser / "history.parquet")
    pq.write_table(pa.table({"step": steps, "loss": 4 / steps}), stage2 / "query" / "history.parquet")
    for folder in (cocondenser, stage2 / "query"):
        (folder / "config.json").write_text(json.dumps(shape | {"vocab_size": 8000, "max_position_embeddings": 128}))
    trained = {"condenser": None, "cocondenser": cocondenser, "stage1": None, "stage2": stage2}
    return {"collection": collection, "evaluate": metrics, **trained}


@pytest.fixture(scope="module")
def page(inputs, tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("page") / "out"
    figures = report(CONFIG, **inputs, lineage=LINEAGE, **WHOLE, work=work(out))
    assert figures["examples"] == 2  # all questions
    assert figures["pictures"] == len(list((out / "pictures").glob("*.png"))) == 6
    return (out / "report.html").read_text()
