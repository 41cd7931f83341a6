"""Names and addresses of a server."""

import ipaddress
import re
import socket
from pathlib import PurePosixPath

import psutil

from flows.serving.http import HOSTS
from pipeline.errors import InputError

HOST_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?", re.IGNORECASE)
ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def host_names(address: str, allowed: list[str]) -> tuple[str, ...]:
    """Host names that requests to a server at `address` may have, with the allowed ones.

    Raises InputError for an allowed one that is no host name.
    """
    for name in allowed:
        if not is_host(name):
            example = "write it as in search.example.org, *.example.org or 192.0.2.1, without a port"
            raise InputError(f"--allow-host {name}: is no host name; {example}")
    own = [socket.gethostname(), *interfaces()] if is_wildcard(address) else [address]
    return tuple(dict.fromkeys([*HOSTS, *map(in_url, [*own, *allowed])]))


def is_host(name: str) -> bool:
    return is_ip(name.strip("[]")) or bool(HOST_NAME.fullmatch(name))


def is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_wildcard(address: str) -> bool:
    return is_ip(address) and ipaddress.ip_address(address).is_unspecified


def is_loopback(address: str) -> bool:
    return address == "localhost" or (is_ip(address) and ipaddress.ip_address(address).is_loopback)


def in_url(host: str) -> str:
    """The host as a URL has it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def interfaces() -> list[str]:
    """The IP addresses of this machine."""
    families = (socket.AF_INET, socket.AF_INET6)
    found = [one for some in psutil.net_if_addrs().values() for one in some if one.family in families]
    return [one.address.partition("%")[0] for one in found]


def check_root_path(path: str) -> str:
    """The path as a proxy shows it, without `/` at its end. Raises InputError if it is none."""
    path = path.rstrip("/")
    if path and (not ROOT_PATH.fullmatch(path) or {".", ".."} & {*PurePosixPath(path).parts, *path.split("/")}):
        raise InputError(f"--root-path {path}: must be a path such as /search")
    return path
