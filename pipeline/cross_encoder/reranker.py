"""Scores the passages of questions as they arrive: a question's scores have the same bytes alone and among others.

Shapes: N pairs, of all questions.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from pipeline.cross_encoder.lengths import FILE, Lengths, read_lengths
from pipeline.cross_encoder.pairs import CrossEncoder, PairForm, PairRows, read_pair_form, score_rows, text_rows
from pipeline.dense.question_encoder import FILLERS
from pipeline.errors import InputError
from pipeline.modeling.checkpoint import load_classifier
from pipeline.modeling.model_files.existing_model import check_own_tokenizer, longest_input
from pipeline.notices import notice
from pipeline.runtime.host import cores
from pipeline.tokenization.tokenizer import Tokenizer, read_tokenizer, separators, special_tokens
from pipeline.tokenization.tokens import encode
from pipeline.training.memory import encoding_budget

PAIR_TOKENS = 512
"""Largest number of tokens of a pair that an existing cross-encoder reads: the positions of BERT."""
QUESTION_SHARE = 4
"""An existing cross-encoder reads questions of up to a quarter of its pairs."""
TOGETHER = 16
"""Pairs of a forward pass on a CPU. Each core computes another pass."""

CHECKED = 64
"""Most tokens of a text with which `is_steady` compares passes: longer ones would delay the start."""

Pair = tuple[str, str, str]
"""Question, and title and text of a passage."""


@dataclass(frozen=True)
class Member:
    """One cross-encoder of an ensemble, with the tokenizer in its folder."""

    model: CrossEncoder
    tokenizer: Tokenizer
    form: PairForm

    def rows(self, pairs: Sequence[Pair]) -> PairRows:
        """Returns the rows of the pairs. Each text is tokenized once."""
        texts = [*dict.fromkeys(text for pair in pairs for text in pair)]
        ids = dict(zip(texts, map(np.array, encode(self.tokenizer, texts)), strict=True))
        return text_rows([(ids[question], ids[title], ids[text]) for question, title, text in pairs], self.form)

    def scores(self, rows: PairRows, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the logits of rows, float32 [N]. `pieces`: the rows that share forward passes."""
        logit_N = np.empty(len(rows.ids), np.float32)
        score = partial(self._piece, rows)
        if self.model.device.type == "cpu":
            # Not threads of torch: several of them on a shared core are many times slower than one.
            with ThreadPoolExecutor(cores(), initializer=torch.set_num_threads, initargs=(1,)) as threads:
                scored = [*threads.map(score, pieces)]
        else:
            scored = [score(piece) for piece in pieces]
        for piece, logits in zip(pieces, scored, strict=True):
            logit_N[piece] = logits
        return logit_N

    def _piece(self, rows: PairRows, piece: np.ndarray) -> np.ndarray:
        """Returns the logits of the rows `piece`. A pass on a CPU also has FILLERS, as that of questions has."""
        ids, device = [rows.ids[row] for row in piece], self.model.device.type
        if device != "cpu":
            budget = encoding_budget("auto", device, self.model.config)
            return score_rows(self.model, PairRows(ids, rows.second_N[piece]), budget)
        ids += [np.array([self.form.specials.cls])] * FILLERS
        second_N = np.append(rows.second_N[piece], [1] * FILLERS)
        whole = sum(map(len, ids))  # all in one pass
        return score_rows(self.model, PairRows(ids, second_N), whole, row_by_row=True)[: len(piece)]


@dataclass(frozen=True)
class Reranker:
    """Cross-encoders whose scores are averaged, as in the stage `rerank`."""

    members: tuple[Member, ...]
    together: bool = False
    """Whether pairs of several questions share forward passes. If not, those of a question do."""

    def scores(self, pairs: Sequence[Sequence[Pair]]) -> list[np.ndarray]:
        """Returns the mean logits of each question's pairs, float64 [its pairs]."""
        flat = [pair for of_question in pairs for pair in of_question]
        edges = np.cumsum([len(of_question) for of_question in pairs])[:-1]
        if not flat:
            return [np.empty(0) for _ in pairs]
        of_each = []
        for member in self.members:
            rows = member.rows(flat)
            every = np.arange(len(flat))
            groups = [every] if self.together else np.split(every, edges)
            of_each.append(member.scores(rows, [*cut_pieces(rows, groups, member.model.device.type)]))
        return np.split(np.stack(of_each).mean(axis=0, dtype=np.float64), edges)

    def cut(self, question: str) -> str:
        """Returns a notice about a question that is longer than the cross-encoders read; else an empty text."""
        member = min(self.members, key=lambda one: one.form.lengths.question_tokens)
        (ids,), room = encode(member.tokenizer, [question]), member.form.lengths.question_tokens
        what = f"question cut for the cross-encoder, tokens read of its {len(ids):,}"
        return notice(what, room) if len(ids) > room else ""

    def is_steady(self) -> bool:
        """Whether scores have the same bytes in passes of any pairs on this machine, for random pairs."""
        return all(map(is_steady, self.members))


def cut_pieces(rows: PairRows, groups: Sequence[np.ndarray], device: str) -> Iterator[np.ndarray]:
    """Yields rows that share forward passes: of a group, of similar length; on a GPU, whole groups."""
    for group in groups:
        by_length = sorted(group.tolist(), key=lambda row: len(rows.ids[row]))
        most = TOGETHER if device == "cpu" else len(by_length)
        yield from (np.array(by_length[start : start + most]) for start in range(0, len(by_length), max(1, most)))


def is_steady(member: Member) -> bool:
    """As `Reranker.is_steady`, of one cross-encoder: five pairs alone, in two passes, and in one in another order."""
    random, form = np.random.default_rng(0), member.form

    def text(most: int) -> np.ndarray:
        return random.integers(0, form.specials.vocab_size, random.integers(1, min(most, CHECKED) + 1))

    lengths = form.lengths.question_tokens, form.lengths.passage_tokens
    rows = text_rows([(text(lengths[0]), text(1), text(lengths[1])) for _ in range(5)], form)
    alone_N = member.scores(rows, np.split(np.arange(5), 5))
    ways = ([[0, 1], [2, 3, 4]], [[4, 2, 0, 1, 3]])
    return all(np.array_equal(member.scores(rows, [np.array(piece) for piece in way]), alone_N) for way in ways)


def existing_lengths(folder: Path) -> Lengths:
    """Returns the lengths of an existing cross-encoder: all that it reads, at most PAIR_TOKENS."""
    longest = min(longest_input(folder), PAIR_TOKENS)
    own = 2 + separators(read_tokenizer(folder))
    question = longest // QUESTION_SHARE
    passage = longest - own - question
    if min(question, passage) < 1:
        raise InputError(f"{folder}: reads {longest} tokens, too few for a question and a passage")
    return Lengths(question, passage, passage)


def open_reranker(folders: Sequence[Path], device: str, often: bool) -> Reranker:
    """Loads cross-encoders: of this project, with the lengths in `pairs.json`, or existing ones.

    `often`: many questions come at once; their pairs share forward passes if that changes no byte.
    Raises InputError for a folder of another model, or without a tokenizer.
    """
    members = []
    for folder in folders:
        tokenizer = read_tokenizer(folder)
        check_own_tokenizer(folder)
        lengths = read_lengths(folder) if (folder / FILE).is_file() else existing_lengths(folder)
        form = read_pair_form(folder, lengths, special_tokens(tokenizer)[0])
        model = load_classifier(folder)
        model.to(device)  # type: ignore[arg-type]
        members.append(Member(model, tokenizer, form))
    reranker = Reranker(tuple(members))
    return replace(reranker, together=often and reranker.is_steady())
