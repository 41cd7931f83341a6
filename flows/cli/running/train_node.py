"""`cocondenser train-node`: another node of a training on several nodes."""

from contextlib import suppress

from flows.cli.options import StoreFolder, existing_store, terminal


def train_node(store: StoreFolder = None) -> None:
    """Use this machine as another node of trainings that a run on the first node starts with `machine.torchrun`.

    All nodes share one store. Stop with Ctrl-C.
    """
    from pipeline.runtime.multi_node import join

    folder = existing_store(store).root
    waiting = f"waiting for trainings in {folder / 'work'}; stop with Ctrl-C"
    terminal.print(waiting, markup=False, highlight=False, soft_wrap=True)
    with suppress(KeyboardInterrupt):
        join(folder / "work", lambda text: terminal.print(text, markup=False, highlight=False))
