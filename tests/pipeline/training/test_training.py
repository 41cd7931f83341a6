import json
import math
import threading
import time
from pathlib import Path

import pytest
import small
import torch
import updates
from machines import make_machine
from pydantic import ValidationError

from pipeline.errors import InputError
from pipeline.modeling.cast_weights import cast
from pipeline.pretrain.condenser import CondenserConfig
from pipeline.runtime import precision
from pipeline.runtime.checkpoints import saved_state, saved_steps
from pipeline.runtime.host import cores
from pipeline.runtime.launch import launch, layout
from pipeline.runtime.work import Machine, silent
from pipeline.training import loss_scale
from pipeline.training.loop import (
    Optimiser,
    adamw,
    history_metrics,
    learning_rate,
    named_memory,
    prepared_batches,
    seed_dropout,
    speeds,
    step_unless,
    train,
)
from pipeline.training.loss_scale import LossScale

SUPPORT = Path(__file__).parents[2] / "support"
OPTIMISER = {
    "learning_rate": 0.1,
    "betas": (0.9, 0.999),
    "epsilon": 1e-8,
    "weight_decay": 0.0,
    "clip_norm": 1.0,
    "warmup_ratio": None,
    "warmup_steps": 4,
}


@pytest.fixture
def children(monkeypatch):
    """The module `children`, importable here and in child processes."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.syspath_prepend(str(SUPPORT))
    import children

    return children


def machine(ranks: int) -> Machine:
    return make_machine(ranks=ranks, checkpoint_minutes=0)


def test_learning_rate_rises_and_falls_linearly():
    rates = [learning_rate(Optimiser(**OPTIMISER), i, 10) for i in range(10)]
    assert rates[:5] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1])
    assert rates[4:] == pytest.approx([0.1 * (10 - i) / 6 for i in range(4, 10)])
    ratio = Optimiser(**{**OPTIMISER, "warmup_ratio": 0.4, "warmup_steps": None})
    assert [learning_rate(ratio, i, 10) for i in range(10)] == rates
    assert learning_rate(Optimiser(**{**OPTIMISER, "warmup_steps": 0}), 0, 1) == 0.1


def test_an_optimiser_needs_exactly_one_warmup():
    for ratio, steps in ((None, None), (0.1, 4)):
        with pytest.raises(ValidationError, match="set one of warmup_ratio, warmup_steps"):
            Optimiser(**{**OPTIMISER, "warmup_ratio": ratio, "warmup_steps": steps})


def run(children, folder: Path, **options):
    folder.mkdir(exist_ok=True)
    options = {"steps": 12, "checkpoints": folder / "checkpoints", "out": folder / "out"} | options
    history = children.regression(**{"progress": silent, "device": "cpu"} | options)["history"]
    return history, (folder / "out").read_bytes()


def test_training_lowers_the_loss_and_records_every_update(children, tmp_path):
    history, _ = run(children, tmp_path, steps=300)
    assert len(history) == 300
    assert history[0].keys() == {"step", "learning_rate", "loss", "tokens", "gradient_norm", "skipped"}
    assert sum(row["loss"] for row in history[-30:]) < 0.7 * sum(row["loss"] for row in history[:30])
    assert [row["step"] for row in history] == list(range(1, 301))
    assert len(saved_steps(tmp_path / "checkpoints")) == 2


def test_bad_updates_are_skipped_and_counted(children, tmp_path):
    bad = {3, 4, 9}
    history, weights = run(children, tmp_path / "a", bad=bad, minutes=99)
    assert {row["step"] - 1 for row in history if row["skipped"]} == bad
    assert all(math.isnan(row["loss"]) == bool(row["skipped"]) for row in history)
    assert not any(math.isnan(x) for x in memoryview(weights).cast("f"))
    first_three, before = run(children, tmp_path / "b", bad=range(3, 12), minutes=99)
    assert [row["loss"] for row in first_three[:3]] == [row["loss"] for row in history[:3]]
    assert before != weights


def test_a_gradient_that_overflows_is_skipped_although_the_loss_is_finite(children, tmp_path):
    history, weights = run(children, tmp_path, bad={3}, how=1e25, minutes=99)
    assert [row["step"] - 1 for row in history if row["skipped"]] == [3]
    assert math.isfinite(history[3]["loss"])
    assert math.isinf(history[3]["gradient_norm"])
    assert all(math.isfinite(x) for x in memoryview(weights).cast("f"))


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_a_bad_update_changes_neither_weights_nor_moments(device):
    """MPS's kernel may ignore that an update is bad, so the host decides; here all ways run on a CPU."""
    weight = torch.nn.Parameter(torch.ones(3, 2))
    adam = adamw([weight], Optimiser(**OPTIMISER))
    adam.param_groups[0]["lr"] = 0.1
    weight.grad = torch.ones(3, 2)
    step_unless(torch.tensor(0.0), adam, weight.grad, torch.tensor(0.5), device)
    assert (weight < 1).all()
    torch.testing.assert_close(adam.state[weight]["exp_avg"], torch.full((3, 2), 0.5 * (1 - OPTIMISER["betas"][0])))
    state = {key: value.clone() for key, value in adam.state[weight].items()}
    before = weight.detach().clone()
    weight.grad.fill_(torch.nan)
    step_unless(torch.tensor(1.0), adam, weight.grad, torch.tensor(0.5), device)
    assert torch.equal(weight, before)
    assert all(torch.equal(adam.state[weight][key], value) for key, value in state.items())


