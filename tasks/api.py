"""Asks Prefect's server without importing Prefect, which takes seconds, and sends the last events of a process."""

import urllib.error
import urllib.request

from pipeline.runtime.network import is_loopback


def healthy(api: str, seconds: float = 2.0) -> bool:
    """Whether a Prefect server answers at this API address."""
    proxies: dict[str, str] | None = {} if is_loopback(api) else None  # None: the environment's
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    try:
        with opener.open(f"{api.rstrip('/')}/health", timeout=seconds):
            return True
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)  # a server that needs a key
    except (OSError, ValueError):
        return False


def send_the_rest(seconds: float = 10.0) -> None:
    """Sends waiting logs and events; otherwise they would be lost with the process or wait for a stopped server."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=seconds)
