"""How many tokens of a question, a title and a text a cross-encoder reads."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.data.stored import read_json
from pipeline.errors import InputError
from pipeline.modeling.model_config import model_config, positions

if TYPE_CHECKING:
    from pipeline.tokenization.token_files import Tokens


FILE = "pairs.json"
"""In a cross-encoder's folder: its `Lengths`."""


SPECIAL_TOKENS = {"bert": 3, "roberta": 4}
"""Of a pair's row."""


class Lengths(NamedTuple):
    """What of a pair a cross-encoder reads, in tokens without special ones."""

    question_tokens: int
    title_tokens: int
    passage_tokens: int
    """Title and text together."""


def write_lengths(lengths: Lengths, folder: Path) -> None:
    (folder / FILE).write_text(json.dumps(lengths._asdict(), indent=2) + "\n", "utf-8")


def read_lengths(cross_encoder: Path) -> Lengths:
    """InputError for a folder that no cross-encoder's stage wrote."""
    path = cross_encoder / FILE
    try:
        return Lengths(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: cannot be read; a cross-encoder of this project has it") from error


def check_lengths(model: Path, tokens: Path, lengths: Lengths, field: str) -> None:
    """InputError, naming `field`, unless the model in a folder has room for pairs of these lengths and tokens."""
    config = model_config(model)
    entries = read_json(tokens / "specials.json", "vocab_size")["vocab_size"]
    if entries > config["vocab_size"]:
        raise InputError(f"{field}: {model} knows {config['vocab_size']} tokens, but the tokenizer has {entries}")
    longest = lengths.question_tokens + lengths.passage_tokens + SPECIAL_TOKENS[config["model_type"]]
    if longest > positions(config):
        raise InputError(
            f"{field}: pairs of {longest} tokens, but the model in {model} has {positions(config)} positions"
        )


def check_cross_encoder(cross_encoder: Path, tokens: Path) -> Lengths:
    """The lengths of a cross-encoder that fits the tokens. Raises InputError for another one."""
    lengths = read_lengths(cross_encoder)
    check_lengths(cross_encoder, tokens, lengths, "cross_encoder")
    return lengths


def count_cut(tokens: "Tokens", query_N: np.ndarray, passage_N: np.ndarray, lengths: Lengths) -> dict[str, int]:
    """How many of these questions and passages are longer than the cross-encoder reads; each counts once.

    The space that byte-level BPE has between title and text aside.
    """
    asked, read = np.unique(query_N), np.unique(passage_N)
    kept_N = np.minimum(tokens.titles.lengths[read], min(lengths.title_tokens, lengths.passage_tokens // 2))
    return {
        "questions_cut": int((tokens.queries.lengths[asked] > lengths.question_tokens).sum()),
        "passages_cut": int((kept_N + tokens.passages.lengths[read] > lengths.passage_tokens).sum()),
    }
