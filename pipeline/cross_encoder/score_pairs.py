"""Scores of many pairs by a cross-encoder, in child processes.

N pairs of a question (row of queries.parquet) and a passage (row of passages.parquet).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipeline.config import CountOrAuto
from pipeline.cross_encoder.lengths import check_cross_encoder, read_lengths
from pipeline.runtime import shards
from pipeline.runtime.spans import shard_spans
from pipeline.runtime.work import Progress, Work

SHARD = 8192
"""Pairs in a shard; a kill loses at most the unfinished shards."""


def relevance(logit_N: np.ndarray) -> np.ndarray:
    """Returns the sigmoid of logits, float64: the probability of relevance for a pointwise cross-encoder."""
    return 0.5 * (1 + np.tanh(0.5 * logit_N.astype(np.float64)))


def score(
    cross_encoder: Path, tokens: Path, query_N: np.ndarray, passage_N: np.ndarray, work: Work, name: str = "pairs"
) -> np.ndarray:
    """Returns the logits of pairs, float32 [N]. A killed call resumes with its unfinished shards.

    `name`: a folder within `work.checkpoints`, one for each call of a stage.
    Raises InputError if the cross-encoder does not fit the tokens, or if a logit is not finite.
    """
    from pipeline.runtime.launch import of_shards
    from pipeline.runtime.processes import workers

    check_cross_encoder(cross_encoder, tokens)
    folder = shards.folder_of_model(work, name)
    shards.remove_left_over(folder)
    np.save(folder / "pairs.npy", np.stack([query_N, passage_N]).astype(np.int32))
    arguments = {
        "cross_encoder": str(cross_encoder),
        "tokens": str(tokens),
        "folder": str(folder),
        "token_budget": work.machine.token_budget,
        "shard": SHARD,
    }
    number = len(shard_spans(len(query_N), SHARD))
    shards.launch_sharing(
        "pipeline.cross_encoder.score_pairs:score_shards",
        arguments,
        of_shards(work.machine),
        workers(work.machine),
        number,
        work.progress,
        folder,
    )
    parts = [np.load(folder / shards.name(i)) for i in range(number)]
    return np.concatenate([np.empty(0, np.float32), *parts])


def mean_score(
    cross_encoders: Mapping[str, Path],
    tokens: Path,
    query_N: np.ndarray,
    passage_N: np.ndarray,
    work: Work,
    suffix: str = "",
) -> np.ndarray:
    """Returns the mean logits of pairs by an ensemble, float64 [N]. `cross_encoders`: folders by parameter.

    `suffix`: of the folders within `work.checkpoints`, see `score`.
    """
    of_each = [
        score(folder, tokens, query_N, passage_N, work, f"{name}{suffix}") for name, folder in cross_encoders.items()
    ]
    return np.stack(of_each).mean(axis=0, dtype=np.float64)


def score_shards(
    *,
    progress: Progress,
    device: str,
    cross_encoder: str,
    tokens: str,
    folder: str,
    workers: int,
    token_budget: CountOrAuto,
    shard: int,
) -> dict:
    """Builds the shards of logits that `folder` lacks; the child process of `score`."""
    from pipeline.cross_encoder.pairs import pair_rows, read_pair_form, score_rows
    from pipeline.modeling.checkpoint import load_classifier
    from pipeline.tokenization.token_files import Tokens
    from pipeline.training.memory import encoding_budget

    artifact, source = Tokens.open(Path(tokens)), Path(cross_encoder)
    form = read_pair_form(source, read_lengths(source), artifact.specials)
    model = load_classifier(source)
    model.to(device)  # type: ignore[arg-type]
    budget = encoding_budget(token_budget, device, model.config)
    query_N, passage_N = np.load(Path(folder, "pairs.npy"), mmap_mode="r")

    def make(start: int, stop: int, tick: shards.Tick) -> np.ndarray:
        rows = pair_rows(artifact, query_N[start:stop], passage_N[start:stop], form)
        return score_rows(model, rows, budget, tick)

    spans = shard_spans(len(query_N), shard)
    shards.build_shards(Path(folder), spans, make, device=device, unit="pairs", progress=progress, workers=workers)
    return {}
