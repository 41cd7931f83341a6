"""An update of fine-tuning on a GPU: the host never waits, and the gradients are those of the CPU."""

import pytest
import torch
import updates
from machines import make_machine

from pipeline.finetune.encoders import Towers

pytestmark = pytest.mark.gpu


def towers(device: str, loss: str, tied: bool, pooling: str, projection: int | None) -> Towers:
    torch.manual_seed(0)
    first, second = (
        updates.encoder("bert", updates.SMALL, 0.0, pooling, projection=projection).to(device) for _ in range(2)
    )
    scorer = torch.nn.Linear(2 * first.dimension, 1).to(device) if loss == "learning_to_rank" else None
    return Towers((first, first if tied else second), scorer)


@pytest.mark.parametrize(
    ("loss", "tied", "pooling", "projection", "cache"),
    [
        ("contrastive", True, "cls", None, "never"),
        ("contrastive", False, "cls", None, "always"),
        ("contrastive", True, "mean", 32, "always"),
        ("soft_labels", True, "cls", None, "never"),
        ("learning_to_rank", True, "cls", None, "never"),
    ],
)
def test_the_host_never_waits_and_gradients_equal_the_cpus(loss, tied, pooling, projection, cache):
    found = {}
    for device in ("cpu", "cuda"):
        trained = towers(device, loss, tied, pooling, projection)
        module = updates.with_gradients(trained.trained)
        machine = make_machine(device=device, token_budget=1000, gradient_cache=cache)
        with updates.no_wait(device):
            parts = updates.finetuning_update(trained, loss, machine, device, questions=8, own=4)
        found[device] = float(parts["loss"]), updates.gradients(module)
    assert found["cuda"][0] == pytest.approx(found["cpu"][0], rel=0.02)  # bfloat16
    updates.check_gradients(found["cuda"][1], found["cpu"][1])
