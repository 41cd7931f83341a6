import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import small
import torch
from machines import make_machine
from pretrained import MACHINE, pretrain
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM

from pipeline.errors import InputError
from pipeline.modeling import cross_entropy
from pipeline.modeling.checkpoint import with_new_head
from pipeline.pretrain import batches, step
from pipeline.pretrain.cocondenser import CocondenserConfig
from pipeline.pretrain.condenser import CondenserConfig
from pipeline.pretrain.inverse_cloze import IctConfig, check_ict, ict, missing
from pipeline.pretrain.objectives import objective
from pipeline.pretrain.segments import pairs, usable
from pipeline.runtime.work import Work, silent
from pipeline.tokenization.token_files import Tokens

ICT = {
    "budget": "4 steps",
    "corpus": "collection",
    "batch_passages": 16,
    "segment_min": 5,
    "segment_tokens": 16,
    "passage_tokens": 32,
    "remove_probability": 0.9,
    "projection": 8,
    "checkpoint": None,
    "seed": 5,
    "optimiser": small.OPTIMISER,
}

FAST = {**small.OPTIMISER, "learning_rate": 1e-2}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return small.make(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Without dropout."""
    return small.make(tmp_path_factory.mktemp("plain"), dropout=0.0)


def run(inputs, out: Path, machine: dict | None = None, **fields):
    """The training in this process; returns its metrics."""
    return pretrain(IctConfig(**{**ICT, **fields}), inputs, out, machine=machine)


def launch(inputs, out: Path, ranks: int, progress=silent, minutes: float = 60, **fields):
    machine = make_machine(**{**MACHINE, "ranks": ranks, "checkpoint_minutes": minutes})
    out.mkdir(exist_ok=True)
    work = Work(out, out.with_suffix(".checkpoints"), machine, progress)
    tokens, start = inputs
    return ict(IctConfig(**{**ICT, **fields}), tokens, start, work)


def history(folder: Path) -> pandas.DataFrame:
    return pandas.read_parquet(folder / "history.parquet")


def assert_same(a: Path, b: Path) -> None:
    """Equal to float tolerance; a real difference would move weights by about the learning rate, 3e-3."""
    pandas.testing.assert_frame_equal(history(a), history(b), rtol=1e-4)
    other = load_file(b / "model.safetensors")
    for name, x in load_file(a / "model.safetensors").items():
        torch.testing.assert_close(x, other[name], rtol=1e-3, atol=1e-4)


def assert_same_bytes(a: Path, b: Path) -> None:
    for name in ("model.safetensors", "history.parquet"):
        assert (a / name).read_bytes() == (b / name).read_bytes()


def test_a_trained_model_loads_as_a_plain_model(inputs, tmp_path):
    metrics = run(
        inputs, tmp_path / "out", {"gradient_cache_chunk": 32}, budget="150 steps", projection=32, optimiser=FAST
    )
    loss = history(tmp_path / "out")["ict"]
    assert loss[:5].mean() == pytest.approx(math.log(16), rel=0.05)
    assert loss[-15:].mean() < math.log(16) / 2
    assert metrics["ict_last"] == pytest.approx(loss[-15:].mean())
    lm = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    AutoModel.from_pretrained(tmp_path / "out", add_pooling_layer=False)
    before, after = load_file(inputs[1] / "model.safetensors"), lm.state_dict()
    assert set(before) == set(load_file(tmp_path / "out" / "model.safetensors"))  # no projection
    assert not (tmp_path / "out" / "head.safetensors").exists()
    for name in before:  # the prediction head is kept, all other weights have changed
        assert torch.equal(before[name], after[name]) == name.startswith("cls."), name


def test_every_passage_is_accounted_for(inputs, tmp_path):
    metrics = run(inputs, tmp_path / "out", budget="2 epochs")
    passages = usable(Tokens.open(inputs[0]).passages, 3, 30)
    assert metrics["passages"] == 60
    assert metrics["passages_one_sentence"] == passages.one_sentence > 0
    assert metrics["passages_without_segment"] == passages.no_segment
    assert metrics["updates"] == 2 * (len(passages.row_P) // 16)


def padded(lm, projection, ids: list[list[int]]) -> torch.Tensor:
    """Vectors by the model of Hugging Face."""
    longest = max(len(row) for row in ids)
    padded_BL = torch.tensor([row + [0] * (longest - len(row)) for row in ids])
    mask_BL = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    return lm.base_model(padded_BL, mask_BL).last_hidden_state[:, 0] @ projection.weight.T


@pytest.mark.parametrize("chunk", [1, 5, 32])
@pytest.mark.parametrize("cache", ["always", "never"])
def test_loss_and_gradient_equal_those_of_plain_padded_code(plain, chunk, cache, monkeypatch):
    monkeypatch.setattr(step, "SCORED_AT_ONCE", 6)
    data = Tokens.open(plain[0])
    at_T, length_S = pairs(data.passages, usable(data.passages, 3, 30).row_P[:16], 3, 14, 30, 0.9, 0, 0)
    ids_T = data.passages.tokens[at_T].astype(np.int64)
    torch.manual_seed(0)
    projection = nn.Linear(32, 8, bias=False)
    module = with_new_head(plain[1], 0, 0)
    with torch.no_grad():  # with new weights all vectors are similar, and gradients are mostly rounding error
        for weights in module.parameters():
            weights.mul_(5 if weights.ndim > 1 else 1)
    module["projection"] = projection
    batch = batches.packed(ids_T, ids_T, np.zeros(len(ids_T), bool), length_S, data.specials,
                           make_machine(gradient_cache_chunk=chunk), "cpu")  # fmt: skip
    parts = step.update(
        module,
        batch,
        objective("contrastive_only"),
        skip_from=0,
        pairs=True,
        contrast=step.Contrast("ict", cross_entropy.inverse_cloze, projection),
        cache=cache,
        key=(0, 0),
        device="cpu",
    )
    ours = {name: x.grad.clone() for name, x in module.named_parameters() if x.grad is not None}
    module.zero_grad()

    texts = [[2, *part.tolist(), 3] for part in np.split(ids_T, np.cumsum(length_S))[:-1]]
    segments_PE, passages_PE = (padded(module["lm"], projection, texts[i::2]) for i in (0, 1))
    expected = nn.functional.cross_entropy(segments_PE @ passages_PE.T, torch.arange(16))
    expected.backward()
    assert float(parts["ict"]) == pytest.approx(expected.item(), rel=1e-5)
    theirs = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    assert "projection.weight" in theirs
    assert ours.keys() == theirs.keys()
    largest = max(float(x.abs().max()) for x in theirs.values())
    for name, gradient in theirs.items():
        # float32 differs by up to 4e-5.
        torch.testing.assert_close(ours[name], gradient, rtol=1e-3, atol=1e-4 * largest)


@pytest.mark.parametrize("chunk", [1, 5])
def test_the_cache_changes_nothing_without_dropout(plain, tmp_path, chunk):
    run(plain, tmp_path / "plain", machine={"gradient_cache_chunk": 32, "gradient_cache": "never"})
    run(plain, tmp_path / "cached", machine={"gradient_cache_chunk": chunk, "gradient_cache": "always"})
    assert_same(tmp_path / "plain", tmp_path / "cached")


def test_the_cache_changes_no_byte_with_dropout(inputs, tmp_path):
    for cache in ("never", "always"):
        run(inputs, tmp_path / cache, machine={"gradient_cache": cache})
    assert_same_bytes(tmp_path / "never", tmp_path / "always")


@pytest.mark.slow
def test_two_ranks_are_one_training_with_dropout_on(inputs, tmp_path):
    run(inputs, tmp_path / "one", budget="20 steps")
    launch(inputs, tmp_path / "many", 2, budget="20 steps")
    assert_same(tmp_path / "one", tmp_path / "many")


def test_a_killed_training_resumes_to_the_same_bytes(inputs, tmp_path):
    run(inputs, tmp_path / "whole", budget="30 steps")
    draw = random.Random(0)

    def kill(done, *_):
        if done >= 12:
            time.sleep(0.2 * draw.random())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch(inputs, tmp_path / "killed", 1, kill, minutes=0, budget="30 steps")
    assert not list((tmp_path / "killed").iterdir())
    first = []
    launch(inputs, tmp_path / "killed", 1, lambda done, *_: first.append(done), budget="30 steps")
    assert first[0] > 10
    assert_same_bytes(tmp_path / "whole", tmp_path / "killed")


def test_without_training_the_start_is_copied(inputs, tmp_path):
    run(inputs, tmp_path / "out", budget=None)
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (inputs[1] / "model.safetensors").read_bytes()
    assert not (tmp_path / "out" / "history.parquet").exists()
    run(inputs, tmp_path / "ready", budget="3 steps")
    run(inputs, tmp_path / "again", checkpoint=tmp_path / "ready")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (
        tmp_path / "ready" / "model.safetensors"
    ).read_bytes()


def test_condenser_and_cocondenser_without_a_budget_copy_the_model(inputs, tmp_path):
    """The papers' rows of BERT and ICT are built this way: fine-tuning begins with the weights of the start."""
    run(inputs, tmp_path / "ict", budget="3 steps")
    mlm = CondenserConfig(**{**small.CONDENSER, "objective": "mlm", "head_layers": 0, "budget": None})
    pretrain(mlm, (inputs[0], tmp_path / "ict"), tmp_path / "condenser")
    passes = CocondenserConfig(**{**small.COCONDENSER, "budget": None})
    pretrain(passes, (inputs[0], tmp_path / "condenser"), tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (
        tmp_path / "ict" / "model.safetensors"
    ).read_bytes()
    assert not (tmp_path / "out" / "head.safetensors").exists()


def test_an_unfit_configuration_is_refused_before_training(inputs, tmp_path):
    tokens, start = inputs
    check_ict(IctConfig(**ICT), tokens, start)
    short: dict[str, Any] = {"segment_min": 30, "segment_tokens": 32, "passage_tokens": 31}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"batch_passages": 4096}, r"^ict\.batch_passages: 4,096 is more than the whole collection holds \(\d\d"),
        (short, r"^ict\.segment_min: none of \d\d passages .* 30 tokens"),
        ({"passage_tokens": 33}, r"^ict: inputs of 33 tokens, but the model has 32 positions"),
    ]
    for fields, message in cases:
        config = IctConfig(**{**ICT, **fields})
        with pytest.raises(InputError, match=message) as refused:
            check_ict(config, tokens, start)
        assert ("; take --set ict." in str(refused.value)) == (config.passage_tokens < 33)
        if config.passage_tokens < 33:
            with pytest.raises(InputError, match=message):
                run(inputs, tmp_path / "out", **fields)
    check_ict(IctConfig(**{**ICT, "batch_passages": 4096, "budget": None}), tokens, start)


