"""Models of the Hugging Face hub: whether they are available, and their local folders."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import InputError, reason
from pipeline.runtime.network import answers, check_usable

HUB_NAME = r"^[\w.-]+(/[\w.-]+)?$"


def cached(name: str, revision: str, needed: Sequence[str]) -> Path | None:
    """Returns the snapshot folder of model `name` in the local cache if it holds at least one file of `needed`."""
    from huggingface_hub import constants

    repository = Path(constants.HF_HUB_CACHE) / ("models--" + name.replace("/", "--"))
    reference = repository / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshot = repository / "snapshots" / commit
    return snapshot if any((snapshot / file).exists() for file in needed) else None


def reachable(seconds: float) -> bool:
    """Whether the hub accepts a connection within `seconds`. Always false if the environment sets offline mode."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    return answers(constants.ENDPOINT, seconds)


def missing(name: str | None, revision: str, needed: Sequence[str], field: str) -> list[str]:
    """Returns a line that says how to get model `name` if it is not cached and cannot be downloaded; else no line.

    `field` is the recipe's field that takes a local folder instead.
    """
    if name is None or cached(name, revision, needed) or reachable(0.3):
        return []
    revised = "" if revision == "main" else f" --revision {revision}"
    return [f"model {name} is not on this machine: `hf download {name}{revised}`, or set {field} to a local folder"]


def fetch(name: str, revision: str, patterns: Sequence[str], needed: Sequence[str]) -> Path:
    """Returns the folder of model `name`: the cached one if it has a file of `needed`, else downloads `patterns`.

    Raises InputError if the download fails.
    """
    return cached(name, revision, needed) or download(name, revision, patterns)


def download(name: str, revision: str, patterns: Sequence[str]) -> Path:
    """Downloads the files of `patterns` that are not on this machine. Returns the folder of model `name`.

    Raises InputError if the download fails.
    """
    check_usable(f"model {name}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # the hub's client raises its own errors, those of requests and of the system
        raise InputError(f"model {name} (revision {revision}): {reason(error)}") from error
