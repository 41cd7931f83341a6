"""Merges a trained bi-encoder with the one that training started from: the mean of their weights.

Training with few questions may harm an existing model on other questions; half way between the two, most of the gain
stays and little is lost (Wortsman et al. 2022, WiSE-FT; Izmailov et al. 2018 for weights of one training).

Shapes: V dev questions, C candidates of each, S shares.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.evaluate.significance.paired import FEWEST, Better, proven_better
from pipeline.finetune.config import MergeConfig
from pipeline.finetune.validation import Candidates, ValidationConfig, read_candidates
from pipeline.runtime.work import Metrics

PERMUTATIONS = 10_000


def read_dev_candidates(config: MergeConfig, collection: Path, run: Path, seed: int) -> Candidates | None:
    """Returns the dev questions that decide, with their candidates; None if one share is given, or with too few."""
    from pipeline.data.judged import read_judged

    if len(config.shares) == 1 or len(read_judged(collection, "dev").queries) < FEWEST:
        return None
    validation = ValidationConfig(questions=config.questions, candidates=config.candidates, keep="last")
    return read_candidates(validation, collection, run, seed)


def merge(
    config: MergeConfig,
    trained: nn.Module,
    start: Mapping[str, Tensor],
    ranks_V: Callable[[], Tensor] | None,
    seed: int,
) -> Metrics:
    """Changes the weights of `trained` to the merged ones. Returns the share, and with a choice the figures of all.

    `start`: the weights that training started from, by name. `ranks_V`: measures RR@10 of each dev question with the
    current weights; None: the first share is used.
    """
    tuned = {name: x.clone() for name, x in trained.state_dict().items()}
    share, metrics = config.shares[0], dict[str, float | None]()
    if ranks_V is not None:
        columns = []
        for one in config.shares:
            set_weights(trained, tuned, start, one)
            columns.append(ranks_V().double().cpu().numpy())
        better = better_share(np.stack(columns, axis=1), seed)
        if better is not None:
            share = config.shares[1 + better.column]
            metrics["merge_p"] = better.p
        metrics |= {f"merge_{one:g}_dev_RR@10": float(c.mean()) for one, c in zip(config.shares, columns, strict=True)}
    set_weights(trained, tuned, start, share)
    return {"merge_share": share, **metrics}


def better_share(ranks_VS: np.ndarray, seed: int) -> Better | None:
    """Returns which share dev questions prove better than the first one; its column counts from the second share."""
    return proven_better(ranks_VS[:, 1:] - ranks_VS[:, :1], "randomisation", PERMUTATIONS, seed)


def set_weights(module: nn.Module, tuned: Mapping[str, Tensor], start: Mapping[str, Tensor], share: float) -> None:
    """Sets the weights of `module` to share x tuned + (1 - share) x start; those that are no numbers, to tuned."""
    with torch.no_grad():
        for name, x in module.state_dict().items():
            merged = tuned[name]
            if merged.is_floating_point() and share < 1:
                merged = torch.lerp(start[name].to(merged), merged, share)
            x.copy_(merged)
