"""Scores of many pairs by a cross-encoder, in processes of their own.

N pairs of a question (row of queries.parquet) and a passage (row of passages.parquet).
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.data.stored import read_json
from pipeline.errors import InputError
from pipeline.modeling.model_config import model_config, positions
from pipeline.runtime import shards
from pipeline.runtime.work import Progress, Work

if TYPE_CHECKING:
    from pipeline.tokenization.token_files import Tokens

FILE = "pairs.json"
"""In a cross-encoder's folder: its `Lengths`."""
SPECIAL_TOKENS = {"bert": 3, "roberta": 4}
"""Of a pair's row."""
SHARD = 8192
"""Pairs in a shard, the unit that a kill can lose."""


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


def relevance(logit_N: np.ndarray) -> np.ndarray:
    """Sigmoid of logits, float64: the probability of relevance, if the cross-encoder was trained pointwise."""
    return 0.5 * (1 + np.tanh(0.5 * logit_N.astype(np.float64)))


def score(
    cross_encoder: Path, tokens: Path, query_N: np.ndarray, passage_N: np.ndarray, work: Work, name: str = "pairs"
) -> np.ndarray:
    """The logits of pairs, float32 [N]. A call that was killed goes on where it was.

    `name`: a folder within `work.checkpoints`, one for each call of a stage.
    Raises InputError where the cross-encoder does not fit the tokens or gives what is not finite.
    """
    from pipeline.runtime.launch import ENCODING, launch, of_shards
    from pipeline.runtime.processes import workers

    check_cross_encoder(cross_encoder, tokens)
    folder = work.checkpoints / name
    folder.mkdir(parents=True, exist_ok=True)
    shards.remove_left_over(folder)
    np.save(folder / "pairs.npy", np.stack([query_N, passage_N]).astype(np.int32))
    arguments = {
        "cross_encoder": str(cross_encoder),
        "tokens": str(tokens),
        "folder": str(folder),
        "workers": workers(work.machine),
        "token_budget": work.machine.token_budget,
        "shard": SHARD,
    }
    launch(
        "pipeline.cross_encoder.score_pairs:run", arguments, of_shards(work.machine), work.progress, folder, ENCODING
    )
    parts = [np.load(folder / shards.name(i)) for i in range(len(shards.spans(len(query_N), SHARD)))]
    return np.concatenate([np.empty(0, np.float32), *parts])


def run(
    *,
    progress: Progress,
    device: str,
    cross_encoder: str,
    tokens: str,
    folder: str,
    workers: int,
    token_budget: int,
    shard: int,
) -> dict:
    """The child of `score`: the shards of logits that `folder` still lacks."""
    from pipeline.cross_encoder.pairs import pair_rows, read_pair_form, score_rows
    from pipeline.modeling.checkpoint import load_classifier
    from pipeline.tokenization.token_files import Tokens

    artifact, source = Tokens.open(Path(tokens)), Path(cross_encoder)
    form = read_pair_form(source, read_lengths(source), artifact.specials)
    model = load_classifier(source)
    model.to(device)  # type: ignore[arg-type]
    query_N, passage_N = np.load(Path(folder, "pairs.npy"), mmap_mode="r")

    def make(start: int, stop: int, tick: shards.Tick) -> np.ndarray:
        rows = pair_rows(artifact, query_N[start:stop], passage_N[start:stop], form)
        return score_rows(model, rows, token_budget, tick)

    spans = shards.spans(len(query_N), shard)
    shards.build(Path(folder), spans, make, device=device, unit="pairs", progress=progress, workers=workers)
    return {}
