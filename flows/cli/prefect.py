"""Prefect for the length of a command."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.markup import escape

from flows.cli.options import fail, terminal


@contextmanager
def prefect(title: str, details: str, store: Path) -> Iterator[None]:
    """Within it flows are imported and called: their bars are on the terminal, their page's address is said first.

    A stage's child process that failed ends the command with its last words. Enter it once all that can be known to
    fail without Prefect has been looked at: importing it takes seconds.
    """
    from flows.deploy.server import reachable_server
    from tasks.terminal import shown_in

    with shown_in(terminal):
        starting = terminal.status("Starting Prefect ...")
        starting.start()
        try:
            with reachable_server() as (address, own):
                starting.stop()
                page = f"{'its own page' if own else 'the page'} {address.removesuffix('/api')}"
                rest = escape(f"{details}, store {store}, {page}")
                terminal.print(f"[bold]{escape(title)}[/]{rest}", highlight=False, soft_wrap=True)
                yield
        except RuntimeError as error:
            fail(str(error), 1)
        finally:
            starting.stop()