def test_dropout_is_seeded_on_a_macs_gpu_too(monkeypatch):
    """The second pass of a gradient cache must drop the same numbers."""
    seeds = []
    monkeypatch.setattr(torch.mps, "manual_seed", seeds.append)
    seed_dropout(1, 2)
    assert seeds == []
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    for key in ((1, 2), (1, 3), (1, 2)):
        seed_dropout(*key)
    assert seeds[0] == seeds[2] == torch.initial_seed() != seeds[1]


def test_a_summary_leaves_skipped_updates_out_of_the_mean():
    history = [{"step": i + 1, "loss": float(i), "tokens": 8.0, "skipped": 0.0} for i in range(30)]
    history[-1] |= {"loss": math.nan, "skipped": 1.0}
    figures = {"updates": 30, "updates_skipped": 1, "tokens": 240, "loss_last": 27.5}
    assert history_metrics(history) == figures
    assert history_metrics([]) == {"updates": 0, "updates_skipped": 0, "tokens": 0}


def test_ten_bad_updates_in_a_row_stop_the_training(children, tmp_path):
    with pytest.raises(InputError, match=r"^optimiser.learning_rate: 10 updates in a row, .* update 15, had"):
        run(children, tmp_path, steps=40, bad=range(5, 40))
    assert saved_steps(tmp_path / "checkpoints")  # the last good state is still there


def test_a_training_without_a_good_update_is_refused(children, tmp_path):
    with pytest.raises(InputError, match=r"^optimiser.learning_rate: all 4 updates had an infinite"):
        run(children, tmp_path, steps=4, bad=range(4))


def test_a_float16_training_scales_its_losses_by_powers_of_two(children, tmp_path, monkeypatch):
    """So its weights are the same. A bad update halves the scale, and a resumed training has the same scale."""
    scales = []

    def stop(i):
        scales.append(loss_scale._scale.value.item())
        if i == 7 and len(scales) == 8:
            raise KeyboardInterrupt

    _, weights = run(children, tmp_path / "plain", bad=(3, 6))
    monkeypatch.setattr(precision, "low_precision", lambda device: torch.float16)
    with pytest.raises(KeyboardInterrupt):
        run(children, tmp_path / "scaled", bad=(3, 6), before=stop)
    _, scaled_weights = run(children, tmp_path / "scaled", bad=(3, 6), before=stop)
    assert scaled_weights == weights
    assert scales == [2.0**12] * 4 + [2.0**11] * 3 + [2.0**10] * 6


def test_the_scale_of_losses_grows_after_many_finite_updates(monkeypatch):
    monkeypatch.setattr(LossScale, "GROWTH", 3)
    scale, exponents = LossScale("cpu", []), []
    skipped = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    for bad in skipped:
        scale.update(torch.tensor(bad))
        exponents.append(math.log2(scale.value.item()))
    assert exponents == [11, 11, 11, 10, 10, 10, 11, 11, 11, 12, 11]
    assert LossScale("cpu", skipped).value == scale.value


