"""Functions that the tests launch in child processes."""

import atexit
import logging
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch

from pipeline.dense import sharded_search
from pipeline.errors import InputError
from pipeline.runtime import ranks
from pipeline.runtime.precision import precision_name
from pipeline.training import gradients
from pipeline.training.loop import Optimiser, train
from pipeline.training.loss_scale import scaled

IMPORTED_BY = os.getpid()


def echo(*, progress, device, **arguments):
    print("what is printed does not disturb the answer")
    for i in range(3):
        progress(i + 1, 3, "things", {"half": i / 2})
    figures = {"device": device, "world": ranks.world(), "threads": torch.get_num_threads()}
    return {**figures, "precision": precision_name(device), **arguments}


class Slow:
    """Takes a minute to free."""

    def __del__(self):
        time.sleep(60)


KEPT = []


def keep_what_is_slow_to_free(*, progress, device, path):
    KEPT.append(Slow())
    atexit.register(Path(path).touch)


def fail(*, progress, device, how):
    if how == "input":
        raise InputError("collection.tsv:7: three columns expected")
    if how == "error":
        raise ValueError("an unforeseen value")
    if how == "kill" and ranks.rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "abort" and ranks.rank() == ranks.world() - 1:
        os.abort()
    if how in ("kill", "abort"):  # the other ranks
        time.sleep(600)
    print("last words", file=sys.stderr, flush=True)
    os._exit(3)


def fail_on_last_rank(*, progress, device):
    if ranks.rank() == ranks.world() - 1:
        raise InputError("the last rank's own trouble")
    time.sleep(600)


def sleep(*, progress, device, pids):
    (Path(pids) / str(os.getpid())).touch()
    progress(1, None, "naps", None)
    time.sleep(600)


def abort_in_leaving(*, progress, device):
    """As gloo's threads may do to a process that ends."""
    if ranks.rank() == ranks.world() - 1:
        atexit.register(os.abort)
    else:
        atexit.register(time.sleep, 600)
    return {"whole": True}


def log(*, progress, device):
    """Logs a line of the library, one below INFO, and one of another library."""
    logging.getLogger("pipeline.training").info("%s of %d GPUs", "two", 8)
    logging.getLogger("pipeline.training").debug("a detail")
    logging.getLogger("another.library").warning("another library's")
    return {}


def imported_here(*, progress, device):
    imported_here = os.getpid() == IMPORTED_BY
    return {"world": ranks.world(), "local_world": ranks.local_world(), "imported_here": imported_here}


def sums(*, progress, device):
    rank = ranks.rank()
    total = ranks.sum_over_ranks(torch.tensor([1.0, float(rank)]))
    return {"sum": total.tolist()}


def steered(*, progress, device, folder):
    """What the ranks agree on without their devices; the rank that takes the first item waits for all the others."""
    numbers = ranks.from_first_rank(np.array([7, 3 << 40]) if ranks.rank() == 0 else None, 2)
    rows, folder = ranks.counter("rows"), Path(folder)
    for item in ranks.claimed("items", range(6)):
        while item == 0 and len(list(folder.iterdir())) < 5:
            time.sleep(0.01)
        (folder / f"{item}-{ranks.rank()}").touch()
        rows(item)
    ranks.meet()
    return {"numbers": ranks.sum_over_ranks(torch.from_numpy(numbers)).tolist(), "rows": rows(0)}


def search_in_slices(*, progress, device, inputs, folder, spans, depth, room, kill_after):
    """Searches the vectors of `inputs`; records each copy of a slice. Dies in the search after `kill_after` of them."""
    load, exact_top_k = sharded_search.load, sharded_search.exact_top_k
    arrays, searched, copies = np.load(inputs), 0, Path(folder) / "copies"
    copies.mkdir(exist_ok=True)

    def recorded_load(part_ND, *rest):
        (copies / f"{len(list(copies.iterdir()))}-{ranks.rank()}-{part_ND[0].tobytes().hex()}").touch()
        while len({path.name.split("-")[1] for path in copies.iterdir()}) < ranks.world():  # until all ranks search
            time.sleep(0.01)
        return load(part_ND, *rest)

    def deadly(*arguments, **named):
        nonlocal searched
        if searched == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)
        searched += 1
        return exact_top_k(*arguments, **named)

    sharded_search.load, sharded_search.exact_top_k = recorded_load, deadly
    questions_QD, vectors_ND, longest = arrays["questions"], arrays["vectors"], float(arrays["longest"])
    spans = [(start, stop) for start, stop in spans]
    batches = sharded_search.Batches(
        spans,
        range(len(spans)),
        lambda start, stop: questions_QD[start:stop],
        lambda start: depth[start >= spans[2][0]],
    )
    sharded_search.build_lists(Path(folder), batches, vectors_ND, longest, device=device, room=room, progress=progress)
    return {}


def regression(*, progress, device, steps, checkpoints, out, minutes=0.0, bad=(), how=float("nan"), before=None):
    """A small regression with dropout, 8 rows an update over all ranks; writes its weights."""
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Dropout(0.3), torch.nn.Linear(5, 1))

    def step(i, batch):
        generator = torch.Generator().manual_seed(i)
        x_BD = torch.randn(8, 6, generator=generator)
        mine = slice(ranks.rank(), None, ranks.world())
        loss = (module(x_BD[mine]).squeeze(1) - x_BD[mine].sum(1)).square().sum() / 8
        if i in bad:
            loss = loss * how
        scaled(loss).backward()
        return {"loss": loss, "tokens": 48 / ranks.world()}

    optimiser = Optimiser(
        learning_rate=0.01,
        betas=(0.9, 0.98),
        epsilon=1e-8,
        weight_decay=0.01,
        clip_norm=1.0,
        warmup_ratio=0.1,
        warmup_steps=None,
    )
    history = train(module, step, steps, optimiser, 1, Path(checkpoints), minutes, progress, device, before)
    weights = b"".join(p.detach().numpy().tobytes() for p in module.parameters())
    if ranks.rank() == 0:
        Path(out).write_bytes(weights)
    return {"history": history}


def slow_regression(*, progress, slow, **arguments):
    """`regression`, with a pause of `slow` seconds after each update."""

    def pause(*told):
        progress(*told)
        time.sleep(slow)

    return regression(progress=pause, **arguments)


def summed_gradients(*, progress, device):
    """The ranks sum the gradients of two backward passes at once, and in buckets during the second.

    Returns the rank's own gradients, both sums, and how many sums started before the second pass ended.
    """
    torch.manual_seed(3)
    module = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(6)))
    parameters = [*module.parameters()]
    figures = {}
    for name, bucket in (("once", None), ("buckets", 100)):
        buffer = gradients.gradient_buffer(parameters, 1, "cpu")
        gradient_sum = gradients.GradientSum(parameters, buffer, bucket)
        gradients.use_gradient_sum(gradient_sum)
        for number in range(2):
            x_BD = torch.randn(5, 4, generator=torch.Generator().manual_seed(10 * ranks.rank() + number))
            gradients.add_gradients(module, module(x_BD).square().sum(), last=number == 1)
        buffer[-1] = 1
        figures["own"] = buffer.tolist() if bucket is None else figures["own"]
        figures["early"] = len(gradient_sum._waits)
        gradient_sum.finish()
        figures[name] = buffer.tolist()
    return figures
