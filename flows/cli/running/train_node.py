"""`cocondenser train-node`: another node of a training on several nodes."""

from contextlib import suppress

from flows.cli.options import StoreFolder, terminal
from pipeline.errors import InputError


def train_node(store: StoreFolder = None) -> None:
    """Use this machine as another node of trainings that a run on the first node starts with `machine.torchrun`.

    All nodes share one store. Stop with Ctrl-C.
    """
    from flows.graph.selection import store_folder
    from pipeline.runtime.multi_node import join

    folder = store_folder(store)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such store; use the store of the machine that runs the recipe")
    waiting = f"waiting for trainings in {folder / 'work'}; stop with Ctrl-C"
    terminal.print(waiting, markup=False, highlight=False, soft_wrap=True)
    with suppress(KeyboardInterrupt):
        join(folder / "work", lambda text: terminal.print(text, markup=False, highlight=False))
