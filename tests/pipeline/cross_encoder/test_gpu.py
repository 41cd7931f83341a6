"""An update of a cross-encoder on a GPU: the host never waits, and the gradients are those of the CPU."""

import pytest
import torch
import updates
from machines import make_machine

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("architecture", ["bert", "roberta"])
@pytest.mark.parametrize(("loss", "cache"), [("listwise", "never"), ("listwise", "always"), ("pointwise", "never")])
def test_the_host_never_waits_and_gradients_equal_the_cpus(architecture, loss, cache):
    found = {}
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        model = updates.with_gradients(updates.classifier(architecture, updates.SMALL, 0.0).to(device))
        machine = make_machine(device=device, token_budget=1000, gradient_cache=cache)
        with updates.no_wait(device):
            parts = updates.cross_encoder_update(model, loss, machine, device, questions=8, own=4)
        found[device] = float(parts["loss"]), updates.gradients(model)
    assert found["cuda"][0] == pytest.approx(found["cpu"][0], rel=0.02)  # bfloat16
    updates.check_gradients(found["cuda"][1], found["cpu"][1])
