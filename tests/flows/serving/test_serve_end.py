"""A search server that gets a signal ends within seconds, whatever its clients do, and prints no traceback."""

import contextlib
import gc
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from serving import computed, make_run

from flows.cli.serve import listening_socket
from flows.deploy.processes import free_port
from flows.serving import http, server, service

pytestmark = pytest.mark.slow


@pytest.fixture
def fake_run() -> Any:
    return make_run()


@pytest.fixture
def end_after(fake_run, monkeypatch, capfd) -> Callable[..., tuple[float, str]]:
    """end_after(client): the client acts, then SIGINT: (seconds until the server ends, its output)."""

    def end_after(client: Callable[[socket.socket], object]) -> tuple[float, str]:
        signal_times = []

        def visit() -> None:
            with socket.create_connection(listener.getsockname(), timeout=30) as connection:
                client(connection)
                time.sleep(0.2)
                signal_times.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
                over.wait(30)

        over = threading.Event()
        with listening_socket(free_port()) as listener, ThreadPoolExecutor(1) as client_thread:
            visiting = client_thread.submit(visit)
            server.serve(fake_run, listener)
            seconds = time.monotonic() - signal_times[0]
            over.set()
            visiting.result()
        return seconds, "".join(capfd.readouterr())

    monkeypatch.setattr(service, "ask", lambda run, questions, known: computed([(one, None) for one in questions]))
    monkeypatch.setattr(http, "ENDING_SECONDS", 2)
    return end_after


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["before the event loop", "before uvicorn handles signals"])
def test_a_signal_while_the_server_starts_ends_it_without_a_traceback(
    fake_run, monkeypatch, capfd, number: signal.Signals, moment: str
) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), number)

    start = uvicorn.Server.serve

    async def interrupted(self: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        interrupt()
        await start(self, sockets)

    if moment == "before uvicorn handles signals":
        monkeypatch.setattr(uvicorn.Server, "serve", interrupted)
    ready = interrupt if moment == "before the event loop" else lambda: None
    before = [signal.signal(one, signal.default_int_handler) for one in (signal.SIGINT, signal.SIGTERM)]
    try:
        with listening_socket(free_port()) as listener:
            server.serve(fake_run, listener, ready)
        gc.collect()  # asyncio logs a lost exception when its task is deleted
    finally:
        for one, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(one, handler)
    assert "".join(capfd.readouterr()) == ""


UNFINISHED = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"


def test_a_client_that_disconnects_during_a_request_is_no_error(end_after) -> None:
    def disconnect(connection: socket.socket) -> None:
        connection.sendall(UNFINISHED)
        time.sleep(0.1)
        connection.shutdown(socket.SHUT_RDWR)

    assert end_after(disconnect)[1] == ""


def test_a_request_to_upgrade_the_protocol_is_answered(end_after) -> None:
    heads = []

    def upgrade(connection: socket.socket) -> None:
        connection.sendall(
            b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        heads.append(connection.recv(4096))

    assert end_after(upgrade)[1] == ""
    assert heads[0].startswith(b"HTTP/1.1 404 ")
    assert heads[0].endswith(b'{"error": "/x: no such page"}\n')


GET = b"GET /api/search?q=a&k=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
ABUSES = {
    "pipelined": 50 * GET,
    "pipelined pages": 200 * GET.replace(b"/api/search?q=a&k=1", b"/"),
    "pipelined, the last unfinished": 20 * GET + GET[:-4],
    "pipelined, then no HTTP": 20 * GET + b"\x00\xff\r\n\r\n",
    "pipelined, one with a fault of its own": 3 * (GET + GET.replace(b"q=a", b"q=bad") + GET.replace(b"GET", b"PUT")),
    "pipelined bodies": 20 * (POST % 15 + b'{"q":"a","k":1}'),
    "a body that does not end": 3 * GET + POST % 1000 + b"{",
    "half a request": GET[:30],
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
    "a long header": GET[:-2] + b"X: " + b"x" * 300_000 + b"\r\n\r\n",
    "a long address": b"GET /" + b"x" * 300_000 + GET[4:],
    "an upgrade": GET[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + 5 * GET,
    "a client that waits for 100 Continue": POST[:-2] % 15 + b"Expect: 100-continue\r\n\r\n",
    "nothing": b"",
}


def closes(connection: socket.socket) -> None:
    connection.close()


def resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def waits_and_closes(connection: socket.socket) -> None:
    time.sleep(0.3)
    connection.close()


@pytest.mark.parametrize("leaves", [closes, resets, waits_and_closes])
@pytest.mark.parametrize("size", [10, 3_000_000], ids="{:,} bytes each".format)
def test_clients_that_read_nothing_cause_no_output(end_after, monkeypatch, leaves, size: int) -> None:
    monkeypatch.setattr(server, "answers_as_json", lambda *_: "x" * size)
    answered = []

    def abuse(connection: socket.socket) -> None:
        for sent in ABUSES.values():
            with socket.create_connection(connection.getpeername(), timeout=30) as other:
                with contextlib.suppress(ConnectionError):  # it may be refused before all is sent
                    other.sendall(sent)
                leaves(other)
        connection.sendall(GET)
        answered.append(connection.recv(15))

    assert (end_after(abuse)[1], answered) == ("", [b"HTTP/1.1 200 OK"])


@pytest.mark.parametrize("sent", [UNFINISHED, 2 * GET], ids=["a request is unfinished", "answers are not read"])
def test_the_end_waits_a_short_while_for_a_client(end_after, monkeypatch, sent: bytes) -> None:
    monkeypatch.setattr(server, "answers_as_json", lambda *_: "x" * 10_000_000)
    seconds, output = end_after(lambda connection: connection.sendall(sent))
    assert (seconds < http.ENDING_SECONDS + 2, output) == (True, "")


def test_a_condition_that_outlasts_the_server_is_interrupted(end_after, fake_run) -> None:
    def send(connection: socket.socket) -> None:
        connection.sendall(b"GET /api/search?q=a&k=1&where=slow HTTP/1.1\r\nHost: localhost\r\n\r\n")

    seconds, output = end_after(send)
    assert seconds < 4
    assert "Traceback" not in output
    assert fake_run.where.evaluated == ["slow"]


def test_a_request_that_outlasts_the_server_is_refused(end_after, monkeypatch) -> None:
    never_set = threading.Event()
    monkeypatch.setattr(service, "ask", lambda run, questions, known: never_set.wait(4) and [])
    connections: list[socket.socket] = []

    def send(connection: socket.socket) -> None:
        connection.sendall(b"GET /api/search?q=a&k=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connections.append(connection.dup())

    _, output = end_after(send)
    assert "Traceback" not in output
    with connections[0] as connection:
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 500 ")
