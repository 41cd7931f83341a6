"""Folds: k cross-encoders, each trained without one part of the training questions.

A cross-encoder remembers its training pairs, and its scores of them say little. With folds, the scores of a training
question come from the cross-encoder that was trained without it.

Shapes: n questions of a training, N pairs of a question (row of queries.parquet) and a passage.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, ValidationError

from pipeline.config import Config, Seed
from pipeline.cross_encoder.score_pairs import score
from pipeline.errors import InputError
from pipeline.runtime.work import Work

if TYPE_CHECKING:
    from pipeline.data.barred import Barred
    from pipeline.finetune.pools import Pools

FILE = "fold.json"
"""File in the folder of a cross-encoder that was trained without a fold: its `Fold`."""


class Fold(Config):
    """The part of the training questions that a cross-encoder is trained without."""

    number: int = Field(ge=1)
    folds: int = Field(ge=2)
    seed: Seed
    """Seed of the division into `folds` parts."""


def divide(folds: int, seed: int) -> list[Fold]:
    """Returns all folds of a division."""
    return [Fold(number=number, folds=folds, seed=seed) for number in range(1, folds + 1)]


def fold_numbers(collection: Path, query_N: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Returns the fold of each question, 1 to `folds`, int64 [N].

    A seeded hash of the question's words decides, so that a question is never trained on under another id, and new
    questions change no other's fold.
    """
    import pyarrow as pa

    from pipeline.data.ids import hash_id
    from pipeline.data.stored import read_table
    from pipeline.data.text.same_words import same_words

    rows, place_N = np.unique(query_N, return_inverse=True)
    texts = read_table(collection / "queries.parquet", columns=["text"])["text"].take(pa.array(rows, pa.int64()))
    numbers = [hash_id(f"{seed} {same_words(text)}") % folds + 1 for text in texts.to_pylist()]
    return np.array(numbers, np.int64)[place_N]


def check_folds(collection: Path, query_N: np.ndarray, folds: int | None, seed: int) -> None:
    """Raises InputError unless each fold has a training question; called early. `query_N`: those questions."""
    if folds is None:
        return
    found = np.bincount(fold_numbers(collection, query_N, folds, seed), minlength=folds + 1)[1:]
    if not found.all():
        raise InputError(
            f"folds: fold {int(found.argmin()) + 1} of {folds} has none of the {len(query_N)} training questions"
        )


def without_fold(pools: "Pools", collection: Path, fold: Fold) -> "Pools":
    """Returns the pools without the fold's questions. Raises InputError if none is left."""
    from pipeline.data.judged import take_lists

    kept_n = fold_numbers(collection, pools.queries, fold.folds, fold.seed) != fold.number
    if not kept_n.any():
        raise InputError(f"cross_encoder.folds: all training questions are in fold {fold.number} of {fold.folds}")
    left = np.flatnonzero(kept_n)
    return replace(
        pools,
        queries=pools.queries[left],
        judged=take_lists(pools.judged, left),
        barred=_barred(pools.barred, kept_n),
        negatives=tuple(take_lists(lists, left) for lists in pools.negatives),
    )


def _barred(barred: "Barred", kept_n: np.ndarray) -> "Barred":
    from pipeline.data.barred import NO_PAIR, pair_keys

    number_n = np.cumsum(kept_n) - 1

    def renumbered(key_K: np.ndarray) -> np.ndarray:
        question_K, other_K = key_K[:-1] >> 32, key_K[:-1] & 0xFFFFFFFF
        own_K = kept_n[question_K]
        return np.append(pair_keys(number_n[question_K[own_K]], other_K[own_K]), NO_PAIR)

    return barred._replace(
        judged_J=renumbered(barred.judged_J),
        copied_C=renumbered(barred.copied_C),
        words_n=barred.words_n[kept_n],
        own_n=barred.own_n[kept_n],
    )


def write_fold(fold: Fold, folder: Path) -> None:
    (folder / FILE).write_text(fold.model_dump_json(indent=2) + "\n", "utf-8")


def read_fold(cross_encoder: Path) -> Fold | None:
    """Returns the fold that a cross-encoder was trained without; None: it was trained with all questions."""
    path = cross_encoder / FILE
    if not path.is_file():
        return None
    try:
        return Fold.model_validate_json(path.read_text("utf-8"))
    except (OSError, ValidationError) as error:
        raise InputError(f"{path}: cannot be read; build the cross-encoder again") from error


def score_unseen(
    cross_encoders: Mapping[str, Path],
    collection: Path,
    tokens: Path,
    query_N: np.ndarray,
    passage_N: np.ndarray,
    work: Work,
    name: str = "pairs",
) -> np.ndarray:
    """Returns the logits of pairs, float32 [N]: each by the cross-encoder that was trained without its question.

    A single cross-encoder scores all pairs. Questions that none was trained on (of dev, or without a judged passage)
    have a fold like any other one. `cross_encoders`: folders by parameter. `name`: see `score_pairs.score`.
    Raises InputError if several are not the folds of one division.
    """
    if len(cross_encoders) == 1:
        return score(next(iter(cross_encoders.values())), tokens, query_N, passage_N, work, name)
    first, *others = [read_fold(folder) for folder in cross_encoders.values()]
    if first is None or [first, *others] != divide(first.folds, first.seed):
        names = ", ".join(map(str, cross_encoders.values()))
        raise InputError(f"cross_encoder: {names}: not the folds 1, 2, ... of one division")
    number_N = fold_numbers(collection, query_N, first.folds, first.seed)
    logit_N = np.empty(len(query_N), np.float32)
    for number, folder in enumerate(cross_encoders.values(), 1):
        own_N = number_N == number
        if own_N.any():
            logit_N[own_N] = score(folder, tokens, query_N[own_N], passage_N[own_N], work, f"{name}-{number}")
    return logit_N
