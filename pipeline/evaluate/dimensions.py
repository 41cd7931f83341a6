"""Measures a model by the prefixes of its vectors that it was trained for: the stage `dimensions`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.data.collection import passage_id_array
from pipeline.data.documents import read_documents
from pipeline.data.runs import read_run
from pipeline.data.stored import read_json
from pipeline.errors import InputError
from pipeline.evaluate.config import EvaluateConfig
from pipeline.evaluate.document_ranking import numbered, of_documents
from pipeline.evaluate.questions import relevant_questions
from pipeline.evaluate.tables.dimensions_table import SHOWN
from pipeline.runtime.lineage import Step
from pipeline.runtime.work import Metrics, Work

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

    from pipeline.data.documents import Documents

INDEX, RUN = "index_", "run_"
"""Before a dimension in the names of inputs."""


def dimensions(
    config: EvaluateConfig, collection: Path, work: Work, lineage: Sequence[Step] = (), **inputs: Path
) -> Metrics:
    """Writes dimensions.json: {split, questions, rows}; a row has `dimension`, `bytes`, `questions_per_second`, and the
    measures SHOWN, each {mean, low, high} with the ends of the 95 % interval.

    `inputs`: by dimension the index (`index_64`) and the run in it (`run_64`). Of test questions, or dev questions if
    no test question has a relevant passage; `bytes`: of an index, for each passage; `questions_per_second`: of the
    run's search, on one core or GPU, or None if `lineage` does not have it. Raises InputError if no question can be
    measured.
    """
    from pipeline.evaluate.significance.bootstrap import summary

    passage_ids = passage_id_array(collection)
    documents = read_documents(collection, passage_ids)
    indexes = {name.removeprefix(INDEX): folder for name, folder in inputs.items() if name.startswith(INDEX)}
    for split in ("test", "dev"):
        query_ids, qrels, _ = relevant_questions(collection, split, config.relevance)
        if qrels:
            break
    else:
        raise InputError(f"{collection}: no dev or test question has a relevant passage, to compare dimensions by")
    values = {
        dimension: measured(config, inputs[RUN + dimension], split, query_ids, qrels, passage_ids, documents)
        for dimension in indexes
    }
    figures = summary(values, SHOWN, [], config.bootstrap_samples, config.seed)["systems"]
    # An artifact's folder has its digest as name. Without a lineage no speed is known.
    speeds = {step.digest: step.questions_per_second for step in lineage}
    rows = [
        {
            "dimension": int(dimension),
            **figures[dimension],
            "bytes": bytes_per_passage(folder),
            "questions_per_second": speeds.get(inputs[RUN + dimension].name),
        }
        for dimension, folder in indexes.items()
    ]
    found = {"split": split, "questions": len(qrels), "rows": rows}
    (work.out / "dimensions.json").write_text(json.dumps(found, indent=1) + "\n")
    means = {f"{row['dimension']}/{name}": row[name]["mean"] for row in rows for name in SHOWN}
    return {**means, **{f"{row['dimension']}/bytes": row["bytes"] for row in rows}}


def measured(
    config: EvaluateConfig,
    folder: Path,
    split: str,
    query_ids: "pyarrow.Array",
    qrels: Mapping[str, Mapping[str, int]],
    passage_ids: "pyarrow.Array",
    documents: "Documents",
) -> "np.ndarray":
    """Returns the measures SHOWN, float64 [questions, measures]. A question without results counts as zero."""
    from pipeline.evaluate.measures import MEASURES, as_ranks, measure

    run = read_run(folder, split, query_ids, passage_ids)
    if run is None:
        raise InputError(f"{folder / 'run.parquet'}: no rows of the split {split}")
    ranked = numbered(of_documents(run, documents, config.best_three_share), documents)
    values_QM = measure(as_ranks(ranked, query_ids, documents.ids), [*qrels], qrels, config.relevance)
    return values_QM[:, [MEASURES.index(name) for name in SHOWN]]


def bytes_per_passage(index: Path) -> int:
    """Returns the size of an index's files for each passage, without the passages' ids."""
    description = read_json(index / "index.json", "files", "passages")
    size = sum(file["bytes"] for name, file in description["files"].items() if name != "docid")
    return round(size / max(1, description["passages"]))