def test_a_seed_beyond_the_range_of_torch_is_refused():
    with pytest.raises(ValidationError, match="seed"):
        CondenserConfig(**{**small.CONDENSER, "seed": 1 << 63})


@pytest.mark.parametrize("betas", [(1.0, 0.9), (0.9, 1.0), (-0.1, 0.9)])
def test_betas_are_below_one(betas):
    with pytest.raises(ValidationError, match="betas"):
        Optimiser(**{**OPTIMISER, "betas": betas})


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_same_bytes_and_ignores_a_half_written_checkpoint(children, tmp_path):
    """It is killed twice by kill -9, at update 5 and at update 9."""
    expected_history, expected = run(children, tmp_path / "whole", minutes=99)
    folder = tmp_path / "killed"
    arguments = {"steps": 12, "checkpoints": str(folder / "checkpoints"), "out": str(folder / "out")}
    for last in (5, 9):

        def kill(done, *_, last=last):
            if done >= last:
                raise KeyboardInterrupt

        slow = {**arguments, "slow": 0.35}  # slower than progress is reported, so that each update is seen
        with pytest.raises(KeyboardInterrupt):
            launch("children:slow_regression", slow, machine(1), kill, folder / "checkpoints")
        assert not (folder / "out").exists()
        half = folder / "checkpoints" / "tmp-step-11"
        half.mkdir(exist_ok=True)
        (half / "state.json").write_text('{"step": 11')
    first = saved_state(folder / "checkpoints")["step"]
    assert 5 <= first <= 9
    history, weights = run(children, folder)
    assert weights == expected
    assert history == expected_history


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2])
def test_a_training_with_several_ranks_resumes_to_the_same_bytes(children, tmp_path, ranks):
    def arguments(folder):
        folder.mkdir()
        return {"steps": 12, "checkpoints": str(folder / "checkpoints"), "out": str(folder / "out"), "slow": 0.35}

    whole, killed = arguments(tmp_path / "whole"), arguments(tmp_path / "killed")
    launch("children:slow_regression", whole, machine(ranks), silent, tmp_path / "whole" / "checkpoints")

    def kill(done, *_):
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch("children:slow_regression", killed, machine(ranks), kill, tmp_path / "killed" / "checkpoints")
    # Another number of ranks is requested, but the checkpoint's is kept.
    launch("children:slow_regression", killed, machine(1), silent, tmp_path / "killed" / "checkpoints")
    assert (tmp_path / "killed" / "out").read_bytes() == (tmp_path / "whole" / "out").read_bytes()


def test_another_number_of_nodes_is_refused(children, tmp_path, monkeypatch):
    def kill(done, *_):
        if done == 5:
            raise KeyboardInterrupt

    options = {"steps": 12, "checkpoints": tmp_path / "checkpoints", "out": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        children.regression(progress=kill, device="cpu", **options)
    monkeypatch.setattr("pipeline.runtime.ranks.world", lambda: 2)
    with pytest.raises(InputError, match=r"step-4: .*1 processes.* 2;"):
        children.regression(progress=silent, device="cpu", **options)


def test_ranks_and_threads_come_from_the_checkpoint(tmp_path):
    assert layout(machine(1), "cpu", tmp_path) == (1, 1)
    automatic = machine(1).model_copy(update={"ranks": "auto", "threads": "auto"})
    assert layout(automatic, "cpu", tmp_path) == (min(cores(), 8), 1)
    (tmp_path / "step-7").mkdir()
    state = {"step": 7, "ranks": 3, "threads": 2, "device": "cpu", "history": []}
    (tmp_path / "step-7" / "state.json").write_text(json.dumps(state))
    assert layout(machine(1), "cpu", tmp_path) == (3, 2)


def test_work_between_updates_does_not_lower_the_speed(children, tmp_path):
    """Otherwise the figures after a validation would be those of a machine a hundred times slower."""
    speed = {}

    def validate(i: int) -> None:
        if i == 6:
            time.sleep(0.5)

    def progress(done, total, unit, figures):
        speed[done] = figures["tokens_per_second"]

    run(children, tmp_path, before=validate, progress=progress, minutes=99)
    assert speed[7] > 2 * 48 / 0.5


def test_speeds_are_rates_and_shares():
    assert speeds(tokens=0, padding=0, operations=0, seconds=1, peak=None) == {}
    figures = speeds(tokens=900, padding=100, operations=1e3, seconds=2, peak=1e3)
    assert figures == {"tokens_per_second": 450, "padding": 0.1, "mfu": 0.5}
    assert "mfu" not in speeds(tokens=900, padding=100, operations=1e3, seconds=2, peak=None)


def test_progress_reports_rates_and_the_remaining_time(children, tmp_path):
    numbers = []
    options = {"steps": 12, "checkpoints": tmp_path / "checkpoints", "out": tmp_path / "out", "minutes": 99}
    children.regression(progress=lambda *x: numbers.append(x[3]), device="cpu", **options)
    assert {"loss", "learning_rate", "gradient_norm", "tokens_per_second", "padding", "seconds_left"} <= numbers[
        -1
    ].keys()
    assert numbers[0]["seconds_left"] > numbers[-1]["seconds_left"] == 0


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("MPS backend out of memory (MPS allocated: 17.9 GiB)."),
    ],
)
def test_lack_of_memory_is_reported_with_the_fields_to_lower(error):
    message = r"^out of memory: lower machine\.token_budget, set machine\.gradient_cache_chunk, or"
    with pytest.raises(InputError, match=message), named_memory():
        raise error
    with pytest.raises(RuntimeError, match="another"), named_memory():
        raise RuntimeError("another")


