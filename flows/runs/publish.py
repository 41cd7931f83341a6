"""Sends an export to the hub: what is sent, and where to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.runs.export import Exported
from pipeline.errors import InputError
from pipeline.export import folder
from pipeline.paths import is_new_folder

HUB = "hub:"


def check_push(push: str | None, public: bool) -> str | None:
    """Returns USER/NAME of the model that `--push hub:NAME` names; None without the option. InputError if it cannot
    be sent.
    """
    from pipeline.export.hub import check_target

    if push is None:
        if public:
            raise InputError("--public: only --push has this option; add --push hub:NAME")
        return None
    if not push.startswith(HUB):
        raise InputError(f"--push {push}: use {HUB}NAME or {HUB}USER/NAME")
    return check_target(push.removeprefix(HUB), public)


def earlier_export(
    out: Path, recipe: str | None, model: str | None, only: Sequence[str], float16: bool
) -> Exported | None:
    """Returns the complete export in `out`; None if the folder is new.

    Raises InputError if the folder is not an export, lacks one of its files, or has other options.
    """
    from pipeline.export.vectors import vector_type_of

    if is_new_folder(out):
        return None
    fields = folder.read_mark(out) if out.is_dir() else None
    if fields is None or not _has_names(fields):
        raise InputError(f"{out}: not an export (it has no valid {folder.MARK}); only exports can be sent")
    for name in fields["files"]:
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise InputError(f"{out}: not an export: {folder.MARK} names a file outside, {name}")
        if not (out / name).is_file():
            raise InputError(f"{out}: not a complete export: {name} is missing; --overwrite exports again")
    for option, given, found in (
        ("--recipe", recipe, fields["recipe"]),
        ("--model", model, fields["model"]),
        ("--only", sorted({*only}) or None, sorted(fields["parts"])),
    ):
        if given not in (None, found):
            name = found if isinstance(found, str) else ", ".join(found)
            raise InputError(f"{out}: an export with another {option}, {name}; --overwrite replaces it")
    if float16 and vector_type_of(out / "vectors") != "float16":
        raise InputError(f"{out}: an export without vectors of float16 (--float16); --overwrite replaces it")
    sizes = {name: (out / name).stat().st_size for name in fields["files"]}
    return Exported(fields["recipe"], fields["model"], fields["parts"], sizes, None, None, None)


def _has_names(fields: Mapping[str, Any]) -> bool:
    """Whether export.json names recipe, model and parts."""
    names, parts = (fields.get("recipe"), fields.get("model")), fields.get("parts")
    return isinstance(parts, list) and all(isinstance(name, str) for name in (*names, *parts))


def publish(out: Path, done: Exported, repository: str, public: bool) -> str:
    """Sends the files of an export to the model USER/NAME. Returns its address."""
    from pipeline.export.hub import send

    return send(out, [*done.files], repository, public)