def test_a_collection_of_single_sentences_is_refused(tmp_path):
    tokens, start = small.make(tmp_path)
    starts = np.load(tokens / "passages" / "sentence_starts.npy")
    np.save(tokens / "passages" / "sentence_starts.npy", np.zeros_like(starts))
    with pytest.raises(InputError, match=r"^ict: none of 60 passages has two sentences in its first 32 tokens"):
        check_ict(IctConfig(**ICT), tokens, start)


def test_an_unfit_checkpoint_is_reported(inputs):
    start = inputs[1]
    assert missing(IctConfig(**{**ICT, "checkpoint": start})) == []
    (problem,) = missing(IctConfig(**{**ICT, "checkpoint": start, "passage_tokens": 33}))
    assert problem.startswith("ict.checkpoint: ict: inputs of 33 tokens")


def test_incompatible_fields_are_refused():
    for fields, message in (
        ({"budget": "9 tokens"}, "steps or epochs are expected, not tokens"),
        ({"segment_tokens": 4}, "segment_tokens .4. is below segment_min .5."),
        ({"segment_min": 16, "passage_tokens": 16}, "passage_tokens .16. does not hold a sentence of segment_min"),
    ):
        with pytest.raises(ValidationError, match=message):
            IctConfig(**{**ICT, **fields})
