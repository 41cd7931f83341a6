import random
import shutil
import time
from pathlib import Path

import numpy as np
import pandas
import pytest
import small
import torch
from machines import make_machine
from pretrained import MACHINE, pretrain, weights
from pydantic import ValidationError

from pipeline.errors import InputError
from pipeline.modeling.transformer import backbone
from pipeline.pretrain import step as pretraining
from pipeline.pretrain.cocondenser import (
    CocondenserConfig,
    check_cocondenser,
    cocondenser,
    long_documents,
    pair_drawer,
)
from pipeline.pretrain.condenser import CondenserConfig
from pipeline.runtime import ranks as distributed
from pipeline.runtime.checkpoints import saved_steps
from pipeline.runtime.work import Work, silent
from pipeline.tokenization.token_files import Tokens

MOMENTS = 4


def prepare(folder: Path, dropout: float) -> tuple[Path, Path]:
    """(tokens, a checkpoint with a head)."""
    tokens, start = small.make(folder, dropout=dropout)
    pretrain(CondenserConfig(**{**small.CONDENSER, "budget": None}), (tokens, start), folder / "condenser")
    return tokens, folder / "condenser"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("small"), dropout=0.1)


def run(inputs, out: Path, start: Path | None = None, machine: dict | None = None, progress=silent, **fields):
    """The training in this process; returns its metrics."""
    return pretrain(CocondenserConfig(**{**small.COCONDENSER, **fields}), inputs, out, start, machine, progress)


def history(folder: Path) -> pandas.DataFrame:
    return pandas.read_parquet(folder / "history.parquet")


def assert_same(a: Path, b: Path) -> None:
    """Equal to float tolerance; a real difference would move weights by about the learning rate, 3e-3."""
    pandas.testing.assert_frame_equal(history(a), history(b), rtol=1e-4)
    for name, x in weights(a).items():
        torch.testing.assert_close(x, weights(b)[name], rtol=1e-3, atol=1e-4)


def test_training_brings_spans_of_a_document_together(inputs, tmp_path):
    metrics = run(inputs, tmp_path / "out", budget="80 steps")
    losses = history(tmp_path / "out")
    for name in ("head_mlm", "late_mlm", "contrastive"):
        assert losses[name][-8:].mean() < losses[name][:8].mean() - 0.1
    assert metrics["documents"] == 60
    lengths = np.diff(np.load(inputs[0] / "passages" / "offsets.npy"))
    assert metrics["documents_too_short"] == (lengths < 16).sum() > 0


def test_spans_come_from_different_passages_where_there_are_several(inputs, tmp_path):
    tokens = tmp_path / "tokens"
    shutil.copytree(inputs[0], tokens)
    offsets = np.load(tokens / "passages" / "offsets.npy")
    long = int(np.argmax(np.diff(offsets)))
    middle = int(offsets[long : long + 2].mean())
    np.save(tokens / "passages" / "offsets.npy", np.insert(offsets, long + 1, middle))
    np.save(tokens / "doc_offsets.npy", np.delete(np.arange(62), long + 1))
    data = Tokens.open(tokens)
    config = CocondenserConfig(**{**small.COCONDENSER, "spans_from": "passages"})
    documents = long_documents(config, data)
    row_D = np.arange(len(documents.number_N))
    (index,) = np.flatnonzero(documents.number_N == long)
    for step in range(5):
        begin, length, _ = pair_drawer(config, data, documents)(row_D, step)
        whole, _, _ = pair_drawer(config.model_copy(update={"spans_from": "document"}), data, documents)(row_D, step)
        first, second = sorted(zip(begin[2 * index : 2 * index + 2], length[2 * index : 2 * index + 2], strict=True))
        assert sum(first) <= middle <= second[0]
        others = np.delete(np.arange(len(begin)), [2 * index, 2 * index + 1])
        assert np.array_equal(begin[others], whole[others])


def test_contrastive_only_leaves_the_prediction_heads_alone(inputs, tmp_path):
    numbers = []
    run(
        inputs,
        tmp_path / "out",
        objective="contrastive_only",
        budget="6 steps",
        progress=lambda *x: numbers.append(x[3]),
    )
    assert "head_mlm" not in history(tmp_path / "out")
    assert numbers[-1]["padding"] == 0.0  # it computes no masked rows
    before, after = weights(inputs[1]), weights(tmp_path / "out")
    for name in before:
        head = name.startswith(("head.", "cls."))
        assert torch.equal(before[name], after[name]) == head, name


@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_the_cache_changes_nothing_without_dropout(tmp_path, chunk):
    inputs = prepare(tmp_path / "given", dropout=0.0)
    run(inputs, tmp_path / "plain", machine={"gradient_cache_chunk": 16, "gradient_cache": "never"})
    run(inputs, tmp_path / "cached", machine={"gradient_cache_chunk": chunk, "gradient_cache": "always"})
    assert_same(tmp_path / "plain", tmp_path / "cached")


@pytest.mark.parametrize("objective", ["cocondenser", "contrastive_only"])
def test_the_cache_changes_no_byte_with_dropout(inputs, tmp_path, objective):
    for cache in ("never", "always"):
        run(inputs, tmp_path / cache, machine={"gradient_cache": cache}, objective=objective)
    for name in ("model.safetensors", "head.safetensors", "history.parquet"):
        assert (tmp_path / "never" / name).read_bytes() == (tmp_path / "always" / name).read_bytes()


