"""The HTML pages' templates and styles.

They are found by path, beside the report: a module that imported that package would have them in its stage's key, and
a page's looks would rebuild a model.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FOLDER = Path(__file__).parent / "report"


def environment() -> "Environment":
    """Escapes all text; a name that is not given is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(FOLDER)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def styles(*names: str) -> "Markup":
    """The style sheets one after another."""
    from markupsafe import Markup

    return Markup("".join((FOLDER / name).read_text() for name in names))
