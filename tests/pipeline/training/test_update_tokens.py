"""Each training passes to `fed_ranks` how many tokens its updates have, and launches the ranks that it returns."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small
from crossed import CONFIG as CROSS
from encoders import SUBSET
from finetuned import train
from machines import make_machine
from pretrained import pretrain
from sentences import ENCODER, TRAINING, scored

from pipeline.cross_encoder.cross_encoder import cross_encoder
from pipeline.pretrain.cocondenser import CocondenserConfig, cocondenser
from pipeline.pretrain.condenser import CondenserConfig, condenser
from pipeline.pretrain.inverse_cloze import IctConfig, ict
from pipeline.runtime.work import Machine, Metrics, Work, silent
from pipeline.sentences.model import SentenceModelConfig, sentence_model
from pipeline.sentences.tables import sentence_table
from pipeline.sentences.tune import TuneConfig, tune

RANKS = 3


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch, inline: None) -> list[float]:
    """The tokens of an update that trainings expect. They run in this process, where RANKS must have arrived."""
    figures: list[float] = []

    def fed_ranks(machine: Machine, update_tokens: Callable[[], float]) -> Machine:
        figures.append(update_tokens())
        return machine.model_copy(update={"ranks": RANKS})

    from pipeline.runtime import launch as module

    in_this_process = module.launch

    def launch(function: str, arguments: dict, machine: Machine, *more: Any) -> Metrics:
        assert machine.ranks == arguments["machine"]["ranks"] == RANKS
        return in_this_process(function, arguments, machine, *more)

    monkeypatch.setattr("pipeline.runtime.gpu_ranks.fed_ranks", fed_ranks)
    monkeypatch.setattr(module, "launch", launch)
    return figures


def check(expected: list[float], metrics: Metrics, tolerance: float = 0.15) -> None:
    assert expected == [pytest.approx(float(metrics["tokens"]) / float(metrics["updates"]), rel=tolerance)]  # type: ignore[arg-type]


def test_fine_tuning(expected, world, work) -> None:
    check(expected, train(world, work())[0])


def test_a_cross_encoder(expected, world, pair_start, work) -> None:
    inputs = world.collection, world.tokens, pair_start, world.bm25
    check(expected, cross_encoder(CROSS, SUBSET, *inputs, None, work()))


@pytest.fixture
def given(tmp_path: Path) -> tuple[Path, Path]:
    return small.make(tmp_path / "given")


def new_work(tmp_path: Path) -> Work:
    (tmp_path / "out").mkdir()
    return Work(tmp_path / "out", tmp_path / "checkpoints", make_machine(), silent)


@pytest.mark.parametrize("size", [{}, {"batch_blocks": None, "batch_tokens": 200}])
def test_condenser(expected, given, tmp_path, size) -> None:
    metrics = condenser(CondenserConfig(**{**small.CONDENSER, **size}), *given, new_work(tmp_path))
    check(expected, metrics)


@pytest.mark.parametrize("size", [{}, {"batch_documents": None, "batch_tokens": 300}, {"random_lengths": True}])
def test_cocondenser(expected, given, tmp_path, size) -> None:
    tokens, start = given
    pretrain(CondenserConfig(**{**small.CONDENSER, "budget": None}), given, tmp_path / "headed", start)
    config = CocondenserConfig(**{**small.COCONDENSER, **size})
    check(expected, cocondenser(config, tokens, tmp_path / "headed", new_work(tmp_path)))


def test_inverse_cloze_task(expected, given, tmp_path) -> None:
    fields = {"budget": "6 steps", "batch_passages": 16, "segment_min": 4, "segment_tokens": 16, "passage_tokens": 32}
    more = {"corpus": "collection", "remove_probability": 0.0, "projection": 8, "checkpoint": None, "seed": 5}
    config = IctConfig(**{**fields, **more, "optimiser": small.OPTIMISER})
    check(expected, ict(config, *given, new_work(tmp_path)))


def test_sentences(expected, pair_start, tmp_path) -> None:
    table, start, raw = (tmp_path / name for name in ("table", "start", "raw"))
    for folder in (table, start, raw):
        folder.mkdir()
    sentence_table(scored(raw), Work(table, table, make_machine(), silent))
    model = SentenceModelConfig(checkpoint=pair_start, pretrained=None, revision="main", tokenizer=None)
    sentence_model(model, ENCODER, Work(start, start, make_machine(), silent))
    metrics = tune(TuneConfig(epochs=1, max_rows=None), TRAINING, ENCODER, table, start, new_work(tmp_path))
    check(expected, metrics, 0.4)  # characters are counted, not tokens


def test_a_stage_that_trains_nothing_needs_no_ranks(given, tmp_path, monkeypatch, inline) -> None:
    def never(*_: Any) -> Machine:
        raise AssertionError("nothing is trained")

    monkeypatch.setattr("pipeline.runtime.gpu_ranks.fed_ranks", never)
    config = CondenserConfig(**{**small.CONDENSER, "budget": None})
    assert condenser(config, *given, new_work(tmp_path))["updates"] == 0
