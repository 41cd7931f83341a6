"""Prefect's server during a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from flows.cli.options import fail, terminal

if TYPE_CHECKING:
    from flows.graph.prepare import Run


@contextmanager
def prefect_for(run: "Run[Any]", details: str | None = None) -> Iterator[None]:
    """Starts or finds Prefect's server, and prints the title of `run` and the page's address.

    Import and call the flow inside this block. Enter the block after all early checks: the import of Prefect takes
    seconds. If a stage's child process fails, its last lines end the command.
    `details`: text after the title (None: the recipe's name, unless it is the title).
    """
    title, name = run.recipe.title, run.recipe.name
    if details is None:
        details = "" if title == name else f" ({name})"
    from flows.deploy.server import reachable_server
    from tasks.terminal import shown_in

    with shown_in(terminal):
        starting = terminal.status("Starting Prefect ...")
        starting.start()
        try:
            with reachable_server() as (address, own):
                starting.stop()
                page = f"Prefect's page {address.removesuffix('/api')}{' until it ends' if own else ''}"
                rest = escape(f"{details}, store {run.store.root}, {page}")
                terminal.print(f"[bold]{escape(title)}[/]{rest}", highlight=False, soft_wrap=True)
                yield
        except RuntimeError as error:
            fail(str(error), 1)
        finally:
            starting.stop()
