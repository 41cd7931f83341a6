"""HTML as headings and the visible text of a page, without its navigation."""

import re
from itertools import islice
from typing import Any

from lxml import etree

from pipeline.data.readers.formats import Unreadable
from pipeline.data.readers.formats.navigation import remove_navigation
from pipeline.data.readers.sections import Block

# fmt: off
HIDDEN = {
    "button", "dialog", "head", "iframe", "nav", "noscript", "object", "script", "select", "style", "svg", "template",
    "textarea",
}
LINES = {"caption", "dd", "dt", "legend", "li", "option", "summary", "tr"}
PARAGRAPHS = {
    "address", "article", "aside", "blockquote", "body", "center", "details", "div", "dl", "fieldset", "figcaption",
    "figure", "footer", "form", "header", "hgroup", "hr", "main", "ol", "p", "pre", "section", "table", "ul",
}
# fmt: on
LISTS = {"ol", "ul"}
CELLS = {"td", "th"}
BREAKS = LINES | PARAGRAPHS | CELLS | {"br", "h1", "h2", "h3", "h4", "h5", "h6"}
"""Elements that make a cell of a table more than a piece of its row's line, if there are two."""
DECLARATIONS = re.compile(
    r"""(\ufeff?(?:\s++|<\?.*?\?>|<!--.*?-->)*+<!DOCTYPE\b[^\[>]*+)"""
    r"""\[(?:[^\]"'<]++|(?><!--.*?-->)|<(?!!--)|"[^"]*+"|'[^']*+')*+\]\s*+(?=>)""",
    re.DOTALL | re.IGNORECASE,
)
"""The beginning of an XHTML page, and the declarations within its document type, which HTML does not have."""
HEADING = re.compile(r"h[1-6]$")
NOT_SHOWN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
SPACE = re.compile(r"\s+")
AROUND_BREAK = re.compile(r"[^\S\n]*\n[^\S\n]*")
PERMALINK = " ¶§🔗"
"""Characters around a heading that link to it."""


def blocks(page: str) -> tuple[str, list[Block]]:
    """Returns (the text of <title> or "", the headings and the visible text) of a page, without navigation.

    libxml2 repairs broken HTML. If there is a <main> with text, the rest of the page is left out. A page that only
    leads to others, as a table of contents, has no text. Raises Unreadable if elements are nested too deeply.
    """
    root = _parsed(page)
    if root is None:
        return "", []
    title = " ".join((root.findtext("head/title") or "").split())
    remove_navigation(root, _hidden)
    mains = (e for e in root.iter() if e.tag == "main" or e.get("role") == "main")
    filled = (main for main in mains if any(text.strip() for text in main.itertext()))
    return title, _blocks(next(filled, root))


def part(source: str) -> list[Block]:
    """Returns the headings and the visible text of a part of a page."""
    root = _parsed(source)
    return [] if root is None else _blocks(root)


def _parsed(page: str) -> Any:
    # Elements nested deeper than 2,048 would be dropped silently; without `huge_tree`, deeper than 256.
    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    if match := DECLARATIONS.match(page):
        page = match[1] + page[match.end() :]
    try:
        root = etree.fromstring(page.encode(), parser)
    except etree.XMLSyntaxError:
        return None
    if any(entry.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for entry in parser.error_log):
        raise Unreadable("elements are nested too deeply")  # the rest of the page is missing in the tree
    return root


def _blocks(root: Any) -> list[Block]:
    found: list[Block] = []
    pieces: list[str] = []
    heading, preformatted, in_cell = 0, 0, False

    def end(breaks: str) -> None:
        text = "".join(pieces)
        text = text.strip("\n") if preformatted else AROUND_BREAK.sub("\n", text).strip()
        if text.strip():
            found.append((0, text + breaks))
        pieces.clear()

    def add(text: str | None) -> None:
        if not text:
            return
        if preformatted:
            pieces.append(text)
        elif not pieces or not pieces[-1].endswith((" ", "\n")):
            pieces.append(SPACE.sub(" ", text))
        else:
            pieces.append(SPACE.sub(" ", text).lstrip(" "))

    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        tag, start = element.tag, event == "start"
        if element is not root and _hidden(element):
            if start:
                walk.skip_subtree()  # its end event still comes
            else:
                add(element.tail)
            continue
        if tag in CELLS:
            breaks = (e for e in element.iterdescendants() if e.tag in BREAKS)
            in_cell = start and len(list(islice(breaks, 2))) < 2
        if (heading or in_cell) and not HEADING.match(tag) and tag not in CELLS:
            add(" " if tag in PARAGRAPHS or tag in LINES or tag == "br" else None)
        elif HEADING.match(tag):
            if start:
                end("\n\n")
                heading = int(tag[1])
            elif heading:
                if text := SPACE.sub(" ", "".join(pieces)).strip(PERMALINK):
                    found.append((heading, text))
                pieces.clear()
                heading = 0
        elif tag in PARAGRAPHS:
            end("\n" if tag in LISTS else "\n\n")
            if not start and tag in LISTS and element.getparent().tag != "li":
                found.append((0, "\n"))
            preformatted += (tag == "pre") * (1 if start else -1)
        elif tag in LINES:
            end("\n")
        elif tag == "br" and start:
            pieces.append("\n")
        elif tag in CELLS and start and "".join(pieces).strip():
            pieces[:] = ["".join(pieces).rstrip(" "), " | "]
        if start:
            add(element.text)
        elif element is not root:
            add(element.tail)
    end("\n\n")
    return found


def _hidden(element: Any) -> bool:
    return (
        element.tag in HIDDEN
        or element.get("hidden") is not None
        or element.get("aria-hidden") == "true"
        or element.get("role") == "navigation"
        or NOT_SHOWN.search(element.get("style", "")) is not None
    )
