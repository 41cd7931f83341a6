"""Prefect for the length of a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from flows.cli.options import fail, terminal

if TYPE_CHECKING:
    from flows.graph.prepare import Run


@contextmanager
def prefect(run: "Run[Any]", details: str | None = None) -> Iterator[None]:
    """Within it the flow of `run` is imported and called: the terminal shows the page's address, then its bars.

    `details`: printed behind the title; None: the recipe's name, unless that is the title.
    A stage's child process that failed ends the command with its last words. Enter it once all that can be known to
    fail without Prefect has been looked at: importing it takes seconds.
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
                page = f"{'its own page' if own else 'the page'} {address.removesuffix('/api')}"
                rest = escape(f"{details}, store {run.store.root}, {page}")
                terminal.print(f"[bold]{escape(title)}[/]{rest}", highlight=False, soft_wrap=True)
                yield
        except RuntimeError as error:
            fail(str(error), 1)
        finally:
            starting.stop()
