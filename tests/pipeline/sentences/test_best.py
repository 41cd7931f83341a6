"""The best weights of a training that resumes from a checkpoint older than they are."""

import shutil
from collections.abc import Callable

import numpy as np
import pytest
import torch
from finetuned import train
from safetensors.numpy import load_file
from sentences import ENCODER, TRAINING, scored

from pipeline.finetune.validation import ValidationConfig
from pipeline.finetune.validator import Validator
from pipeline.runtime.checkpoints import saved_steps
from pipeline.runtime.work import Work, silent
from pipeline.sentences.model import SentenceModelConfig, sentence_model
from pipeline.sentences.tables import sentence_table
from pipeline.sentences.training import Validation
from pipeline.sentences.tune import TuneConfig, tune
from pipeline.training.best_weights import BestWeights


class Killed(Exception):
    pass


def interrupted(work: Callable[..., Work], train_with: Callable[[Work], object], at: int, left: int) -> Work:
    """The work of a training that was killed at update `at`; its newest checkpoint is of update `left`."""

    def kill(done: int, total: int | None, unit: str, numbers: object = None) -> None:
        if done == at:
            raise Killed

    first = work("killed", progress=kill, checkpoint_minutes=0)
    with pytest.raises(Killed):
        train_with(first)
    for folder in saved_steps(first.checkpoints):
        if int(folder.name.removeprefix("step-")) > left:
            shutil.rmtree(folder)
    return Work(first.out, first.checkpoints, first.machine, silent)


def record_weights(monkeypatch: pytest.MonkeyPatch, figures: list[float]) -> list[dict[str, np.ndarray]]:
    """The weights at each measurement; its figure is the next one of `figures`."""
    measured: list[dict[str, np.ndarray]] = []
    remaining = iter(figures)

    def figure(module) -> float:
        measured.append({name: x.detach().numpy().copy() for name, x in module.state_dict().items()})
        return next(remaining)

    monkeypatch.setattr(Validator, "measure", lambda self: figure(self._towers.trained))
    init = Validation.__init__

    def init_with_figure(self, trained, name, measure, folder) -> None:
        init(self, trained, name, lambda: figure(trained), folder)

    monkeypatch.setattr(Validation, "__init__", init_with_figure)
    return measured


def assert_same_weights(saved: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert all(np.array_equal(x, expected[f"0.model.{name}"]) for name, x in saved.items())


def test_finetuning_forgets_an_epoch_that_was_lost(world, work, inline, monkeypatch) -> None:
    """Epochs of 4 updates. The second is the best, is lost, and is worse than the first when trained again."""
    measured = record_weights(monkeypatch, [0.5, 0.9, 0.4, 0.3, 0.1])
    fields = {"epochs": 4, "validation": ValidationConfig(questions=12, candidates=10, keep="best")}
    again = interrupted(work, lambda first: train(world, first, **fields), at=9, left=7)
    metrics, out = train(world, again, **fields)
    assert (metrics["dev_RR@10"], metrics["dev_epoch"]) == (0.5, 1)
    assert_same_weights(load_file(out / "model.safetensors"), measured[0])


def test_an_epoch_after_the_checkpoint_of_its_end_is_measured_again(world, work, inline, monkeypatch) -> None:
    """The checkpoint after 8 updates is written before they are measured."""
    measured = record_weights(monkeypatch, [0.5, 0.9, 0.4, 0.6, 0.1])
    fields = {"epochs": 4, "validation": ValidationConfig(questions=12, candidates=10, keep="best")}
    again = interrupted(work, lambda first: train(world, first, **fields), at=9, left=8)
    metrics, out = train(world, again, **fields)
    assert (metrics["dev_RR@10"], metrics["dev_epoch"]) == (0.6, 3)
    assert_same_weights(load_file(out / "model.safetensors"), measured[3])
    assert [path.name for path in again.checkpoints.glob("best-*")] == ["best-12.safetensors"]


def test_a_sentence_task_forgets_an_epoch_that_was_lost(pair_start, tmp_path, work, inline, monkeypatch) -> None:
    """Epochs of 15 updates."""
    table, start = work("table"), work("start")
    sentence_table(scored(tmp_path), table)
    sentence_model(
        SentenceModelConfig(checkpoint=pair_start, pretrained=None, revision="main", tokenizer=None), ENCODER, start
    )
    measured = record_weights(monkeypatch, [0.5, 0.9, 0.4, 0.3])
    config, training = TuneConfig(epochs=3, max_rows=None), TRAINING.model_copy(update={"keep": "best"})

    def train_with(on: Work):
        return tune(config, training, ENCODER, table.out, start.out, on)

    again = interrupted(work, train_with, at=31, left=29)
    metrics = train_with(again)
    assert metrics["epoch"] == 1
    assert_same_weights(load_file(again.out / "model.safetensors"), measured[0])


def test_a_kill_while_the_log_is_written_leaves_it_whole(tmp_path, monkeypatch) -> None:
    module = torch.nn.Linear(1, 1)
    BestWeights(module, "AP", tmp_path).add(1, 4, 0.5)
    (tmp_path / "step-6").mkdir()
    best = BestWeights(module, "AP", tmp_path)

    def kill(descriptor: int) -> None:
        raise Killed

    monkeypatch.setattr("os.fsync", kill)
    with pytest.raises(Killed):
        best.add(2, 8, 0.1)
    assert BestWeights(module, "AP", tmp_path).rows == [{"epoch": 1, "step": 4, "AP": 0.5}]
