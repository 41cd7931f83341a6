"""A search server that is told to end waits for nobody for long, and prints no stack trace."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from serving import computed, make_run

from flows import serve
from flows.cli_serve import bound
from flows.processes import free_port


@pytest.fixture
def made() -> Any:
    return make_run()


@pytest.fixture
def told(made, monkeypatch, capfd) -> Callable[..., tuple[float, str]]:
    """What a client does -> (seconds that the server takes to end by SIGINT afterwards, what it prints)."""

    def told(client: Callable[[socket.socket], object]) -> tuple[float, str]:
        ended = []

        def visit() -> None:
            with socket.create_connection(place.getsockname(), timeout=30) as connection:
                client(connection)
                time.sleep(0.2)
                ended.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
                over.wait(30)

        over = threading.Event()
        with bound(free_port()) as place, ThreadPoolExecutor(1) as beside:
            visiting = beside.submit(visit)
            with pytest.raises(KeyboardInterrupt):
                serve.serve(made, place)
            took = time.monotonic() - ended[0]
            over.set()
            visiting.result()
        return took, "".join(capfd.readouterr())

    monkeypatch.setattr(serve, "ask", lambda run, questions, known: computed([(one, None) for one in questions]))
    monkeypatch.setattr(serve, "ENDING_SECONDS", 2)
    monkeypatch.setattr(serve, "READING_SECONDS", 0.5)
    return told


UNFINISHED = b"POST /api/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"


def test_clients_that_go_amid_a_request_are_no_fault(told) -> None:
    def go(connection: socket.socket) -> None:
        connection.sendall(UNFINISHED)
        time.sleep(0.1)
        connection.shutdown(socket.SHUT_RDWR)

    assert told(go)[1] == ""


def test_who_would_speak_another_protocol_is_answered(told) -> None:
    heads = []

    def upgrade(connection: socket.socket) -> None:
        connection.sendall(
            b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        heads.append(connection.recv(4096))

    assert told(upgrade)[1] == ""
    assert heads[0].startswith(b"HTTP/1.1 404 ")
    assert heads[0].endswith(b'{"error": "/x: no such page"}\n')


def test_the_end_does_not_wait_for_a_request_that_is_unfinished(told) -> None:
    took, said = told(lambda connection: connection.sendall(UNFINISHED))
    assert (took < 2, said) == (True, "")


def test_the_end_does_not_wait_for_a_client_that_reads_no_answers(told, monkeypatch) -> None:
    monkeypatch.setattr(serve, "as_json", lambda *_: "x" * 10_000_000)
    took, said = told(
        lambda connection: connection.sendall(2 * b"GET /api/search?q=a&k=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    )
    assert (took < 2, said) == (True, "")


def test_a_condition_that_outlasts_the_server_is_interrupted(told, made) -> None:
    def go(connection: socket.socket) -> None:
        connection.sendall(b"GET /api/search?q=a&k=1&where=slow HTTP/1.1\r\nHost: localhost\r\n\r\n")

    took, said = told(go)
    assert took < 4
    assert "Traceback" not in said
    assert made.where.evaluated == ["slow"]


def test_what_outlasts_the_server_is_told_so(told, monkeypatch) -> None:
    going = threading.Event()
    monkeypatch.setattr(serve, "ask", lambda run, questions, known: going.wait(4) and [])
    held: list[socket.socket] = []

    def go(connection: socket.socket) -> None:
        connection.sendall(b"GET /api/search?q=a&k=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        held.append(connection.dup())

    _, said = told(go)
    assert "Traceback" not in said
    with held[0] as connection:
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.split()[1] == b"503"
    assert json.loads(body) == {"error": "the server has ended"}
