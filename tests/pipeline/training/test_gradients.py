"""The sum of gradients over ranks, in buckets while the last backward pass runs."""

from pathlib import Path

import pytest
import torch
import updates
from machines import make_machine
from torch import Tensor, nn

from pipeline.finetune.encoders import Towers
from pipeline.pretrain import step as pretraining
from pipeline.runtime import ranks
from pipeline.runtime.launch import launch
from pipeline.runtime.work import silent
from pipeline.training import gradients
from pipeline.training.gradients import GradientSum, gradient_buffer

SUPPORT = Path(__file__).parents[2] / "support"
BUCKET = 50_000


class Sums:
    """Acts as a second rank, whose gradients are 0: remembers each part when its sum starts."""

    def __init__(self) -> None:
        self.started: list[tuple[Tensor, Tensor]] = []
        self.waited = 0

    def start(self, part: Tensor) -> ranks.Wait:
        self.started.append((part, part.clone()))
        return self.wait

    def wait(self) -> None:
        self.waited += 1

    def of(self, buffer: Tensor) -> list[tuple[Tensor, Tensor]]:
        storage = buffer.untyped_storage().data_ptr()
        return [(part, copy) for part, copy in self.started if part.untyped_storage().data_ptr() == storage]


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> Sums:
    sums = Sums()
    monkeypatch.setattr(ranks, "world", lambda: 2)
    monkeypatch.setattr(ranks, "start_sum", sums.start)
    return sums


def with_buffer(module: nn.Module) -> tuple[list[nn.Parameter], Tensor]:
    """Gives each parameter a part of one buffer as its gradient, with two figures at its end."""
    parameters = [*module.parameters()]
    return parameters, gradient_buffer(parameters, 2, "cpu")


def use(monkeypatch: pytest.MonkeyPatch, module: nn.Module) -> tuple[GradientSum, Tensor]:
    parameters, buffer = with_buffer(module)
    gradient_sum = GradientSum(parameters, buffer, BUCKET)
    monkeypatch.setattr(gradients, "_sum", gradient_sum)
    return gradient_sum, buffer


def offsets(buffer: Tensor, parts: list[tuple[Tensor, Tensor]]) -> list[tuple[int, int]]:
    return [(start := int(part.storage_offset()), start + len(part)) for part, _ in parts]


def check(gradient_sum: GradientSum, buffer: Tensor, sums: Sums, least: int) -> None:
    """Fails unless `least` parts started in the last pass, each was complete, and all make up the buffer."""
    early = sums.of(buffer)
    assert len(early) >= least
    buffer[-2:] = 7
    gradient_sum.finish()
    parts = sums.of(buffer)
    assert all(torch.equal(part, copy) for part, copy in parts)
    assert sums.waited >= len(parts)
    spans = offsets(buffer, parts)
    assert spans[-1] == (len(buffer) - 2, len(buffer))
    assert [start for start, _ in spans[:-1]] == [stop for _, stop in spans[1:-1]] + [0]
    assert all(4 * (stop - start) >= BUCKET for start, stop in spans[:-2])
    sums.started.clear()
    gradient_sum.finish()  # the next update's, without a pass
    assert offsets(buffer, sums.of(buffer)) == spans


@pytest.mark.parametrize("cache", ["always", "never"])
def test_buckets_are_summed_while_the_last_chunk_is_computed(sums, monkeypatch, cache):
    module = updates.language_model("bert", updates.SMALL, 0.1, head_layers=1)
    gradient_sum, buffer = use(monkeypatch, module)
    passes: list[int] = []
    add = pretraining.add_gradients

    def counted(*arguments, last):
        add(*arguments, last=last)
        passes.append(len(sums.of(buffer)))

    monkeypatch.setattr(pretraining, "add_gradients", counted)
    machine = make_machine(gradient_cache=cache, token_budget=400)
    updates.pretraining_update(module, "cocondenser", machine, "cpu", 40, longest=60, skip_from=1)
    assert len(passes) > 1
    assert passes[:-1] == [0] * (len(passes) - 1)
    check(gradient_sum, buffer, sums, least=5)


@pytest.mark.parametrize("tied", [True, False])
def test_an_encoder_that_the_last_pass_does_not_use_is_summed_first(sums, monkeypatch, tied):
    one, other = (updates.encoder("bert", updates.SMALL, 0.1) for _ in range(2))
    scorer = nn.Linear(128, 1)
    towers = Towers((one, one if tied else other), scorer)
    gradient_sum, buffer = use(monkeypatch, towers.trained)
    machine = make_machine(gradient_cache="always", token_budget=400)
    updates.finetuning_update(towers, "learning_to_rank", machine, "cpu", 6, 4, longest=60)
    assert any(x.grad is not None and x.grad.any() for x in scorer.parameters())
    check(gradient_sum, buffer, sums, least=5 if tied else 10)


def test_one_process_sums_nothing():
    parameters, buffer = with_buffer(nn.Linear(3, 2))
    assert not GradientSum(parameters, buffer, BUCKET).has_buckets
    GradientSum(parameters, buffer, None).finish()


def test_two_ranks_get_the_same_bytes_with_and_without_buckets(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    result = launch("children:summed_gradients", {}, make_machine(ranks=2), silent, tmp_path)
    assert result["early"] == 3
    assert result["buckets"] == result["once"] != result["own"]
    assert result["once"][-1] == 2
