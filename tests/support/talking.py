"""A function that the tests launch in child processes: it logs."""

import logging
from typing import Any


def talk(*, progress: Any, device: str) -> dict:
    """Logs a line of the library, one below INFO, and one of another library."""
    logging.getLogger("pipeline.training").info("%s of %d GPUs", "two", 8)
    logging.getLogger("pipeline.training").debug("a detail")
    logging.getLogger("another.library").warning("another library's")
    return {}
