"""The task of docs/export.md measures an exported model with mteb as the evaluation does."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from encoders import ENCODER
from exported import Kind, encoder_of, make_run, source_of

from pipeline.data.collection import passage_batches, read_qrels, read_queries
from pipeline.data.stored import read_json
from pipeline.export.model import write_model

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[3] / "docs/export.md").read_text()
TITLES: dict[str, Any] = {"title_separator": "space", "title_tokens": 30}
KINDS = {
    "tied": Kind(encoder=ENCODER.model_copy(update={**TITLES, "question_prefix": "query:", "passage_prefix": "Tau"})),
    "untied": Kind(pooling="mean", normalise=True, projection=6, tied=False, encoder=ENCODER.model_copy(update=TITLES)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_mteb_measures_what_the_evaluation_measures(kind, tmp_path, monkeypatch) -> None:
    pytest.importorskip("mteb")
    nodes, encoder = make_run(tmp_path / "run", KINDS[kind]), encoder_of(KINDS[kind])
    source = source_of(nodes, encoder)
    write_model(source.checkpoint, tmp_path / "my-model/model", encoder, source.passage_tokens)
    write_beir(source.collection, tmp_path / "my-collection", "test")
    monkeypatch.chdir(tmp_path)
    known = dict[str, Any](__name__="page")
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], known)
    [scores] = known["result"].task_results[0].scores["test"]
    metrics = read_json(nodes["evaluate"] / "metrics.json")["splits"]["test"]["systems"]["stage1"]
    for theirs, ours in (("ndcg_at_10", "nDCG@10"), ("mrr_at_10", "RR@10"), ("recall_at_10", "R@10")):
        if ours in metrics:
            assert scores[theirs] == pytest.approx(metrics[ours]["mean"], abs=1e-5), theirs
    assert 0 < scores["ndcg_at_10"] < 1


def write_beir(collection: Path, folder: Path, split: str) -> None:
    (folder / "qrels").mkdir(parents=True)
    names = ["passage_id", "title", "text"]
    [batch] = passage_batches(collection, names)
    passages = zip(*(batch[name] for name in names), strict=True)
    lines = [{"_id": i, "title": title, "text": text} for i, title, text in passages]
    questions = [{"_id": query.query_id, "text": query.text} for query in read_queries(collection)]
    for name, table in (("corpus", lines), ("queries", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in table))
    judged = [(q, p, grade) for q, grades in read_qrels(collection, [split]).items() for p, grade in grades.items()]
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judged)]
    (folder / f"qrels/{split}.tsv").write_text("\n".join(rows) + "\n")
