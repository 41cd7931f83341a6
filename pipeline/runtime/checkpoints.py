"""Checkpoints of a training, from which it resumes after a kill.

CHECKPOINTS/step-N/{model,optimizer}.safetensors
                  /state.json {step, ranks, processes, threads, device, precision, history}
Each folder is written under a temporary name, flushed to disk and renamed: a folder `step-N` is always complete.
"""

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import InputError
from pipeline.runtime.precision import precision_name

if TYPE_CHECKING:
    import torch


def saved_steps(checkpoints: Path) -> list[Path]:
    """Returns the finished checkpoints, oldest first."""
    return sorted(checkpoints.glob("step-*"), key=lambda folder: int(folder.name.removeprefix("step-")))


def saved_state(checkpoints: Path | None) -> dict[str, Any] | None:
    """Returns state.json of the newest checkpoint, or None."""
    folders = saved_steps(checkpoints) if checkpoints is not None else []
    return json.loads((folders[-1] / "state.json").read_text()) if folders else None


def save_state(
    module: "torch.nn.Module",
    adam: "torch.optim.Optimizer",
    checkpoints: Path,
    step: int,
    history: list[dict[str, float]],
    device: str,
) -> None:
    """Writes the checkpoint after `step` updates and keeps the last two."""
    import torch
    from safetensors.torch import save as to_bytes

    from pipeline.runtime import ranks

    weights = {name: p.detach() for name, p in module.named_parameters()}
    moments = {
        f"{name}/{key}": value for name, p in module.named_parameters() for key, value in adam.state.get(p, {}).items()
    }
    state = {
        "step": step,
        "ranks": ranks.local_world(),
        "processes": ranks.world(),
        "threads": torch.get_num_threads(),
        "device": device,
        "precision": precision_name(device),
        "history": history,
    }
    checkpoints.mkdir(parents=True, exist_ok=True)
    for stale in checkpoints.glob("tmp-*"):
        shutil.rmtree(stale)
    folder = checkpoints / f"tmp-step-{step}"
    folder.mkdir()
    write_flushed(folder / "model.safetensors", to_bytes({k: v.cpu().contiguous() for k, v in weights.items()}))
    write_flushed(folder / "optimizer.safetensors", to_bytes({k: v.cpu().contiguous() for k, v in moments.items()}))
    write_flushed(folder / "state.json", json.dumps(state).encode())
    os.rename(folder, checkpoints / f"step-{step}")
    for old in saved_steps(checkpoints)[:-2]:
        shutil.rmtree(old)


def write_flushed(path: Path, content: bytes) -> None:
    """Writes a file and flushes it to disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def restore(
    module: "torch.nn.Module", adam: "torch.optim.Optimizer", checkpoints: Path
) -> tuple[int, list[dict[str, float]]]:
    """Loads the newest checkpoint into `module` and `adam`. Returns the number of updates done and their history.

    Raises InputError if the checkpoint is of another model or, on the CPU, of another number of processes.
    """
    import torch
    from safetensors.torch import load_file

    from pipeline.runtime import ranks

    state = saved_state(checkpoints)
    if state is None:
        return 0, []
    folder = checkpoints / f"step-{state['step']}"
    if state["device"] == "cpu" and state["processes"] != ranks.world():
        raise InputError(
            f"{folder}: written by {state['processes']} processes on all nodes, but now there are {ranks.world()}; "
            "start the same number, or remove it"
        )
    weights = load_file(folder / "model.safetensors")
    moments = load_file(folder / "optimizer.safetensors")
    parameters = dict(module.named_parameters())
    if weights.keys() != parameters.keys():
        raise InputError(f"{folder}: holds the parameters of another model; remove it")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    for name, moment in moments.items():
        parameter_name, key = name.rsplit("/", 1)
        parameter = parameters[parameter_name]
        adam.state[parameter][key] = moment.to(parameter.device, copy=True)
    return state["step"], state["history"]