def test_lack_of_memory_for_the_optimiser_is_reported_too(children, tmp_path, monkeypatch):
    def step(self):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    with pytest.raises(InputError, match=r"^out of memory: lower machine\.token_budget"):
        run(children, tmp_path, minutes=99)


def test_the_share_of_the_peak_is_at_most_one(children, tmp_path, monkeypatch):
    """A peak that was measured on a busy machine is too low."""
    shares = []
    monkeypatch.setattr("pipeline.training.flops.peak", lambda device: 1.0)
    original = children.train

    def train(module, step, *arguments):
        return original(module, lambda i, batch: step(i, batch) | {"operations": 1e6}, *arguments)

    monkeypatch.setattr(children, "train", train)
    options = {"steps": 4, "checkpoints": tmp_path / "checkpoints", "out": tmp_path / "out", "minutes": 99}
    children.regression(progress=lambda *x: shares.append(x[3]["mfu"]), device="cpu", **options)
    assert len(shares) == 4
    assert max(shares) == 1.0


def test_a_gpus_updates_are_prepared_one_ahead(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    begun = {i: threading.Event() for i in range(1, 6)}

    def prepare(i):
        begun[i].set()
        return i

    updates = prepared_batches(prepare, range(1, 6), "cuda")
    for i in range(1, 6):
        assert next(updates) == i
        assert begun[min(i + 1, 5)].wait(60)
        assert not any(begun[later].is_set() for later in range(i + 2, 6))
    assert next(updates, None) is None


def test_other_updates_are_prepared_when_their_turn_comes():
    begun = []
    updates = prepared_batches(lambda i: begun.append(i) or i, range(4), "cpu")
    for i in range(4):
        assert next(updates) == i
        assert begun == [*range(i + 1)]


def test_the_weights_that_products_read_follow_the_optimiser(monkeypatch, tmp_path):
    """The fused AdamW does not count its changes, by which the copies know that they are old."""
    monkeypatch.setattr(precision, "low_precision", lambda device: torch.bfloat16)
    torch.manual_seed(0)
    module = updates.language_model("bert", {**updates.SMALL, "num_hidden_layers": 1}, 0.0, 0)
    machine, layer = make_machine(token_budget=300), module["lm"].bert.encoder.layer[0].intermediate.dense
    old = layer.weight.detach().clone()

    def step(i, batch):
        if i:
            assert torch.equal(cast((layer.weight,), torch.bfloat16), layer.weight.detach().bfloat16())
            assert not torch.equal(layer.weight, old)
        return updates.pretraining_update(module, "mlm", machine, "cpu", 8, skip_from=0)

    train(module, step, 3, Optimiser(**OPTIMISER), 1, tmp_path, 60, silent, "cpu")
