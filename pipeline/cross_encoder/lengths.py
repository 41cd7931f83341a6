"""The numbers of tokens of a question, a title and a text that a cross-encoder reads."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.data.stored import read_json
from pipeline.errors import InputError
from pipeline.modeling.model_files.model_config import AFTER_PADDING, input_limit, model_config

if TYPE_CHECKING:
    from pipeline.tokenization.token_files import Tokens


FILE = "pairs.json"
"""File in a cross-encoder's folder: its `Lengths`."""


def pair_special_tokens(model_type: str) -> int:
    """Returns the number of special tokens in a pair's row with the type's own tokenizers: RoBERTa's separate twice."""
    return 4 if model_type in AFTER_PADDING else 3


class Lengths(NamedTuple):
    """The parts of a pair that a cross-encoder reads, in tokens without special tokens."""

    question_tokens: int
    title_tokens: int
    passage_tokens: int
    """Title and text together."""


def write_lengths(lengths: Lengths, folder: Path) -> None:
    (folder / FILE).write_text(json.dumps(lengths._asdict(), indent=2) + "\n", "utf-8")


def read_lengths(cross_encoder: Path) -> Lengths:
    """Reads the lengths. Raises InputError for a folder that is not an artifact of the cross-encoder stage."""
    path = cross_encoder / FILE
    try:
        return Lengths(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: cannot be read; every cross-encoder of this project has this file") from error


def check_lengths(model: Path, tokens: Path, lengths: Lengths, field: str) -> None:
    """Raises InputError, which names `field`, unless the model allows pairs of these lengths and tokens."""
    from pipeline.tokenization.tokenizer import has_tokenizer, read_tokenizer, separators

    config = model_config(model)
    entries = read_json(tokens / "specials.json", "vocab_size")["vocab_size"]
    if entries > config["vocab_size"]:
        raise InputError(
            f"{field}: the model in {model} has {config['vocab_size']} tokens, but the tokenizer has {entries}"
        )
    own = 2 + separators(read_tokenizer(model)) if has_tokenizer(model) else pair_special_tokens(config["model_type"])
    longest = lengths.question_tokens + lengths.passage_tokens + own
    if longest > input_limit(config):
        raise InputError(
            f"{field}: pairs of {longest} tokens, but the model in {model} has {input_limit(config)} positions"
        )


def check_cross_encoder(cross_encoder: Path, tokens: Path) -> Lengths:
    """Returns the lengths of a cross-encoder. Raises InputError if it does not fit the tokens."""
    lengths = read_lengths(cross_encoder)
    check_lengths(cross_encoder, tokens, lengths, "cross_encoder")
    return lengths


def count_cut(tokens: "Tokens", query_N: np.ndarray, passage_N: np.ndarray, lengths: Lengths) -> dict[str, int | float]:
    """Returns metrics of the questions and passages that are longer than the cross-encoder reads; each counts once.

    Ignores that byte-level BPE has other tokens for a text's first word after a title.
    """
    from pipeline.modeling.inputs import unread_metrics

    queries, passages = np.unique(query_N), np.unique(passage_N)
    question_Q, text_P = tokens.queries.lengths[queries], tokens.passages.lengths[passages]
    kept_P = np.minimum(tokens.titles.lengths[passages], min(lengths.title_tokens, lengths.passage_tokens // 2))
    unread_P = np.maximum(0, kept_P + text_P - lengths.passage_tokens)
    return {
        **unread_metrics("questions", np.maximum(0, question_Q - lengths.question_tokens), question_Q),
        **unread_metrics("passages", unread_P, text_P),
    }
