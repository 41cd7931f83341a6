"""The pinned versions install on every supported Python, Debian 12's 3.11.2 too."""

import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
LINES = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
PINNED = [Requirement(line) for line in LINES if line]


def test_the_oldest_supported_python_can_install_what_is_pinned() -> None:
    """Else pip looks for other versions for hours, without a word of the cause."""
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = f"{supported.removeprefix('>=')}.2"
    too_new = {}
    for one in PINNED:
        try:
            found = metadata(one.name)
        except PackageNotFoundError:  # of another platform or extra
            continue
        needed = found.get("Requires-Python") or ""
        if one.specifier.contains(found["Version"]) and not SpecifierSet(needed).contains(oldest):
            too_new[one.name] = needed
    assert too_new == {}
