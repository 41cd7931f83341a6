"""Models of the Hugging Face hub: are they at hand, and where do they lie."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import InputError
from pipeline.runtime.network import answers, check_usable

HUB_NAME = r"^[\w.-]+(/[\w.-]+)?$"


def cached(name: str, revision: str, needed: Sequence[str]) -> Path | None:
    """The snapshot folder of model `name` in the local cache, if it holds at least one file of `needed`."""
    from huggingface_hub import constants

    repository = Path(constants.HF_HUB_CACHE) / ("models--" + name.replace("/", "--"))
    reference = repository / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    snapshot = repository / "snapshots" / commit
    return snapshot if any((snapshot / file).exists() for file in needed) else None


def reachable(seconds: float) -> bool:
    """Does the hub answer a connection within `seconds`? Never true where the environment says to stay offline."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    return answers(constants.ENDPOINT, seconds)


def missing(name: str | None, revision: str, needed: Sequence[str], field: str) -> list[str]:
    """Lines that say how to bring model `name` where it is neither in the cache nor to be had; else none.

    `field` is the recipe's field that takes a local folder instead.
    """
    if name is None or cached(name, revision, needed) or reachable(0.3):
        return []
    revised = "" if revision == "main" else f" --revision {revision}"
    return [f"model {name} is not on this machine: `hf download {name}{revised}`, or set {field} to a local folder"]


def fetch(name: str, revision: str, patterns: Sequence[str], needed: Sequence[str]) -> Path:
    """The folder of model `name`: cached with a file of `needed`, else the files of `patterns` downloaded.

    Raises InputError where they cannot be had.
    """
    folder = cached(name, revision, needed)
    if folder is not None:
        return folder
    check_usable(f"model {name}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # the hub's client raises its own, requests' and the system's errors
        raise InputError(f"model {name} (revision {revision}): {str(error).splitlines()[0]}") from error
