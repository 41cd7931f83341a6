"""Documents as tests compare them."""

from pipeline.data.readers.formats import html
from pipeline.data.readers.sections import Document, document


def read_html(page: str) -> Document:
    title, blocks = html.blocks(page)
    return document("d", title, "name", blocks)


def outline(parsed: Document) -> list[tuple[str, str]]:
    """(headings above, text) of each section."""
    return [("/".join(parsed.headings[i] for i in section.path), section.text) for section in parsed.sections]
