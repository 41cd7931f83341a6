"""Qrels from DPR's answer hits: which retrieved passages hold an answer, as DPR counts its top-k hits (Karpukhin et
al., 2020, section 5; the rules of `has_answer` with its tokenizer, which are those of DrQA).

Texts are compared token by token, after Unicode's canonical decomposition (NFD) and in lower case. A token is a run of
letters, numbers and marks, or any one other character that is neither white space nor a control.

Legend of suffixes: P pairs of a question and a passage.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import regex

from pipeline.data.collection import at_rows
from pipeline.data.runs import Run
from pipeline.runtime.work import Progress

DEPTH = 100
"""Ranks of each list that are checked: hits@100 is the deepest measure."""
PASSAGES = 8192
"""Passages in memory at a time."""
TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
SHOWN = 500
"""Passages between two reports of progress."""


@dataclass(frozen=True)
class CheckedPairs:
    """Checked pairs, ascending by question and passage."""

    question_P: np.ndarray
    """Number of the question. int64."""
    passage_P: np.ndarray
    """Row of the passage in the collection. int64."""
    holds_P: np.ndarray
    """Whether the passage holds one of the question's answers. bool."""

    def qrels(self, query_ids: pa.Array, passage_ids: pa.Array) -> dict[str, dict[str, int]]:
        """Returns {question: {passage that holds an answer: 1}}."""
        qrels: dict[str, dict[str, int]] = {}
        query_P = query_ids.take(pa.array(self.question_P[self.holds_P])).to_pylist()
        passage_P = passage_ids.take(pa.array(self.passage_P[self.holds_P])).to_pylist()
        for query_id, passage_id in zip(query_P, passage_P, strict=True):
            qrels.setdefault(query_id, {})[passage_id] = 1
        return qrels

    def table(self, split: str, query_ids: pa.Array, passage_ids: pa.Array) -> pa.Table:
        """Returns all pairs in the format of the collection's qrels: relevance 1, or 0 for a passage without an answer.

        It includes zeros, so that other tools also average over questions without a hit.
        """
        from pipeline.data.collection import schemas

        names = pa.repeat(split, len(self.question_P))
        ids = query_ids.take(pa.array(self.question_P)), passage_ids.take(pa.array(self.passage_P))
        return pa.table([names, *ids, pa.array(self.holds_P.astype(np.int32))], schema=schemas()["qrels"])


NOTHING = CheckedPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))


def find_answers(
    collection: Path, runs: Sequence[Run], answers: Sequence[Sequence[str]], before: CheckedPairs, progress: Progress
) -> CheckedPairs:
    """Returns `before` and the other pairs in the runs' first DEPTH ranks.

    `answers`: of each question by number, from `normalised`; none: its passages are not checked. A passage's text is
    read and tokenized once for all questions; its title is ignored (as in DPR). Memory: the pairs, and the texts of
    PASSAGES passages. `progress` counts passages.
    """
    has_answer_Q = np.array([bool(of_question) for of_question in answers], bool)
    if not has_answer_Q.any():
        return before
    passages = 1 + max((int(run.passage_R.max(initial=0)) for run in runs), default=0)
    passages = max(passages, 1 + int(before.passage_P.max(initial=0)))
    seen = [np.zeros(0, np.int64)]
    for run in runs:
        top = run.rows((run.rank_R <= DEPTH) & has_answer_Q[run.question_R])
        seen.append(top.question_R * passages + top.passage_R)
    old_P = before.question_P * passages + before.passage_P
    pair_P = np.setdiff1d(np.concatenate(seen), old_P)
    question_P, passage_P = pair_P // passages, pair_P % passages
    pair_P = np.concatenate([old_P, pair_P])
    holds_P = np.concatenate([before.holds_P, _holding(collection, question_P, passage_P, answers, progress)])
    by = np.argsort(pair_P)
    return CheckedPairs(pair_P[by] // passages, pair_P[by] % passages, holds_P[by])


def _holding(
    collection: Path,
    question_P: np.ndarray,
    passage_P: np.ndarray,
    answers: Sequence[Sequence[str]],
    progress: Progress,
) -> np.ndarray:
    """Returns whether the passage of each pair holds an answer to its question, bool [P]."""
    by = np.argsort(passage_P, kind="stable")
    passage_N, start_N = np.unique(passage_P[by], return_index=True)
    pairs_N = np.split(by, start_N[1:])  # of each passage
    holds_P = np.zeros(len(passage_P), bool)
    for first in range(0, len(passage_N), PASSAGES):
        rows = passage_N[first : first + PASSAGES]
        texts = at_rows(collection / "passages.parquet", rows, ["text"])["text"].to_pylist()
        for n, text in enumerate(texts, first):
            passage = normalised(text)
            for pair in pairs_N[n].tolist():
                holds_P[pair] = holds_answer(passage, answers[question_P[pair]])
            if (n + 1) % SHOWN == 0 or n + 1 == len(passage_N):
                progress(n + 1, len(passage_N), "passages")
    return holds_P


def normalised(text: str) -> str:
    """Returns a text's tokens, each between spaces: ` the u . s . `; a single space if it has none.

    No token contains a space, so one text's tokens are a consecutive part of another's if and only if this string is.
    """
    tokens = TOKEN.findall(unicodedata.normalize("NFD", text))
    return f" {' '.join(map(str.lower, tokens))} ".replace("  ", " ")


def holds_answer(passage: str, answers: Iterable[str]) -> bool:
    """Whether the passage contains one of the answers; both from `normalised`.

    No passage contains an answer without a token (in DPR's code every passage does).
    """
    return any(answer.strip() and answer in passage for answer in answers)
