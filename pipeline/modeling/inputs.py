"""The inputs of an encoder: texts as rows of ids, and rows packed without padding.

Shapes: N rows, B rows of a chunk, T tokens of a chunk. A row is the ids of one input, special tokens included, int64
[length].
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.errors import InputError
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.model_files.model_config import input_limit, model_config
from pipeline.modeling.model_files.sentence_transformers_files import side
from pipeline.notices import EXAMPLES, cut_metrics, of_counts
from pipeline.tokenization.token_files import Specials, Tokens

if TYPE_CHECKING:  # the flow reads forms, and its process loads no torch
    from torch import Tensor

    from pipeline.modeling.packing import Rows

Ids = Sequence[np.ndarray]
"""Rows of unequal length."""


@dataclass(frozen=True)
class Form:
    """How questions and passages become rows."""

    specials: Specials
    question_tokens: int
    title_tokens: int
    before_question: tuple[int, ...] = ()
    """Ids of the prefix."""
    before_passage: tuple[int, ...] = ()
    between: tuple[int, ...] = ()
    """Ids between a title and its text."""
    after: Callable[[np.ndarray], np.ndarray] | None = None
    """Gives the ids of a text after a prefix or title and a space; None: they are the same."""


def read_form(encoder: EncoderConfig, checkpoint: Path, specials: Specials) -> Form:
    """Returns the form that `encoder` specifies, with the tokenizer in `checkpoint`.

    A prefix, and a title without separator, are followed by a space. Raises InputError for a prefix whose ids would not
    be those of the joined text, if the tokenizer treats the first word of a text differently (byte-level BPE), and if a
    question's prefix leaves no room for the question.
    """
    from pipeline.tokenization.joining import after_space, joins_prefix
    from pipeline.tokenization.tokenizer import kind, read_tokenizer

    prefixes = {"question_prefix": encoder.question_prefix, "passage_prefix": encoder.passage_prefix}
    joined = [name for name, text in prefixes.items() if text]
    joined += ["title_separator"] if encoder.title_separator == "space" and encoder.title_tokens else []
    ids: dict[str, tuple[int, ...]] = dict.fromkeys(prefixes, ())
    after = None
    if joined:
        folder = side(checkpoint, "query")
        tokenizer = read_tokenizer(folder)
        after = after_space(tokenizer)
        for name, text in prefixes.items() if after else ():
            if text and not joins_prefix(tokenizer, text if text[-1].isspace() else f"{text} "):
                raise InputError(
                    f"encoder.{name}: {text!r} changes the first token of a text with this {kind(tokenizer)}, which is "
                    "not supported: end it with one space"
                )
        ids = {
            name: tuple(tokenizer.encode(text.rstrip(), add_special_tokens=False).ids)
            for name, text in prefixes.items()
        }
    check_room("encoder.question_prefix", ids["question_prefix"], "encoder.question_tokens", encoder.question_tokens)
    return Form(
        specials=specials,
        question_tokens=encoder.question_tokens,
        title_tokens=encoder.title_tokens,
        before_question=ids["question_prefix"],
        before_passage=ids["passage_prefix"],
        between=(specials.sep,) if encoder.title_separator == "sep" else (),
        after=after,
    )


def check_room(prefix: str, before: Sequence[int], field: str, limit: int) -> None:
    """Raises InputError if `before`, the ids of the field `prefix`, fills a row of `limit` ids: no text would fit."""
    if len(before) + 2 >= limit:
        raise InputError(
            f"{prefix}: its {len(before)} tokens and two special ones leave no room for a text in {field} ({limit})"
        )


def question_row(text: np.ndarray, form: Form) -> np.ndarray:
    """Returns `[CLS] prefix text [SEP]`, at most `question_tokens` ids; truncates the text's end."""
    joined = _joined(text, form) if form.before_question else text
    return _row(form.before_question, joined, form.question_tokens, form.specials)


