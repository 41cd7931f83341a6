"""`cocondenser serve-search`: a finished run's answers on a local page and as JSON."""

import contextlib
import errno
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

import typer

from flows.cli.options import OfRecipe, StoreFolder, terminal
from flows.cli.search import AskBy
from pipeline.errors import InputError

ADDRESS = "127.0.0.1"


def serve_search(
    recipe: OfRecipe = None,
    by: AskBy = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the page and the JSON.")] = 8080,
    store: StoreFolder = None,
) -> None:
    """Answer questions on a page at http://127.0.0.1:8080 and as JSON, for this machine alone; Ctrl-C ends it."""
    from artifacts.store import Store
    from flows.graph.selection import store_folder
    from flows.serving.engine import newest_engine

    engine = newest_engine(Store(store_folder(store)), recipe, by)
    for ends in (signal.SIGINT, signal.SIGTERM):  # a shell that starts it with & has SIGINT ignored
        signal.signal(ends, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), ExitStack() as running:
        place = running.enter_context(bound(port))  # a port that is taken is told before anything loads
        with terminal.status("Loading ..."):
            from flows.serving.server import serve
            from flows.serving.session import opened

            run = running.enter_context(opened(engine, engine.ways(), often=True))
        page = f"http://{ADDRESS}:{port}"
        terminal.print(f"{engine.run.name}, {engine.label(engine.how)}", style="dim", markup=False, highlight=False)
        terminal.print(f"\nPage:   {page}\nJSON:   {page}/api/search?q=...\nStop:   Ctrl-C\n", highlight=False)
        serve(run, place)
    terminal.print("The server has ended.")


@contextmanager
def bound(port: int) -> Iterator[socket.socket]:
    """The port of this machine's own address, held. Raises InputError where another program has it."""
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what has just ended holds nothing
        try:
            place.bind((ADDRESS, port))
            place.listen()  # who comes now waits until the server runs
        except OSError as error:
            why = "another program listens there" if error.errno == errno.EADDRINUSE else error.strerror
            raise InputError(f"--port {port}: {why}") from None
        yield place
