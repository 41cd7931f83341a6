"""How fast this machine runs and trains transformer layers of a given shape, from a few short passes.

For the estimates of a plan. On a CPU all processes of a stage are measured side by side, because they share memory and
frequency; the result of a processor and a shape is kept in the user's cache. No stage computes with it.
"""

import importlib
import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

from pipeline.runtime.bfloat16 import processor
from pipeline.runtime.measured_cache import read_figures, write_figures
from pipeline.runtime.processes import cache_folder, die_with_parent, end_child, environment, python, start_child

LOG = logging.getLogger(__name__)
LAYERS = 2
ROW = 100
"""Tokens of each text."""
SECONDS = 1.0
"""At least so long each kind of pass is repeated; the fastest counts, because other work slows some down."""
VOCABULARY = 1000


class Layer(NamedTuple):
    """The shape of a transformer layer."""

    hidden_size: int
    intermediate_size: int
    heads: int


class Speed(NamedTuple):
    """Of one process, or of all together. Tokens per second are those of one layer."""

    start: float
    """Seconds until a process can encode: the imports."""
    training_start: float
    """Seconds until a process can train, which imports more."""
    forward: float
    """Tokens per second in encoding and scoring."""
    training: float
    """Tokens per second in training, forward and backward."""


@cache
def speed(layer: Layer, device: str, precision: str, processes: int) -> Speed | None:
    """Returns the speed of `processes` processes. None if it cannot be measured.

    Takes some seconds the first time on a CPU, and the first time in each process on a GPU.
    `device`: cpu, cuda or mps; `precision`: float32 or bfloat16.
    """
    path = cache_folder() / "speed.json"
    shape = "/".join(map(str, layer))
    key = f"{processor()}, torch {version('torch')}, {processes} x {device} {precision}, layer {shape}"
    names = [f"{key}: {name}" for name in Speed._fields]
    known = read_figures(path)
    if all(name in known for name in names):
        return Speed(*(known[name] for name in names))
    try:
        measured = _in_processes([device, precision, *map(str, layer)], processes if device == "cpu" else 1)
    except (OSError, ValueError) as error:
        LOG.warning("the speed of this machine cannot be measured (%s)", error)
        return None
    if device != "cpu":  # the name of a GPU is known only to its process, so nothing is kept
        return measured._replace(forward=measured.forward * processes, training=measured.training * processes)
    write_figures(path, dict(zip(names, measured, strict=True)))
    return measured


def _in_processes(arguments: Sequence[str], processes: int) -> Speed:
    """Measures in children that begin together. Raises ValueError if one of them fails."""
    with ExitStack() as running:
        children = []
        for _ in range(processes):
            child = start_child(
                python("pipeline.training.speed", *arguments), {**environment(), "OMP_NUM_THREADS": "1"}
            )
            running.callback(end_child, child)
            children.append(child)
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline().strip() != "ready":
                raise ValueError("its process ended early")
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        each = [Speed(*json.loads(child.stdout.readline())) for child in children if child.stdout is not None]
    return Speed(
        max(one.start for one in each),
        max(one.training_start for one in each),
        sum(one.forward for one in each),
        sum(one.training for one in each),
    )


def measure(layer: Layer, device: str, ready: Callable[[], Any]) -> Speed:
    """Returns the speed of this process, which has just started. `ready` is called before the first pass."""
    import numpy as np
    import torch

    from pipeline.modeling.biencoder import Encoder, vectors
    from pipeline.modeling.frozen import FrozenConfig, FrozenEncoder
    from pipeline.modeling.inputs import pack
    from pipeline.training.memory import CPU_BUDGET, CUDA_BUDGET, MPS_BUDGET

    start = time.process_time()  # without the time of other programs, as in `_fastest`
    importlib.import_module("transformers.models.bert.modeling_bert")  # as each training does
    training_start = time.process_time()
    torch.manual_seed(0)
    config = FrozenConfig(
        model_type="bert",
        vocab_size=VOCABULARY,
        hidden_size=layer.hidden_size,
        num_hidden_layers=LAYERS,
        num_attention_heads=layer.heads,
        intermediate_size=layer.intermediate_size,
        max_position_embeddings=ROW,
        type_vocab_size=2,
        pad_token_id=0,
        layer_norm_eps=1e-12,
        hidden_act="gelu",
    )
    model = FrozenEncoder(config)
    for weight in model.parameters():
        if weight.dim() > 1:  # `FrozenEncoder` leaves them undefined; the norms are not
            torch.nn.init.normal_(weight, std=0.02)
        else:
            torch.nn.init.ones_(weight)
    encoder = Encoder(model, "mean").to(device)
    rows = {"cpu": CPU_BUDGET, "mps": MPS_BUDGET, "cuda": CUDA_BUDGET}[device] // ROW
    packed = pack(list(np.random.default_rng(0).integers(VOCABULARY, size=(rows, ROW))), device)

    def forward() -> None:
        with torch.inference_mode():
            vectors(encoder, packed)

    def training() -> None:
        vectors(encoder, packed).sum().backward()
        model.zero_grad(set_to_none=False)

    ready()
    work = rows * ROW * LAYERS
    return Speed(start, training_start, work / _fastest(forward, device), work / _fastest(training, device))


def _fastest(run: Callable[[], None], device: str) -> float:
    """Returns the seconds of the fastest of several calls, after one that does not count."""
    import torch

    # A CPU's own time: what other programs take from it meanwhile does not count.
    clock = time.process_time if device == "cpu" else time.perf_counter
    best, until = float("inf"), time.perf_counter() + SECONDS
    run()
    while time.perf_counter() < until or best == float("inf"):
        started = clock()
        run()
        if device != "cpu":
            getattr(torch, device).synchronize()
        best = min(best, clock() - started)
    return best


def main(device: str, precision: Any, *layer: str) -> None:
    """Measures in this process when its parent has written a line, and prints the figures as JSON."""
    from pipeline.runtime.precision import use_precision

    die_with_parent()
    use_precision(precision)

    def ready() -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    print(json.dumps(measure(Layer(*map(int, layer)), device, ready)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
