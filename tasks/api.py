"""Prefect's server, asked without Prefect, whose import takes seconds."""

import urllib.error
import urllib.request


def healthy(api: str, seconds: float = 2.0) -> bool:
    """Does a Prefect server answer at this API address?"""
    try:
        with urllib.request.urlopen(f"{api.rstrip('/')}/health", timeout=seconds):
            return True
    except urllib.error.HTTPError as error:
        return error.code in (401, 403)  # one that asks for a key first
    except (OSError, ValueError):
        return False
