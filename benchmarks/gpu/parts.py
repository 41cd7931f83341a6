"""The parts of the benchmark, and how each is measured on the device."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from benchmarks.gpu import encoding, finetuning, inputs, pretraining, searching
from benchmarks.gpu.clock import Way
from benchmarks.gpu.compare import compare, one_line, rates
from benchmarks.gpu.inputs import PASSAGE, Size
from pipeline.training import flops

Figures = dict[str, Any]


class Part(NamedTuple):
    weight: float
    """Its share of the time, relative to the others'."""
    measure: Callable[[float], Figures]
    """measure(stop): returns the figures; starts no round that would end after `stop` (`time.monotonic`)."""


def parts(size: Size, device: str) -> dict[str, Part]:
    """Returns the parts in their order, by name."""
    pre, fine, cross = pretraining.tasks(size), finetuning.tasks(size), finetuning.cross_task(size)
    both, sdpa = ("eager", "sdpa"), ("sdpa",)

    def trained(weight: float, module: Any, task: Any, attentions: tuple[str, ...], units: Mapping[str, float]) -> Part:
        others = {f"published, {name}": partial(module.theirs, task, size, device, name) for name in attentions}
        return Part(
            weight, partial(training, partial(module.ours, task, size, device), others, units, device, size.rounds)
        )

    def questions(task: finetuning.Task) -> dict[str, float]:
        return {"questions": task.questions, "passages": task.questions * task.own}

    cross_ways = {f"padded, {name}": partial(finetuning.their_cross, cross, size, device, name) for name in sdpa}
    return {
        "cocondenser_cached": trained(100, pretraining, pre["cocondenser_cached"], both, {}),
        "finetuning_64x8": trained(45, finetuning, fine["finetuning_64x8"], both, questions(fine["finetuning_64x8"])),
        "encoding": Part(50, partial(encoded, size, device)),
        "search": Part(60, lambda stop: searching.measure(size, device)),
        "cocondenser_graphs": trained(50, pretraining, pre["cocondenser_graphs"], sdpa, {}),
        "condenser": trained(45, pretraining, pre["condenser"], both, {}),
        "finetuning_8x8": trained(20, finetuning, fine["finetuning_8x8"], both, questions(fine["finetuning_8x8"])),
        "finetuning_untied": trained(
            40, finetuning, fine["finetuning_untied"], sdpa, questions(fine["finetuning_untied"])
        ),
        "cross_encoder": Part(
            40,
            partial(
                training,
                partial(finetuning.our_cross, cross, size, device),
                cross_ways,
                questions(cross),
                device,
                size.rounds,
            ),
        ),
        "retromae": trained(20, pretraining, pre["retromae"], (), {}),
        "kernels": Part(15, lambda stop: kernels(size, device)),
    }


def training(
    build: Callable[[], Way],
    others: Mapping[str, Callable[[], Way]],
    units: Mapping[str, float],
    device: str,
    rounds: int,
    stop: float,
) -> Figures:
    """Measures a training and its baselines. `units`: what an update processes, in addition to tokens."""
    ours, baselines = compare(build(), others, device, rounds, stop)
    work, peak = {name: ours[name] for name in ("tokens", "operations")}, flops.peak(device)
    for figures in (ours, *baselines.values()):
        rates(figures, work, peak, units)
    return {"ours": ours, "baselines": baselines}


def encoded(size: Size, device: str, stop: float) -> Figures:
    """Measures encoding from ids, against padding; and from texts, against sentence-transformers if it is installed."""
    ids, one = inputs.rows(size.encoded, PASSAGE, size, 0), encoding.encoder(size, device)
    way = encoding.ours(one, ids, device)
    others = {"padded, sdpa": partial(encoding.padded, size, ids, device)}
    out = training(lambda: way, others, {"passages": size.encoded}, device, size.rounds, (time.monotonic() + stop) / 2)
    name = f"sentence-transformers, {encoding.attention()}"
    if find_spec("sentence_transformers") is None:
        return out | {"from_texts": {"skipped": "sentence-transformers is not installed"}}
    if time.monotonic() > stop:
        return out | {"from_texts": {"skipped": "no time left"}}
    try:
        with TemporaryDirectory() as place:
            folder = Path(place)
            encoding.write_model(one, folder)
            one.to(device)  # a checkpoint is written from the processor
            lines, work = encoding.texts(ids), encoding.work(one.model.config, ids)
            ours = encoding.ours_from_texts(one, folder, lines, work, device)
            theirs = {name: partial(encoding.sentence_transformers, folder, lines, device)}
            from_texts = training(lambda: ours, theirs, {"passages": size.encoded}, device, size.rounds, stop)
    except Exception as error:  # the first figures are worth keeping
        from_texts = {"error": one_line(error)}
    return out | {"from_texts": from_texts}


def kernels(size: Size, device: str) -> Figures:
    """Counts the kernels of a coCondenser update with graphs, forward and backward, per chunk."""
    if device != "cuda":
        return {"skipped": "a processor has no kernels"}
    from torch.profiler import ProfilerActivity, profile

    task = pretraining.tasks(size)["cocondenser_graphs"]
    module = inputs.language_model(size, task.head_layers, device)
    step, budget = pretraining.our_step(task, size, module, device), pretraining.budget(module, device)
    step.whole(0)
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        parts = step.whole(0)
        torch.cuda.synchronize()
    launched = [
        event
        for event in recorded.events() or []
        if event.device_type == torch.autograd.DeviceType.CUDA and not event.name.startswith(("Memcpy", "Memset"))
    ]
    chunks = -(-int(parts["tokens"]) // budget)
    return {"kernels": len(launched), "chunks": chunks, "kernels_per_chunk": len(launched) / chunks}
