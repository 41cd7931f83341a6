"""Sends an export to the Hugging Face hub, as a model with the export's README as its card.

The token is the one that huggingface_hub finds (HF_TOKEN, `hf auth login`); nothing here reads or keeps it.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import InputError, reason
from pipeline.export.folder import MARK
from pipeline.runtime.hub import reachable
from pipeline.runtime.network import check_usable

FOLDERS = ("model/*", "onnx/*", "run/*", "index/*", "vectors/*")
"""Files of an earlier export on the hub that are removed if the new one does not have them."""
CONNECTED_WITHIN = 10.0
"""Seconds."""
FROM_THE_HUB = ".gitattributes"
"""The file that the hub itself puts into a new model."""


def check_target(name: str, public: bool) -> str:
    """Returns USER/NAME of the model `name` on the hub, which the account may have to create.

    Raises InputError if there is no token, the hub is not reachable, or the model exists with another visibility
    or has files but is no earlier export: its README.md and parts would be replaced.
    """
    from huggingface_hub import HfApi, constants, errors, get_token

    if not _is_valid(name):
        raise InputError(
            f"--push hub:{name}: not the name of a model: use NAME or USER/NAME, of letters, digits, '-', '_' and '.'"
        )
    token = get_token()
    if token is None:
        raise InputError(f"--push hub:{name}: no token: `hf auth login`, or set HF_TOKEN")
    if not (token.isascii() and token.isprintable()):
        raise InputError(f"--push hub:{name}: the token (HF_TOKEN, or of `hf auth login`) has invalid characters")
    check_usable(f"hub:{name}")
    if not reachable(CONNECTED_WITHIN):
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} accepts no connection"
        raise InputError(f"--push hub:{name}: {why}")
    with _one_line(name):
        api = HfApi()
        repository = name if "/" in name else f"{api.whoami()['name']}/{name}"
        try:
            model = api.model_info(repository)
        except errors.RepositoryNotFoundError:
            return repository
    if model.private == public:
        now = "private" if model.private else "public"
        advice = "leave out --public" if model.private else "--public sends to it"
        raise InputError(f"--push hub:{name}: exists and is {now}; {advice}, or change it on the hub")
    there = {file.rfilename for file in model.siblings or ()} - {FROM_THE_HUB}
    if there and MARK not in there:
        raise InputError(
            f"--push hub:{name}: has files but no {MARK}, so it is not an earlier export; choose another name"
        )
    return repository


def send(folder: Path, files: Sequence[str], repository: str, public: bool) -> str:
    """Sends the `files` in `folder` to the model USER/NAME. Returns its address.

    Files that the hub has are not sent again, so that the same call continues an interrupted one. Raises InputError
    if the hub refuses them.
    """
    from huggingface_hub import HfApi

    with _one_line(repository), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "It seems that you are about to commit a data file")  # lists in run/
        api = HfApi()
        address = api.create_repo(repository, private=not public, exist_ok=True)
        api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=list(files),
            delete_patterns=list(FOLDERS),
            commit_message="Export of cocondenser",
        )
    return str(address)


def _is_valid(name: str) -> bool:
    """Whether the hub accepts this name of a model."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turns an error of the hub's client, of the network or of the system into an InputError."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HfHubHTTPError as error:
        what = {
            401: "the hub does not accept the token: `hf auth login`, or set HF_TOKEN",
            403: "the token gives no right to write there",
        }.get(error.response.status_code, error.server_message or reason(error))
        raise InputError(f"--push hub:{name}: {what}") from error
    except Exception as error:  # its own errors, those of HTTP and of the system
        raise InputError(f"--push hub:{name}: {reason(error)}") from error
