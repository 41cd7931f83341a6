"""A trained model is merged with the one that it started from; dev questions may choose another share."""

import numpy as np
import pytest
import torch
from finetuned import CONFIG, train
from pydantic import ValidationError
from safetensors.numpy import load_file
from torch import nn

from pipeline.finetune import merge as merging
from pipeline.finetune.config import MergeConfig
from pipeline.finetune.merge import merge, read_dev_candidates
from pipeline.finetune.validation import ValidationConfig

HALF = MergeConfig(shares=[0.5], questions=50, candidates=10)
CHOSEN = HALF.model_copy(update={"shares": [0.5, 0.25, 1.0]})


def weights(folder) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def test_half_of_each_weight_is_that_of_the_start(world, work, inline) -> None:
    trained_folder = train(world, work("trained"))[1]
    trained = weights(trained_folder)
    metrics, out = train(world, work("merged"), merge=HALF)
    assert metrics["merge_share"] == 0.5
    start = weights(world.checkpoint)
    for name, x in weights(out).items():
        np.testing.assert_allclose(x, (start[name] + trained[name]) / 2, atol=1e-7, err_msg=name)
    whole = train(world, work("whole"), merge=HALF.model_copy(update={"shares": [1.0]}))[1]
    assert (whole / "model.safetensors").read_bytes() == (trained_folder / "model.safetensors").read_bytes()


def test_dev_questions_choose_a_share(world, work, inline, monkeypatch) -> None:
    monkeypatch.setattr(merging, "FEWEST", 3)
    monkeypatch.setattr("pipeline.evaluate.significance.paired.FEWEST", 3)
    metrics, _ = train(world, work(), merge=CHOSEN)
    assert {f"merge_{share}_dev_RR@10" for share in ("0.5", "0.25", "1")} <= metrics.keys()
    assert metrics["merge_share"] in CHOSEN.shares


def test_few_dev_questions_choose_nothing(world, work, inline) -> None:
    assert read_dev_candidates(CHOSEN, world.collection, world.bm25, 0) is None
    metrics, _ = train(world, work(), merge=CHOSEN)
    assert {name for name in metrics if name.startswith("merge")} == {"merge_share"}


@pytest.mark.parametrize(("gain", "share"), [(0.3, 1.0), (0.0, 0.5), (-0.3, 0.25)])
def test_only_a_proven_share_replaces_the_first_one(gain: float, share: float) -> None:
    module = nn.Linear(1, 1, bias=False)
    module.weight.data.fill_(1.0)
    noise = torch.rand(60, generator=torch.Generator().manual_seed(0)) / 10

    def ranks() -> torch.Tensor:  # of the weight: 0.5, 0.25 or 1
        return 0.3 + gain * module.weight.item() + noise

    metrics = merge(CHOSEN, module, {"weight": torch.zeros(1, 1)}, ranks, 0)
    assert metrics["merge_share"] == module.weight.item() == share
    assert ("merge_p" in metrics) == (share != 0.5)


def test_several_shares_need_the_last_epoch() -> None:
    best = ValidationConfig(questions=5, candidates=10, keep="best")
    with pytest.raises(ValidationError, match=r"several shares need validation\.keep: last"):
        type(CONFIG)(**{**CONFIG.model_dump(), "merge": CHOSEN, "validation": best})
