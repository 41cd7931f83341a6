"""Agreement of two judges on the same passages, beyond chance: Cohen's kappa.

Legend of suffixes: Q questions, G grades, S resamples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.data.qrels import Qrels, read_qrels
from pipeline.errors import InputError
from pipeline.evaluate.significance.bootstrap import interval, resampled_means, rounded


@dataclass(frozen=True)
class Agreement:
    """Of two judges, over the passages that both have judged."""

    questions: int
    passages: int
    only_a: int
    """Passages that only judge a has judged."""
    only_b: int
    grades: list[int]
    table: list[list[int]]
    """Number of passages by the grade of a (rows) and of b (columns), in the order of `grades`."""
    measures: Mapping[str, Mapping[str, float]]
    """{measure: {mean, low, high}}, with the ends of the 95 % interval over questions:

    same: share of passages with the same grade. kappa: Cohen (1960). weighted: with squared distances of grades (Cohen,
    1968). relevant: kappa of relevant against not relevant.
    """


def agreement(a: Path, b: Path, relevance: int, samples: int, seed: int) -> Agreement:
    """Compares two files of judgements (`read_qrels`; of a table the split test).

    `relevance`: lowest grade that counts as relevant. `samples`, `seed`: of the bootstrap. Raises InputError as
    `read_qrels` does, and if the files have no passage in common.
    """
    judged = read_qrels(a, "test"), read_qrels(b, "test")
    both = [(q, [p for p in judged[0][q] if p in judged[1][q]]) for q in judged[0] if q in judged[1]]
    both = [(q, passages) for q, passages in both if passages]
    if not both:
        raise InputError(f"{b}: judges no passage of a question that {a} judges")
    grades = sorted({one[q][p] for one in judged for q, passages in both for p in passages})
    table_QGG = np.zeros((len(both), len(grades), len(grades)))
    for n, (q, passages) in enumerate(both):
        for p in passages:
            table_QGG[n, grades.index(judged[0][q][p]), grades.index(judged[1][q][p])] += 1
    count = sum(len(passages) for _, passages in both)
    table_GG = table_QGG.sum(axis=0)
    resampled_SGG = resampled_means(table_QGG.reshape(len(both), -1), samples, seed).reshape(-1, *table_GG.shape)
    return Agreement(
        questions=len(both),
        passages=count,
        only_a=_size(judged[0]) - count,
        only_b=_size(judged[1]) - count,
        grades=grades,
        table=table_GG.astype(int).tolist(),
        measures={
            name: _estimate(measure, table_GG, resampled_SGG) for name, measure in _measures(grades, relevance).items()
        },
    )


def _size(qrels: Qrels) -> int:
    return sum(map(len, qrels.values()))


Measure = Callable[[np.ndarray], np.ndarray]
"""Tables [..., G, G] -> figures [...]."""


def _measures(grades: Sequence[int], relevance: int) -> dict[str, Measure]:
    grade_G = np.array(grades)
    apart_GG = (grade_G[:, None] != grade_G).astype(float)
    relevant_G = grade_G >= relevance
    return {
        "same": lambda tables: 1 - _mean_distance(tables, apart_GG),
        "kappa": lambda tables: kappa(tables, apart_GG),
        "weighted": lambda tables: kappa(tables, (grade_G[:, None] - grade_G).astype(float) ** 2),
        "relevant": lambda tables: kappa(tables, (relevant_G[:, None] != relevant_G).astype(float)),
    }


def kappa(tables: np.ndarray, distance_GG: np.ndarray) -> np.ndarray:
    """Returns 1 - observed / expected disagreement of each table, [..., G, G] -> [...].

    It is 1 for full agreement and 0 for that of chance.

    `distance_GG`: how much two grades disagree. If both judges give all passages one grade, chance explains everything
    and kappa is undefined; it is 1 here.
    """
    rows, columns = tables.sum(axis=-1), tables.sum(axis=-2)
    expected = _mean_distance(rows[..., :, None] * columns[..., None, :], distance_GG)
    observed = _mean_distance(tables, distance_GG)
    return 1 - np.divide(observed, expected, out=np.zeros_like(observed), where=expected > 0)


def _mean_distance(tables: np.ndarray, distance_GG: np.ndarray) -> np.ndarray:
    return np.asarray((tables * distance_GG).sum(axis=(-1, -2)) / tables.sum(axis=(-1, -2)))


def _estimate(measure: Measure, table_GG: np.ndarray, resampled_SGG: np.ndarray) -> dict[str, float]:
    low, high = interval(measure(resampled_SGG)[:, None])
    return {"mean": rounded(float(measure(table_GG))), "low": rounded(low[0]), "high": rounded(high[0])}
