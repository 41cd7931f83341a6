"""The input of a cross-encoder: rows of question and passage, and their scores.

Shapes: N pairs, B pairs of a chunk, T tokens of a chunk, D dimensions.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, cat

from pipeline.cross_encoder.lengths import Lengths
from pipeline.errors import InputError
from pipeline.modeling import padded
from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.inputs import Ids, Packed, pack_rows
from pipeline.modeling.model_files.model_config import has_token_types
from pipeline.modeling.passes import fill
from pipeline.modeling.transformer import pooled
from pipeline.runtime.precision import autocast
from pipeline.tokenization.token_files import Specials, Tokens

CrossEncoder = Any
"""A Hugging Face model for sequence classification, such as `BertForSequenceClassification`, of one logit."""


@dataclass(frozen=True)
class PairForm:
    """How a question and a passage become one row."""

    specials: Specials
    lengths: Lengths
    separators: int = 1
    """Between question and passage. RoBERTa has two."""
    after_title: Callable[[np.ndarray], np.ndarray] | None = None
    """Gives the ids of a text after its title and a space; None: they are the same."""
    has_types: bool = True
    """Whether the tokenizer gives the passage another token type."""


class PairRows(NamedTuple):
    ids: Ids
    second_N: np.ndarray
    """Place of each row's passage, where BERT's token types change from 0 to 1."""


def read_pair_form(folder: Path, lengths: Lengths, specials: Specials) -> PairForm:
    """Returns the form of the pairs that the tokenizer in `folder` builds from (question, title + " " + text)."""
    from pipeline.tokenization.joining import after_space
    from pipeline.tokenization.tokenizer import has_pair_types, read_tokenizer, separators

    tokenizer = read_tokenizer(folder)
    return PairForm(specials, lengths, separators(tokenizer), after_space(tokenizer), has_pair_types(tokenizer))


def pair_row(question: np.ndarray, title: np.ndarray, text: np.ndarray, form: PairForm) -> tuple[np.ndarray, int]:
    """Returns (`[CLS] question [SEP] title text [SEP]` as int64 ids, place of its passage).

    RoBERTa has `</s></s>` between the two. Question and passage are truncated to their own lengths; a title takes at
    most half of the passage's length.
    """
    lengths, cls, sep = form.lengths, form.specials.cls, form.specials.sep
    kept = title[: min(lengths.title_tokens, lengths.passage_tokens // 2)]
    joined = form.after_title(text) if form.after_title and len(kept) else text
    passage = np.concatenate((kept, joined))[: lengths.passage_tokens]
    truncated = question[: lengths.question_tokens]
    row = np.concatenate(([cls], truncated, [sep] * form.separators, passage, [sep]))
    return row.astype(np.int64), len(truncated) + 1 + form.separators


def pair_rows(tokens: Tokens, query_N: Iterable[int], passage_N: Iterable[int], form: PairForm) -> PairRows:
    """Returns the rows of the pairs (row of queries.parquet, row of passages.parquet)."""
    texts = (
        (tokens.queries[int(q)], tokens.titles[int(p)], tokens.passages[int(p)])
        for q, p in zip(query_N, passage_N, strict=True)
    )
    return text_rows(texts, form)


def text_rows(texts: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], form: PairForm) -> PairRows:
    """Returns the rows of pairs, each of the ids of (question, title, text)."""
    pairs = [pair_row(*text, form) for text in texts]
    seconds = [second if form.has_types else len(ids) for ids, second in pairs]
    return PairRows([ids for ids, _ in pairs], np.array(seconds, np.int64))


def pack_pairs(model: CrossEncoder, rows: PairRows, row_B: np.ndarray, device: str, bucket: bool = False) -> Packed:
    """Packs the rows `row_B`, which must be sorted by length; with token types if the model has them.

    `bucket`: see `packed_rows`.
    """
    second_B = rows.second_N[row_B] if has_token_types(model.config) else None
    return pack_rows(rows.ids, row_B, device, second_B, bucket)


def logits(model: CrossEncoder, packed: Packed, row_by_row: bool = False) -> Tensor:
    """Returns the scores of packed pairs, float32 [B].

    What follows the last layer is computed in float32 on every device: bfloat16 logits have so few values that pairs
    tie. `row_by_row`: for each pair alone, as the product with one logit's weights depends on a row's place in the
    chunk in its last bits. It changes nothing for a model without packed layers.
    """
    own = architecture(model)
    if not own.is_packed:
        with autocast(packed.ids_T.device.type):
            return padded.logits(model, packed)
    with autocast(packed.ids_T.device.type):
        pooled_BD = pooled(model, packed, own.classifier_pooling(model))
    if not row_by_row:
        return own.logit(model, pooled_BD[:, None])[:, 0]
    return cat([own.logit(model, pooled_1D[:, None])[:, 0] for pooled_1D in pooled_BD.split(1)])


def score_rows(
    model: CrossEncoder,
    rows: PairRows,
    budget: int,
    done: Callable[[int], None] | None = None,
    row_by_row: bool = False,
) -> np.ndarray:
    """Returns the logits of rows in their order, float32 [N], without gradients.

    `budget` and `done` as in biencoder.encode_rows, `row_by_row` as in `logits`. Raises InputError if a logit is
    not finite.
    """
    logit_N = np.empty(len(rows.ids), np.float32)
    length_N = np.array([len(row) for row in rows.ids], np.int64)
    device = model.device.type
    packed = partial(pack_pairs, model, rows, device=device)
    fill(logit_N, length_N, budget, packed, partial(logits, model, row_by_row=row_by_row), device, done)
    if not np.isfinite(logit_N).all():
        raise InputError("a score is not finite: the cross-encoder diverged in training (try a lower learning_rate)")
    return logit_N
