"""The record of a question's list, as the files of a search hold it.

Shapes: Q questions, K passages of a list.
"""

import numpy as np

from pipeline.dense.exact import Found


def records(found: Found, seconds: float, short: int) -> np.ndarray:
    """Returns the lists of a batch of questions as an array of `record`, [Q], compared with no exact lists.

    `seconds`: of the search; `short`: the number of questions that were searched exactly.
    """
    rows_QK, scores_QK = found
    lists = np.zeros(len(rows_QK), record(rows_QK.shape[1]))
    lists["rows"], lists["scores"], lists["recall"] = rows_QK, scores_QK, np.nan
    lists["seconds"][0], lists["short"][0] = seconds, short
    return lists


def record(k: int) -> np.dtype:
    """Returns a question's record: its list; its recall at the depth and at 10 (NaN: not compared). The first record
    of a batch has the seconds of its search and the number of questions that were searched exactly."""
    lists = [("rows", np.int64, (k,)), ("scores", np.float32, (k,)), ("recall", np.float64, (2,))]
    return np.dtype([*lists, ("seconds", np.float64), ("short", np.int64)])
