"""Prefect's server: asked without Prefect, whose import takes seconds, and told the rest at an end."""

import urllib.error
import urllib.request

from pipeline.runtime.network import is_loopback


def healthy(api: str, seconds: float = 2.0) -> bool:
    """Does a Prefect server answer at this API address?"""
    proxies: dict[str, str] | None = {} if is_loopback(api) else None  # None: the environment's
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    try:
        with opener.open(f"{api.rstrip('/')}/health", timeout=seconds):
            return True
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)  # one that asks for a key first
    except (OSError, ValueError):
        return False


def send_the_rest(seconds: float = 10.0) -> None:
    """Sends waiting logs and events, which would be lost with their process or try for a server that is gone."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=seconds)
