"""A model and its start on further collections: the stage, its table, and the sentence where the model is worse."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluating import EVALUATE
from reported import work
from searched import write_collection

from pipeline.data import runs
from pipeline.errors import InputError
from pipeline.evaluate.evaluate import check_collection, evaluate
from pipeline.evaluate.others import others
from pipeline.evaluate.significance.paired import rounded_p
from pipeline.evaluate.tables.others_table import others_table, worse_sentences
from pipeline.formatting import p_text
from pipeline.runtime.planned import Planned
from tasks.stages import STAGES


def evaluated(folder: Path, split: str, first_before: int, first_after: int, questions: int = 12) -> Path:
    """An evaluation of both models; each finds the only relevant passage first for so many questions, else second."""
    folder.mkdir()
    passages = [(name, name, "", f"text {name}") for name in ("right", "wrong")]
    query_ids = [f"q{n}" for n in range(questions)]
    queries = [(query_id, split, "a question") for query_id in query_ids]
    qrels = [(split, query_id, "right", 1) for query_id in query_ids]
    collection = write_collection(folder / "collection", passages, queries, qrels)
    found = {}
    for name, first in (("model", first_before), ("stage2", first_after)):
        found[name] = folder / name
        found[name].mkdir()
        with runs.writer(found[name]) as write:
            for n, query_id in enumerate(query_ids):
                order = ["right", "wrong"] if n < first else ["wrong", "right"]
                write(split, [query_id] * 2, order, np.array([2.0, 1.0]))
    evaluate(EVALUATE, collection, None, work(folder / "evaluate"), **found)
    return folder / "evaluate"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """(others.json, metrics) of one collection that got worse, one that got better, and one without a change."""
    folder = tmp_path_factory.mktemp("others")
    evaluations = {
        "on_bad": evaluated(folder / "bad", "test", 12, 0),
        "on_good": evaluated(folder / "good", "dev", 0, 12),
        "on_same": evaluated(folder / "same", "test", 3, 3),
    }
    metrics = others(EVALUATE, work(folder / "others"), **evaluations)
    return json.loads((folder / "others" / "others.json").read_text()), metrics


def test_p_is_corrected_over_the_collections(written) -> None:
    found, metrics = written
    assert (found["measure"], found["test"]) == ("nDCG@10", "randomisation")
    rows = {row["collection"]: row for row in found["collections"]}
    assert [*rows] == ["bad", "good", "same"]
    assert [rows[name]["split"] for name in rows] == ["test", "dev", "test"]
    second = 1 / np.log2(3)
    for name, before, after in (("bad", 1, second), ("good", second, 1)):
        assert rows[name]["before"]["mean"] == pytest.approx(before)
        assert rows[name]["after"]["mean"] == pytest.approx(after)
        assert rows[name]["difference"]["mean"] == pytest.approx(after - before)
        assert rows[name]["difference"]["p_holm"] == rounded_p(3 * rows[name]["difference"]["p"])
    assert rows["same"]["difference"]["p_holm"] == 1
    assert (rows["bad"]["difference"]["losses"], rows["good"]["difference"]["wins"]) == (12, 12)
    assert metrics["bad/before"] == 1
    assert metrics["bad/p"] == rows["bad"]["difference"]["p_holm"] < 0.05


def test_the_table_has_a_row_for_each_collection(written) -> None:
    head, rows = others_table(written[0])
    assert head[:5] == ["other collections, nDCG@10", "questions", "existing model", "stage 2", "difference"]
    assert rows[0][:5] == ["bad", "12 test", "1.000", ".631", "−.369 [−.369, −.369]"]
    assert rows[1][1] == "12 dev"
    assert rows[2][4:] == [".000 [.000, .000]", "1.000", "0", "12", "0"]


def test_a_sentence_says_where_the_model_is_worse(written) -> None:
    found = written[0]
    p = found["collections"][0]["difference"]["p_holm"]
    expected = "On bad the fine-tuned model is worse than the model that it started from: nDCG@10 1.000 → .631"
    assert worse_sentences(found) == [f"{expected} (p {p_text(p)})."]
    adapted = {**found, "collections": [{**found["collections"][0], "model": "adapted"}]}
    assert worse_sentences(adapted)[0].startswith("On bad the adapted model is worse")
    by_chance = {**found["collections"][0], "difference": {**found["collections"][0]["difference"], "p_holm": 0.05}}
    assert worse_sentences({**found, "collections": [by_chance]}) == []


def planned(name: str, config: Any, artifact: Path | None, **inputs: Planned | None) -> Planned:
    stage = name.partition("-")[0]
    return Planned(name, stage, STAGES[stage].section_of(name), config, {}, inputs, artifact, {})


def test_a_collection_without_relevant_passages_is_refused_before_any_training(tmp_path: Path) -> None:
    from pipeline.data.readers.beir import BeirConfig

    folder = tmp_path / "unjudged"
    passages, queries = [("p", "p", "", "text")], [("q", "test", "a question")]
    collection = write_collection(tmp_path / "collection", passages, queries, [("test", "q", "p", 0)])
    source = planned(
        "ingest-other-unjudged",
        BeirConfig(reader="beir", folder=folder, document_key="", metadata=()),
        collection,
    )
    with pytest.raises(InputError) as error:
        check_collection(planned("evaluate-other-unjudged", EVALUATE, None, collection=source))
    line = "no dev or test question has a relevant passage: leave it out"
    assert str(error.value) == f"evaluate.others: {folder}: {line}"
