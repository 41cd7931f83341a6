"""Templates and styles of the HTML pages.

They are in the folder of the report and are read by path. A stage that imported that package would have them in its
key, so that a change of a page's style would rebuild a model.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FOLDER = Path(__file__).parent / "report"


def environment() -> "Environment":
    """Returns a Jinja environment that escapes all text; an undefined name is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(FOLDER)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def styles(*names: str) -> "Markup":
    """Returns the style sheets, concatenated."""
    from markupsafe import Markup

    return Markup("".join((FOLDER / name).read_text() for name in names))
