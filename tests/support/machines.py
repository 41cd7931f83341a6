"""How tests run: one thread on the CPU unless told otherwise."""

from typing import Any

from pipeline.runtime.work import Machine

SINGLE: dict[str, Any] = {
    "device": "cpu",
    "ranks": 1,
    "torchrun": [],
    "threads": 1,
    "workers": 1,
    "token_budget": 1000,
    "gradient_cache_chunk": None,
    "gradient_cache": "auto",
    "tf32": False,
    "precision": "float32",
    "ray": None,
    "checkpoint_minutes": 60,
}


def make_machine(**fields: Any) -> Machine:
    """A complete `Machine`: `SINGLE` with other `fields`."""
    return Machine(**{**SINGLE, **fields})
