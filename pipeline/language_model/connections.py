"""The open connections of an HTTP client, so that another thread can end requests that are being answered."""

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakSet

OPENED = ("connect_tcp.complete", "start_tls.complete")
"""Ends of the names of httpcore's events that return a new connection."""


class Connections:
    """`trace` is the extension of each request, with which httpcore reports what it does."""

    def __init__(self) -> None:
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._lock = threading.Lock()
        self._is_cut = False

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        if not event.endswith(OPENED):
            return
        opened = info["return_value"].get_extra_info("socket")
        with self._lock:
            self._sockets.add(opened)
            if self._is_cut:
                _cut(opened)

    def cut(self) -> None:
        """Ends all connections, also those that are opened later: requests on them fail at once."""
        with self._lock:
            self._is_cut = True
            for opened in self._sockets:
                _cut(opened)


def _cut(opened: socket.socket) -> None:
    with suppress(OSError):  # closed already
        # Of the class: that of an encrypted socket also forgets the encryption, which another thread still uses.
        socket.socket.shutdown(opened, socket.SHUT_RDWR)
