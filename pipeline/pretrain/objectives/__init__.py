"""The training objectives of a chunk, in addition to the contrastive loss: one objective per file.

To add one: a file with an `Objective`, its name here and in `CondenserConfig` (with its head), a recipe, and a test of
its losses against a plain dense computation. History, metrics and curves use its losses' names.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from pipeline.modeling.packing import Batch, Chunk
from pipeline.modeling.transformer import LanguageModel, Seed, States


class Objective(NamedTuple):
    names: tuple[str, ...]
    """Names of its losses."""
    losses: Callable[[LanguageModel, nn.ModuleList, States, Chunk, Batch, Seed], tuple[Tensor, ...]]
    """losses(language model, head, the backbone's states, chunk, batch, seed): one loss per name, scaled so that the
    sum over all chunks of the batch is its mean. Calls `seed` before any dropout or random number, with layer numbers
    from `bert.HEAD` on."""
    operations: Callable[[Any, int, Chunk], float]
    """operations(model's configuration, layers of the head, chunk): floating-point operations of its forward pass."""

    @property
    def reads_masked(self) -> bool:
        """Whether it reads the late states of the masked tokens. An objective without losses does not."""
        return bool(self.names)


def objective(name: str) -> Objective:
    """Returns the objective of that name; `contrastive_only` has no losses (coCondenser, table 4)."""
    from pipeline.pretrain.objectives import condenser, mlm, retromae

    return {
        "condenser": condenser.OBJECTIVE,
        "cocondenser": condenser.OBJECTIVE,
        "mlm": mlm.OBJECTIVE,
        "retromae": retromae.OBJECTIVE,
        "contrastive_only": Objective((), lambda *_: (), lambda *_: 0.0),
    }[name]
