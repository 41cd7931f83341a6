"""Measures retrieval with other encodings of the questions, in the run's own index.

Shapes: Q questions, K passages of each, R rows of a run, M measures, E dimensions of a vector.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pipeline.data.collection import passage_id_array
from pipeline.data.runs import ranked
from pipeline.dense.index_files import open_index
from pipeline.dense.search import top_k
from pipeline.evaluate.config import SPLITS
from pipeline.evaluate.measures import MEASURES, as_ranks, measure
from pipeline.evaluate.questions import judged
from pipeline.export.source import Source, form_of, judged_places
from pipeline.modeling.inputs import Ids, question_rows
from pipeline.runtime.work import Progress
from pipeline.tokenization.token_files import Tokens

SHOWN = ("RR@10", "nDCG@10")
DEPTH = 10
"""Deepest rank of the measures SHOWN."""
ENCODED = 64
"""Questions per report of progress."""


def retrieval(
    source: Source, ways: Mapping[str, Callable[[Ids], np.ndarray]], progress: Progress
) -> dict[str, Any] | None:
    """Returns measures of the judged dev questions (or test if there are none) for each way of encoding them.

    Returns None if the run has no index by this model.
    """
    if source.index is None:
        return None
    for split in SPLITS:
        query_ids, qrels, _ = judged(source.collection, split, source.relevance)
        if qrels:
            break
    else:
        return None
    tokens = Tokens.open(source.tokens)
    index = open_index(source.index)
    rows = question_rows(tokens, judged_places(source, split, [*qrels]), form_of(source, tokens))
    passage_ids = passage_id_array(source.collection)
    measured: dict[str, dict[str, float]] = {}
    for number, (name, encode) in enumerate(ways.items()):
        encoded = []
        for start in range(0, len(rows), ENCODED):
            progress(number * len(rows) + start, len(ways) * len(rows), "questions")
            encoded.append(encode(rows[start : start + ENCODED]))
        found_QK, scores_QK = top_k(np.concatenate(encoded), index, DEPTH)
        question_R = np.arange(len(rows)).repeat(found_QK.shape[1])
        run = ranked(question_R, found_QK.ravel(), scores_QK.ravel())
        ranks = as_ranks(run, query_ids, passage_ids)
        values_QM = measure(ranks, [*qrels], qrels, source.relevance)
        measured[name] = {shown: float(values_QM[:, MEASURES.index(shown)].mean()) for shown in SHOWN}
    return {"split": split, "questions": len(rows), **measured}