def passage_row(title: np.ndarray, text: np.ndarray, form: Form, limit: int) -> np.ndarray:
    """Returns `[CLS] prefix title [SEP] text [SEP]`, at most `limit` ids, the title at most `title_tokens`.

    Without a title: `[CLS] prefix text [SEP]`, as in pre-training. A title takes at most half of the room.
    """
    room = limit - 2 - len(form.before_passage) - len(form.between)
    first = _joined(title, form) if form.before_passage else title
    kept = first[: min(form.title_tokens, max(0, room // 2))]
    before = (*form.before_passage, *kept, *form.between) if len(kept) else form.before_passage
    is_joined = not form.between if len(kept) else bool(form.before_passage)
    return _row(before, _joined(text, form) if is_joined else text, limit, form.specials)


def _joined(text: np.ndarray, form: Form) -> np.ndarray:
    return text if form.after is None else form.after(text)


def _row(before: Sequence[int], text: np.ndarray, limit: int, specials: Specials) -> np.ndarray:
    room = max(0, limit - len(before) - 2)
    inside = np.concatenate((np.array(before, np.int64), text[:room]))[: limit - 2]
    return np.concatenate(([specials.cls], inside, [specials.sep])).astype(np.int64)


def question_rows(tokens: Tokens, indices: Iterable[int], form: Form) -> list[np.ndarray]:
    """Returns the rows of the questions at `indices` of queries.parquet."""
    return [question_row(tokens.queries[int(i)], form) for i in indices]


def passage_rows(tokens: Tokens, indices: Iterable[int], form: Form, limit: int) -> list[np.ndarray]:
    """Returns the rows of the passages at `indices` of passages.parquet."""
    return [passage_row(tokens.titles[int(i)], tokens.passages[int(i)], form, limit) for i in indices]


def unread(tokens: Tokens, form: Form, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns how many tokens of each passage's title and text a `passage_row` of `limit` ids leaves out, each [N].

    Ignores that byte-level BPE has other tokens for the first word after a prefix or a title.
    """
    room = limit - 2 - len(form.before_passage) - len(form.between)
    title_N = tokens.titles.lengths
    kept_N = np.minimum(title_N, min(form.title_tokens, max(0, room // 2)))
    room_N = limit - 2 - len(form.before_passage) - kept_N - (kept_N > 0) * len(form.between)
    return title_N - kept_N, np.maximum(0, tokens.passages.lengths - np.maximum(0, room_N))


def question_room(form: Form) -> int:
    """Returns how many tokens of a question fit in a `question_row`."""
    return form.question_tokens - 2 - len(form.before_question)


def unread_of_questions(tokens: Tokens, rows: Sequence[int] | np.ndarray, form: Form) -> np.ndarray:
    """Returns how many tokens of the questions at `rows` a `question_row` leaves out."""
    return np.maximum(0, tokens.queries.lengths[np.asarray(rows, np.int64)] - question_room(form))


def unread_metrics(name: str, unread_N: np.ndarray, length_N: np.ndarray) -> dict[str, int | float]:
    """Returns `cut_metrics` of the texts `name`. `unread_N`: tokens that are not read of each; `length_N`: of all."""
    return cut_metrics(name, int((unread_N > 0).sum()), len(unread_N), int(unread_N.sum()), int(length_N.sum()))


def cut_notice(
    name: str, metrics: Mapping[str, Any], unread_N: np.ndarray, example: Callable[[int], str], field: str
) -> list[str]:
    """Returns a notice of truncated texts, with the first examples; empty if there is none.

    `metrics`: see `unread_metrics`. `example`: name of the text with this number, from 0. `field`: see `to_change`.
    """
    first = [example(int(row)) for row in np.flatnonzero(unread_N)[:EXAMPLES]]
    count = f"{name}_cut"
    return of_counts({count: (f"{name} cut", field)}, metrics, {count: first})


def to_change(field: str, used: int, model: Path, otherwise: str, together: str = "") -> str:
    """Returns the advice for truncated texts: the field of the length `used`, unless it is already the model's maximum.

    `otherwise`: what helps then. `together`: other fields that must then be raised too.
    """
    longest = input_limit(model_config(model))
    if used >= longest:
        return f"{field} is the model's maximum, {longest:,}: {otherwise}"
    also = f" and {together}" if together else ""
    return f"raise {field}{also} (the model has {longest:,} positions), or {otherwise}"


class Packed(NamedTuple):
    """Rows in one sequence, without padding."""

    ids_T: "Tensor"
    position_T: "Tensor"
    """Places within the row, from 0."""
    every: "Rows"
    first: "Rows"
    """Each row's first token."""
    type_T: "Tensor | None" = None
    """BERT's token types: 1 in a row's second text. None: all 0."""


def pack_rows(
    ids: Ids, row_B: np.ndarray, device: str, second_B: np.ndarray | None = None, bucket: bool = False
) -> Packed:
    """As `pack`, for the rows `row_B` of `ids`."""
    return pack([ids[row] for row in row_B], device, second_B, bucket)


def pack(ids: Ids, device: str, second_B: np.ndarray | None = None, bucket: bool = False) -> Packed:
    """Packs rows, which must be sorted by length, without padding.

    `second_B`: where second texts start. `bucket`: see `packed_rows`.
    """
    from pipeline.modeling.packing import packed_rows, to_device

    length_B = np.array([len(row) for row in ids])
    begin_B = np.cumsum(length_B) - length_B
    position_T = np.arange(length_B.sum()) - begin_B.repeat(length_B)
    return Packed(
        ids_T=to_device(np.concatenate(ids), device),
        position_T=to_device(position_T, device),
        every=packed_rows(length_B, length_B, None, device, bucket),
        first=packed_rows(length_B, np.ones_like(length_B), begin_B, device, bucket),
        type_T=None if second_B is None else to_device(position_T >= second_B.repeat(length_B), device),
    )
