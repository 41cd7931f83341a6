"""`cocondenser serve-search`: a finished run answers questions on a local page and as JSON."""

import contextlib
import errno
import signal
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import OfRecipe, StoreFolder, existing_store, terminal, warn
from flows.cli.search import Rerank, Reranker, SearchBy, reranker_source
from pipeline.errors import InputError
from pipeline.paths import expand_home

if TYPE_CHECKING:
    from ssl import SSLContext

    from artifacts.store import Store
    from flows.serving.access import Access
    from flows.serving.question import Session

ADDRESS = "127.0.0.1"


def serve_search(
    recipe: OfRecipe = None,
    by: SearchBy = None,
    rerank: Rerank = None,
    reranker: Reranker = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the page and the JSON.")] = 8080,
    log: Annotated[
        Path | None,
        typer.Option(
            parser=expand_home,
            metavar="FILE",
            help="Append each question, its results and the clicks on them to this file (default: none is recorded).",
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Also accept requests from other machines, on this address (0.0.0.0: on all addresses). "
            "Requires a token.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(parser=expand_home, metavar="FILE", help="The token (default: a new one, which is printed once)."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name that requests may have, such as search.example.org. Repeatable."),
    ] = None,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="Path below which a proxy shows the page, such as /search.")
    ] = "",
    certificate: Annotated[
        Path | None,
        typer.Option(parser=expand_home, metavar="FILE", help="Certificate of the server, in PEM: HTTPS, with --key."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(parser=expand_home, metavar="FILE", help="Private key of the certificate, in PEM.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Load each newer run of the recipe, and switch to it without a pause.")
    ] = False,
    store: StoreFolder = None,
) -> None:
    """Answer questions on a page at http://127.0.0.1:8080 and as JSON.

    Only this machine can reach the page; with --host also others that have the token. Stop with Ctrl-C.
    """
    team = {
        "--token-file": token_file,
        "--allow-host": allow_host,
        "--root-path": root_path,
        "--certificate": certificate,
        "--key": key,
    }
    given = [option for option, value in team.items() if value]
    if given and host is None:
        raise InputError(f"{', '.join(given)}: needs --host ADDRESS, which accepts requests from other machines")
    if host is not None and not host.strip():  # an unset variable would otherwise start a server for this machine alone
        raise InputError("--host: is empty")
    if (certificate is None) != (key is None):
        raise InputError("--certificate and --key belong together")
    access = None if host is None else read_access(host, port, token_file, allow_host or [], root_path)
    tls = read_tls(certificate, key)

    from flows.serving.engine import newest_engine

    place = existing_store(store)
    engine = newest_engine(place, recipe, by)
    source = reranker_source(engine, rerank, reranker)
    if source is not None and source.warning:
        warn(source.warning)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts the command with & ignores SIGINT
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), ExitStack() as running:
        listener = running.enter_context(
            listening_socket(port, host or ADDRESS)
        )  # first: a used port is an error before loading
        with terminal.status("Loading ..."):
            from flows.serving.follow import Follow
            from flows.serving.line_log import LineLog
            from flows.serving.search_log import SearchLog
            from flows.serving.server import serve
            from flows.serving.session import open_session

            lines = None if log is None else running.enter_context(LineLog(log))
            opened = running.enter_context(ExitStack())
            session = opened.enter_context(open_session(engine, engine.ways(), often=True, reranker=source))
        name = f"{engine.run.name}, {engine.label(engine.by)}"
        name += f", the first {source.most:,} passages reranked by {source.name}" if source is not None else ""

        def print_address() -> None:
            page = page_address(host or ADDRESS, port, "" if access is None else access.root_path, tls is not None)
            terminal.print(name, style="dim", markup=False, highlight=False)
            if log is not None:
                text = f"Questions, results and clicks are recorded in {log}"
                terminal.print(text, markup=False, highlight=False, soft_wrap=True)
            token = f"Token:  {access.token}\n" if access is not None and token_file is None else ""
            text = f"\nPage:   {page}\nJSON:   {page}/api/search?q=...\n{token}Stop:   Ctrl-C\n"
            terminal.print(text, markup=False, highlight=False, soft_wrap=True)

        searches = None if lines is None else SearchLog(lines, engine.run.name)
        newer_runs = (
            Follow(lambda now: newer_session(now, place, by, rerank, reranker), opened, print_run, warn)
            if follow
            else None
        )
        serve(session, listener, print_address, searches, access, tls, newer_runs)
    terminal.print("The server has ended.")


def newer_session(
    now: "Session", store: "Store", by: SearchBy, rerank: int | None = None, reranker: str | None = None
) -> "AbstractContextManager[Session] | None":
    """Opens the newest run of the recipe that answers now. None if that is the one that answers now."""
    from flows.serving.engine import newest_engine
    from flows.serving.session import open_session

    engine = newest_engine(store, now.engine.run.name, by)
    if datetime.fromisoformat(engine.run.created) <= datetime.fromisoformat(now.engine.run.created):
        return None
    source = reranker_source(engine, rerank, reranker)
    return open_session(engine, engine.ways(), often=True, reranker=source)


def print_run(session: "Session") -> None:
    run = session.engine.run
    terminal.print(f"Now answering: the run of {run.name} of {run.created}", markup=False, highlight=False)


def read_access(host: str, port: int, token_file: Path | None, allowed: list[str], root_path: str) -> "Access":
    """What requests from other machines must have. Raises InputError for an unusable token, host name or path."""
    from flows.serving.access import Access
    from flows.serving.addresses import check_root_path, host_names
    from flows.serving.credentials import new_token, read_token

    token = new_token() if token_file is None else read_token(token_file)
    warn_if_readable(token_file, "token")
    return Access(token, host_names(host, allowed), check_root_path(root_path), f"cocondenser-{port}")


def read_tls(certificate: Path | None, key: Path | None) -> "SSLContext | None":
    """The settings of a TLS server; None without the two files. Raises InputError for files that cannot be used."""
    if certificate is None or key is None:
        return None
    from flows.serving.credentials import tls_context

    tls = tls_context(certificate, key)
    warn_if_readable(key, "key")
    return tls


def warn_if_readable(file: Path | None, secret: str) -> None:
    """Warns if other users of this machine can read a file with a secret."""
    from flows.serving.credentials import is_readable_by_others

    if file is not None and is_readable_by_others(file):
        warn(f"{file}: other users of this machine can read the {secret}; `chmod 600` prevents it")


def page_address(host: str, port: int, root_path: str, encrypted: bool) -> str:
    """The address of the page, without `/` at its end."""
    from flows.serving.addresses import in_url, is_loopback, is_wildcard

    if not encrypted and not is_loopback(host):
        warn("the token and the answers are not encrypted; --certificate and --key, or a proxy with TLS, encrypt them")
    name = socket.gethostname() if is_wildcard(host) else in_url(host)
    return f"http{'s' * encrypted}://{name}:{port}{root_path}"


@contextmanager
def listening_socket(port: int, host: str = ADDRESS) -> Iterator[socket.socket]:
    """A socket that listens on the port. Raises InputError if another program has it, or for an unusable address."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host}: {getattr(error, 'strerror', None) or 'no address'}") from None
    with socket.socket(family, kind) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has just ended blocks no port
        try:
            listener.bind(address)
            listener.listen()  # early clients wait until the server runs
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise InputError(f"--host {host}: is no address of this machine") from None
            reason = "another program uses this port" if error.errno == errno.EADDRINUSE else error.strerror
            raise InputError(f"--port {port}: {reason}") from None
        yield listener
