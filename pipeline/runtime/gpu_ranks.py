"""How many GPUs a training uses. Imports nothing heavy."""

import logging
from collections.abc import Callable

from pipeline.runtime.launch import device_of, gpus
from pipeline.runtime.work import Machine

LOG = logging.getLogger(__name__)
FED = 8000
"""Tokens of an update that occupy a GPU. With fewer, starting its kernels and summing the gradients of all GPUs take
longer than the work itself."""


def fed_ranks(machine: Machine, update_tokens: Callable[[], float]) -> Machine:
    """Returns the machine with the number of ranks that `ranks: auto` means for a training on this machine's GPUs.

    `update_tokens`: returns the mean tokens of an update, over all ranks; called only if the number depends on it. A
    number that the recipe sets is obeyed; so is a training on several nodes (`torchrun`), which uses all their GPUs.
    """
    if machine.ranks != "auto" or machine.torchrun or device_of(machine) != "cuda":
        return machine
    present = max(gpus(), 1)
    if present == 1:
        return machine
    tokens = update_tokens()
    ranks = max(min(int(tokens / FED), present), 1)
    LOG.info("%s", line(ranks, present, tokens))
    return machine.model_copy(update={"ranks": ranks})


def line(ranks: int, present: int, tokens: float) -> str:
    """Returns the line that explains the number of ranks."""
    read = f"an update has about {tokens:,.0f} tokens"
    if ranks == present:
        return f"{ranks} of {present} GPUs: {read}"
    return f"{ranks} of {present} GPUs: {read}, and fewer than {FED:,} on a GPU would slow it down"
