"""Is a host there? Asked before long work, and answered at once."""

import os
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


def answers(address: str, seconds: float) -> bool:
    """Does the host of an http(s) address, or the proxy on the way, take a connection within `seconds`?"""
    proxy = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    parts = urlsplit(proxy or address)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    answered = threading.Event()

    def knock() -> None:
        with suppress(OSError):
            socket.create_connection((parts.hostname or "", port), seconds).close()
            answered.set()

    # In a thread, because the timeout of a connection does not hold for the name's look-up before it.
    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(seconds)
    return answered.is_set()
