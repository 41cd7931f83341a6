"""Hosts and proxies: whether a host accepts connections, and which hosts are reached without a proxy."""

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
"""Names of this machine; a proxy would take them for its own machine."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
"""Environment variables, in lower or upper case."""
UNUSABLE = "COCONDENSER_UNUSABLE_PROXY"
"""The variable that keeps why a proxy was removed, for the error of a later request that needs it."""


def answers(address: str, seconds: float) -> bool:
    """Whether the host of an http(s) address, or the proxy to it, accepts a connection within `seconds`."""
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

    # In a thread, because the timeout of a connection does not cover the name lookup before it.
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
    """Sets NO_PROXY so that clients reach this machine (and `host`) without a proxy.

    Entries of NO_PROXY that httpx cannot parse are removed: with such an entry it cannot create a client.
    """
    current = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    entries = [entry for entry in map(str.strip, current.split(",")) if entry and _readable(entry)]
    names = ",".join(dict.fromkeys([*entries, *LOOPBACK, *([host] if host else [])]))
    value = "*" if entries == ["*"] else names  # urllib and requests accept `*` only as the single entry
    environment.update(NO_PROXY=value, no_proxy=value)


def _readable(entry: str) -> bool:
    try:
        return bool(ip_address(entry))
    except ValueError:
        return entry.isascii() and "[" not in entry and entry.count(":") < 2


def without_proxy(environment: MutableMapping[str, str], address: str = "") -> None:
    """Prepares the environment for requests to servers of this machine and to `address`.

    Removes the proxies that httpx cannot use: with such a proxy it cannot create a client, even for this machine.
    `check_usable` reports them later.
    """
    spare_loopback(environment, urlsplit(address).hostname)
    if reasons := unusable(environment):
        environment[UNUSABLE] = "; ".join(f"{name}: {why}" for name, why in reasons.items())
    for name in reasons:
        del environment[name]


def unusable(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns {variable: why httpx cannot use its proxy}. The text omits the address, which may hold a password."""
    proxies = {name: value for name, value in environment.items() if name.lower() in PROXIES and value}
    if not proxies:
        return {}
    import httpx

    reasons = {}
    for name, value in proxies.items():
        try:
            httpx.HTTPTransport(proxy=_with_scheme(value)).close()
        except ImportError:
            reasons[name] = "a SOCKS proxy, which needs `pip install 'httpx[socks]'`; or set one as http://HOST:PORT"
        except (ValueError, httpx.InvalidURL):
            reasons[name] = "not a proxy address; write http://HOST:PORT"
    return reasons


def check_usable(what: str) -> None:
    """Raises InputError if the environment sets a proxy that httpx cannot use. `what`: the target of the request."""
    reason = os.environ.get(UNUSABLE) or "; ".join(f"{name}: {why}" for name, why in unusable(os.environ).items())
    if reason:
        raise InputError(f"{what} cannot be reached: {reason}")


def _with_scheme(proxy: str) -> str:
    return proxy if "://" in proxy else f"http://{proxy}"
