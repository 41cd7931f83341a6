"""`cocondenser serve-search`: a finished run answers questions on a local page and as JSON."""

import contextlib
import errno
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import OfRecipe, StoreFolder, terminal
from flows.cli.search import SearchBy
from pipeline.errors import InputError
from pipeline.paths import expand_home

ADDRESS = "127.0.0.1"


def serve_search(
    recipe: OfRecipe = None,
    by: SearchBy = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page and the JSON.")] = 8080,
    log: Annotated[
        Path | None,
        typer.Option(
            parser=expand_home,
            metavar="FILE",
            help="Append each question, its results and the clicks on them to this file (default: none is recorded).",
        ),
    ] = None,
    store: StoreFolder = None,
) -> None:
    """Answer questions on a page at http://127.0.0.1:8080 and as JSON.

    Only this machine can reach the page. Stop with Ctrl-C.
    """
    from artifacts.store import Store
    from flows.graph.selection import store_folder
    from flows.serving.engine import newest_engine

    engine = newest_engine(Store(store_folder(store)), recipe, by)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts the command with & ignores SIGINT
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), ExitStack() as running:
        listener = running.enter_context(listening_socket(port))  # first: a used port is an error before loading
        with terminal.status("Loading ..."):
            from flows.serving.line_log import LineLog
            from flows.serving.search_log import SearchLog
            from flows.serving.server import serve
            from flows.serving.session import open_session

            lines = None if log is None else running.enter_context(LineLog(log))
            session = running.enter_context(open_session(engine, engine.ways(), often=True))
        name = f"{engine.run.name}, {engine.label(engine.by)}"

        def print_address() -> None:
            page = f"http://{ADDRESS}:{port}"
            terminal.print(name, style="dim", markup=False, highlight=False)
            if log is not None:
                text = f"Questions, results and clicks are recorded in {log}"
                terminal.print(text, markup=False, highlight=False, soft_wrap=True)
            terminal.print(f"\nPage:   {page}\nJSON:   {page}/api/search?q=...\nStop:   Ctrl-C\n", highlight=False)

        serve(session, listener, print_address, None if lines is None else SearchLog(lines, engine.run.name))
    terminal.print("The server has ended.")


@contextmanager
def listening_socket(port: int) -> Iterator[socket.socket]:
    """A socket that listens on the port, for this machine only. Raises InputError if another program has the port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has just ended blocks no port
        try:
            listener.bind((ADDRESS, port))
            listener.listen()  # early clients wait until the server runs
        except OSError as error:
            reason = "another program uses this port" if error.errno == errno.EADDRINUSE else error.strerror
            raise InputError(f"--port {port}: {reason}") from None
        yield listener
