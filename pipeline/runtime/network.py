"""Hosts and the proxies on the way to them: is one there, and which are asked without a proxy."""

import os
import socket
import threading
import urllib.request
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from pipeline.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""This machine by its names; where a proxy would ask, these are that other machine's."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
"""Variables, in small letters or in capitals."""
UNUSABLE = "COCONDENSER_UNUSABLE_PROXY"
"""The variable that remembers why a proxy was set aside, for what would need it later."""


def answers(address: str, seconds: float) -> bool:
    """Does the host of an http(s) address, or the proxy on the way, take a connection within `seconds`?"""
    parts = urlsplit(address)
    proxies = {} if urllib.request.proxy_bypass(parts.hostname or "") else urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy:
        parts = urlsplit(_with_scheme(proxy))
    answered = threading.Event()

    def knock() -> None:
        with suppress(OSError, ValueError):
            port = parts.port or (80 if parts.scheme == "http" else 443)
            socket.create_connection((parts.hostname or "", port), seconds).close()
            answered.set()

    # In a thread, because the timeout of a connection does not hold for the name's look-up before it.
    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    thread.join(seconds)
    return answered.is_set()


def is_loopback(address: str) -> bool:
    """Whether the host of an http(s) address is this machine itself."""
    host = (urlsplit(address).hostname or "").lower()
    try:
        return host == "localhost" or ip_address(host).is_loopback or ip_address(host).is_unspecified
    except ValueError:
        return False


def spare_loopback(environment: MutableMapping[str, str], host: str | None = None) -> None:
    """Has every client that goes by the environment ask this machine (and `host`) without a proxy.

    Entries of NO_PROXY that httpx cannot read are left out: with one of them it makes no client at all.
    """
    given = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    entries = [entry for entry in map(str.strip, given.split(",")) if entry and _readable(entry)]
    named = ",".join(dict.fromkeys([*entries, *LOOPBACK, *([host] if host else [])]))
    spared = "*" if entries == ["*"] else named  # urllib and requests know `*` only where it is alone
    environment.update(NO_PROXY=spared, no_proxy=spared)


def _readable(entry: str) -> bool:
    try:
        return bool(ip_address(entry))
    except ValueError:
        return entry.isascii() and "[" not in entry and entry.count(":") < 2


def without_proxy(environment: MutableMapping[str, str], address: str = "") -> None:
    """Prepares the environment for asking servers of this machine, one at `address` among them.

    Takes out the proxies that httpx cannot use, for with one of them it makes no client, not even for this machine.
    `check_usable` then speaks for them.
    """
    spare_loopback(environment, urlsplit(address).hostname)
    if found := unusable(environment):
        environment[UNUSABLE] = "; ".join(f"{name}: {why}" for name, why in found.items())
    for name in found:
        del environment[name]


def unusable(environment: Mapping[str, str]) -> dict[str, str]:
    """{variable: why httpx cannot use the proxy that it names}; without its address, which may hold a password."""
    given = {name: value for name, value in environment.items() if name.lower() in PROXIES and value}
    if not given:
        return {}
    import httpx

    found = {}
    for name, value in given.items():
        try:
            httpx.HTTPTransport(proxy=_with_scheme(value)).close()
        except ImportError:
            found[name] = "a SOCKS proxy, which needs `pip install 'httpx[socks]'`; or name one by http://HOST:PORT"
        except (ValueError, httpx.InvalidURL):
            found[name] = "no address of a proxy; write http://HOST:PORT"
    return found


def check_usable(what: str) -> None:
    """Raises InputError where `what`, which is about to be asked over the network, would need an unusable proxy."""
    said = os.environ.get(UNUSABLE) or "; ".join(f"{name}: {why}" for name, why in unusable(os.environ).items())
    if said:
        raise InputError(f"{what} cannot be reached: {said}")


def _with_scheme(proxy: str) -> str:
    return proxy if "://" in proxy else f"http://{proxy}"
