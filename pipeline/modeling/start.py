"""The model that pre-training starts from: a checkpoint's masked language model, and a head."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from pipeline.errors import InputError
from pipeline.modeling.bert import LanguageModel, new_head
from pipeline.modeling.checkpoint import head_objective, load_backbone_for_mlm, load_head


def with_new_head(start: Path, layers: int, seed: int) -> nn.ModuleDict:
    """Returns {"lm", "head"}: the model of checkpoint `start`, and a random head."""
    lm: LanguageModel = load_backbone_for_mlm(start)
    torch.manual_seed(seed)
    return nn.ModuleDict({"lm": lm, "head": new_head(lm, layers)})


def with_own_head(start: Path, objective: str | None, layers: int | None = None) -> nn.ModuleDict:
    """Returns {"lm", "head"}: the model of checkpoint `start` and its head.

    Raises InputError unless the head has `layers` layers and was trained for `objective`. None: any head; if the
    checkpoint has none, a head of no layers.
    """
    lm: LanguageModel = load_backbone_for_mlm(start)
    path = start / "head.safetensors"
    if objective is None and not path.is_file():
        return nn.ModuleDict({"lm": lm, "head": nn.ModuleList()})
    state = load_head(start)
    if objective is not None and head_objective(start) != objective:
        raise InputError(f"{path}: a head trained for {head_objective(start)}, but one for {objective} is needed")
    head_layers = len({name.split(".")[0] for name in state})
    if layers is not None and layers != head_layers:
        raise InputError(f"{path}: a head of {head_layers} layers, but condenser.head_layers is {layers}")
    head = new_head(lm, head_layers)
    check_head(head, state, path)
    head.load_state_dict(state)
    return nn.ModuleDict({"lm": lm, "head": head})


def check_head(head: nn.ModuleList, state: Mapping[str, Tensor], path: Path) -> None:
    """Raises InputError unless `state`, read from `path`, has the names and shapes of the head's parameters."""
    expected = {name: x.shape for name, x in head.state_dict().items()}
    if expected != {name: x.shape for name, x in state.items()}:
        raise InputError(f"{path}: not a head for a model of this type and size")
