"""coCondenser on two cores: two processes of one thread against one process of two threads (4 x 256, tokens/s)."""

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.data import FOLDER, pydocs
from benchmarks.steps import new_module
from flows.recipes.recipe import resolve
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.runtime.launch import launch

ROUNDS, UPDATES = 2, 4


def speed(ranks: int, threads: int, start: Path) -> float:
    """Returns tokens per second of a short training, without its first update."""
    recipe = resolve("pydocs", [f"cocondenser.budget={UPDATES} steps"])
    machine = recipe.machine.model_copy(update={"device": "cpu", "ranks": ranks, "threads": threads})
    speeds: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        arguments = {
            "prepare": "pipeline.pretrain.cocondenser:prepare_cocondenser",
            "config": recipe.cocondenser.model_dump(mode="json"),
            "tokens": str(FOLDER / "tokens"),
            "start": str(start),
            "tokenizer": str(start),
            "out": f"{place}/out",
            "checkpoints": f"{place}/checkpoints",
            "machine": machine.model_dump(mode="json"),
        }

        def progress(done: int, total: int | None, unit: str, numbers: object = None) -> None:
            if done > 1 and isinstance(numbers, dict):
                speeds.append(numbers["tokens_per_second"])

        function = "pipeline.pretrain.train:train_objective"
        launch(function, arguments, machine, progress, Path(place) / "checkpoints")
    return median(speeds)


def compare_workers() -> float:
    pydocs()
    with tempfile.TemporaryDirectory() as place:
        module = new_module("mini", 0.1)
        lm: Any = module["lm"]
        save_checkpoint(Path(place), lm, FOLDER / "tokenizer", module["head"].state_dict())
        ratios = []
        for _ in range(ROUNDS):
            processes, threads = speed(2, 1, Path(place)), speed(1, 2, Path(place))
            print(f"two processes {processes:,.0f} tokens/s, two threads {threads:,.0f}", file=sys.stderr)
            ratios.append(processes / threads)
    return median(ratios)


ROWS = {"workers": compare_workers}