def test_the_first_pass_computes_only_cls_vectors(inputs, tmp_path, monkeypatch):
    calls = []

    def spy(lm, chunk, skip_from, seed, masked):
        calls.append((chunk.number, masked, torch.is_grad_enabled()))
        return backbone(lm, chunk, skip_from, seed, masked)

    monkeypatch.setattr(pretraining, "backbone", spy)
    run(inputs, tmp_path / "out", budget="1 steps", machine={"gradient_cache_chunk": 8, "gradient_cache": "always"})
    first, second = calls[:2], calls[2:]
    assert {x[1:] for x in first} == {(False, False)}
    assert {x[1:] for x in second} == {(True, True)}
    assert [x[0] for x in first] == [x[0] for x in second]
    calls.clear()
    run(inputs, tmp_path / "again", budget="1 steps", machine={"gradient_cache_chunk": 8, "gradient_cache": "never"})
    assert [x[1:] for x in calls] == [(True, True)] * 2  # once only


def test_ranks_communicate_twice_per_update(inputs, tmp_path, monkeypatch):
    """Once for the CLS vectors, and once for all gradients and figures; once before the first update."""
    sizes = []
    monkeypatch.setattr(distributed, "start_sum", lambda x: sizes.append(x.numel()) or (lambda: None))
    run(inputs, tmp_path / "out", budget="3 steps")
    parameters = sum(x.numel() for x in weights(tmp_path / "out").values())
    assert len(sizes) == 1 + 6
    assert sizes[:2] == [1, 16 * 32]  # whether a rank computes in float16
    assert sizes[2] >= parameters


def launch(inputs, out: Path, ranks: int, progress=silent, minutes: float = 60, **fields) -> None:
    machine = make_machine(**{**MACHINE, "ranks": ranks, "checkpoint_minutes": minutes})
    config = CocondenserConfig(**{**small.COCONDENSER, **fields})
    out.mkdir(exist_ok=True)
    cocondenser(config, *inputs, Work(out, out.with_suffix(".checkpoints"), machine, progress))


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_ranks_are_one_training_with_dropout_on(inputs, tmp_path, ranks):
    run(inputs, tmp_path / "one", budget="20 steps")
    launch(inputs, tmp_path / "many", ranks, budget="20 steps")
    assert_same(tmp_path / "one", tmp_path / "many")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_training_killed_at_random_moments_gives_the_same_bytes(inputs, tmp_path, ranks):
    """kill -9 of all processes at once. Each update writes a checkpoint, so many kills come while one is written."""
    launch(inputs, tmp_path / "whole", ranks, budget="80 steps")
    draw = random.Random(ranks)
    reached = []
    for last in sorted(draw.sample(range(5, 70), MOMENTS)):

        def kill(done, *_, last=last):
            if done >= last:
                time.sleep(0.2 * draw.random())
                reached.append(done)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            # Another number of ranks is requested; the checkpoint's is kept.
            launch(inputs, tmp_path / "killed", 3 - ranks if reached else ranks, kill, minutes=0, budget="80 steps")
        assert not list((tmp_path / "killed").iterdir())
        assert len(saved_steps(tmp_path / "killed.checkpoints")) <= 3  # the third: killed before the oldest was removed
    assert len(reached) == MOMENTS
    launch(inputs, tmp_path / "killed", ranks, budget="80 steps")
    for name in ("model.safetensors", "head.safetensors", "history.parquet"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_start_without_a_head_is_refused(inputs, tmp_path):
    with pytest.raises(InputError, match=r"start/head\.safetensors: missing"):
        run(inputs, tmp_path / "out", start=inputs[1].parent / "start")


def test_a_finished_checkpoint_may_lack_a_head(inputs, tmp_path):
    start = inputs[1].parent / "start"
    run(inputs, tmp_path / "out", checkpoint=start)
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (start / "model.safetensors").read_bytes()
    assert not (tmp_path / "out" / "head.safetensors").exists()


def test_a_collection_below_one_batch_is_refused(inputs, tmp_path):
    with pytest.raises(InputError, match=r"^cocondenser\.batch_documents: 2,048 is more than"):
        run(inputs, tmp_path / "out", batch_documents=2048)


def test_an_unfit_configuration_is_refused_before_condenser(inputs):
    tokens, start = inputs
    config = CocondenserConfig(**small.COCONDENSER)
    check_cocondenser(config, tokens, start)
    large = config.model_copy(update={"batch_documents": 2048})
    with pytest.raises(InputError, match=r"^cocondenser\.batch_documents: 2,048 is more than the whole .* holds"):
        check_cocondenser(large, tokens, start)
    check_cocondenser(large.model_copy(update={"budget": None}), tokens, start)
    by_tokens = config.model_copy(update={"batch_documents": None, "batch_tokens": 10**6})
    with pytest.raises(InputError, match=r"batch_tokens: 1,000,000 .*; take --set cocondenser.batch_tokens=\d+$"):
        check_cocondenser(by_tokens, tokens, start)
    with pytest.raises(InputError, match=r"span_min: no document .* two spans of 90 tokens, the longest has \d\d in"):
        check_cocondenser(config.model_copy(update={"span_min": 90}), tokens, start)
    for fields, message in (({"skip_from": 2}, "skip_from: 2 is outside"), ({"span_max": 40}, "inputs of 42 tokens")):
        with pytest.raises(InputError, match=message):
            check_cocondenser(config.model_copy(update=fields), tokens, start)


def test_incompatible_fields_are_refused():
    for fields, message in (
        ({"budget": "100"}, "a number and its unit"),
        ({"batch_documents": None}, "set one of batch_documents, batch_tokens"),
        ({"span_max": 7}, "span_max .7. is below span_min .8."),
        ({"batch_documents": None, "batch_tokens": 87}, "does not hold two documents"),
    ):
        with pytest.raises(ValidationError, match=message):
            CocondenserConfig(**{**small.COCONDENSER, **fields})
