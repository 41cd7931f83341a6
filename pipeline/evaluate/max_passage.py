"""MaxP: turns lists of passages into lists of documents, each with the score of its best passage.

Where documents are not cut, each function returns its list unchanged.
"""

from collections.abc import Mapping

import numpy as np

from pipeline.data.documents import Documents, best_rows
from pipeline.data.runs import Run, ranks


def best_of_documents(run: Run, documents: Documents) -> Run:
    """Returns the row of each document's best passage."""
    if not documents.are_cut:
        return run
    best_R = best_rows(run.question_R, documents.of_P[run.passage_R])
    return Run(run.question_R[best_R], run.passage_R[best_R], run.score_R[best_R])


def numbered(run: Run, documents: Documents) -> Run:
    """Returns the list with numbers of documents instead of rows of passages."""
    return Run(run.question_R, documents.of_P[run.passage_R], run.score_R) if documents.are_cut else run


def with_first_passages(run: Run, documents: Documents) -> Run:
    """Returns the list with the row of each document's first passage instead of the number of the document."""
    return Run(run.question_R, documents.first_D[run.passage_R], run.score_R) if documents.are_cut else run


def as_documents(run: Run, documents: Documents) -> Run:
    """Returns the list of documents, each by its first passage, so that lists of other passages can be joined with it.

    The documents keep the scores of their best passages.
    """
    return with_first_passages(numbered(best_of_documents(run, documents), documents), documents)


def fewest_documents(lists: Mapping[str, Run], runs: Mapping[str, Run], cut: Mapping[str, int]) -> dict[str, int]:
    """Returns the smallest number of documents in the lists that were cut, of each run in `cut`.

    `lists`: of passages; `runs`: the same, of documents. A list that ends earlier has found all that there is.
    """
    fewest = {}
    for name in cut:
        passages_Q = np.bincount(lists[name].question_R)
        documents_Q = np.bincount(runs[name].question_R)
        fewest[name] = int(documents_Q[passages_Q == ranks(lists[name].question_R).max()].min())
    return fewest
