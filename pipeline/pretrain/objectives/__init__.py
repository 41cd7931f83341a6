"""What a chunk is trained on, beside the contrastive loss: one objective a file.

To add one: a file with an `Objective`, its name here and in `CondenserConfig` (with the head that goes with it), a
recipe, and a test of its losses against a plain dense computation. History, metrics and curves take its losses' names.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from pipeline.modeling.bert import LanguageModel, Seed, States
from pipeline.modeling.packing import Batch, Chunk


class Objective(NamedTuple):
    names: tuple[str, ...]
    """Of its losses."""
    losses: Callable[[LanguageModel, nn.ModuleList, States, Chunk, Batch, Seed], tuple[Tensor, ...]]
    """From (language model, head, the backbone's states, chunk, batch, seed): one loss a name, scaled so that the sum
    over all chunks of the batch is its mean. `seed` comes before whatever uses dropout or random numbers, with places
    from `model.HEAD` on."""
    operations: Callable[[Any, int, Chunk], float]
    """From (model's configuration, layers of the head, chunk): the floating-point operations of its forward pass."""

    @property
    def reads_masked(self) -> bool:
        """Does it read the late states of the masked tokens? One without losses reads nothing."""
        return bool(self.names)


def objective(name: str) -> Objective:
    """The objective of that name; `contrastive_only` has no loss of its own (coCondenser, table 4)."""
    from pipeline.pretrain.objectives import condenser, mlm, retromae

    return {
        "condenser": condenser.OBJECTIVE,
        "cocondenser": condenser.OBJECTIVE,
        "mlm": mlm.OBJECTIVE,
        "retromae": retromae.OBJECTIVE,
        "contrastive_only": Objective((), lambda *_: (), lambda *_: 0.0),
    }[name]
