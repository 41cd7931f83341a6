"""Removes navigation, tables of contents and indexes from a page's tree, so that its own text is left."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from lxml import etree

# Containers that can be navigation as a whole. Cells, items and headings belong to their container.
CONTAINERS = {
    "aside", "center", "div", "dl", "footer", "form", "header", "menu", "ol", "p", "section", "small", "table", "ul",
}  # fmt: skip
HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
ROLES = {"contentinfo", "directory", "doc-index", "doc-toc", "menu", "menubar", "navigation", "search", "toolbar"}
NAME = re.compile(
    r"(?:doc|site|page|top|bottom|main|global|local|mobile|sphinx)?-?"
    r"(?:nav|navbar|navigation|navheader|navfooter|navlinks?|menu|menubar|breadcrumbs?|pagination|pager|prev-?next"
    r"|toc|toctree-wrapper|table-?of-?contents|list-of-(?:tables|figures|examples)|index|footer|lang(?:uage)?s?-?list"
    r"|cookie-?(?:banner|consent|notice))"
    r"(?:-(?:bar|menu|list|container|wrapper|links|top|bottom|header|footer))?",
    re.IGNORECASE,
)
"""A word of `class` or `id` that generators of documentation, blogs and wikis give to navigation."""
LINKED_SHARE = 0.8
"""Of a container's letters, from which its text is only links."""
PROSE = 60
"""Letters outside links for each link, above which a container is text, whatever its name is."""
SIGNS = re.compile(r"[\W_]+")


class Letters(NamedTuple):
    """Letters and digits of an element, headings left out; those within links; number of links."""

    total: int = 0
    linked: int = 0
    links: int = 0

    def __add__(self, other: Any) -> "Letters":
        return Letters(self.total + other.total, self.linked + other.linked, self.links + other.links)

    def __sub__(self, other: "Letters") -> "Letters":
        return Letters(self.total - other.total, self.linked - other.linked, self.links - other.links)

    def unlinked(self) -> int:
        return self.total - self.linked

    def mostly_links(self) -> bool:
        return self.links > 1 and self.linked >= LINKED_SHARE * self.total


def remove_navigation(root: Any, hidden: Callable[[Any], bool]) -> None:
    """Removes what leads elsewhere: elements named so, and containers whose text is nearly all links.

    Inner containers are removed first, so that text next to a table of contents stays; a container of which only
    headings are left goes too. An element with a name of navigation stays if it holds most of the page's text outside
    links. `hidden`: whether an element is not shown.
    """
    letters = _letters(root, hidden)
    most = letters[root].unlinked() / 2
    removed: dict[Any, Letters] = {}
    for element, found in letters.items():  # children before their parents
        gone = removed.get(element, Letters())
        rest = found - gone
        if element is not root and element.tag in CONTAINERS:
            of_links = _is_links(element, rest) or (gone.links > 0 and rest.total == 0)
            if of_links or (_named(element) and not _is_text(found, most)):
                removed[element.getparent()] = removed.get(element.getparent(), Letters()) + found
                _remove(element)
                continue
        if gone.total and element is not root:
            removed[element.getparent()] = removed.get(element.getparent(), Letters()) + gone


def _letters(root: Any, hidden: Callable[[Any], bool]) -> dict[Any, Letters]:
    """Returns the letters of each shown element, children before their parents."""
    found: dict[Any, Letters] = {}
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        if element is not root and hidden(element):
            if event == "start":
                walk.skip_subtree()
            continue
        if event == "start":
            continue
        total = sum((found[child] for child in element if child in found), Letters())
        own = count_letters(element.text) + sum(count_letters(child.tail) for child in element)
        if element.tag == "a" and element.get("href") is not None:
            length = total.total + own
            found[element] = Letters(length, length, 1)
        elif element.tag in HEADINGS:
            found[element] = Letters()
        else:
            found[element] = total + Letters(own)
    return found


def count_letters(text: str | None) -> int:
    """Returns the number of letters and digits."""
    return len(SIGNS.sub("", text)) if text else 0


def _is_links(element: Any, letters: Letters) -> bool:
    only = letters.links > 0 and letters.unlinked() == 0 and element.tag != "p"
    return (only or letters.mostly_links()) and element.find(".//pre") is None  # code may link each of its names


def _named(element: Any) -> bool:
    names = f"{element.get('class', '')} {element.get('id', '')}".split()
    return any(map(NAME.fullmatch, names)) or not ROLES.isdisjoint(element.get("role", "").split())


def _is_text(letters: Letters, most: float) -> bool:
    return letters.unlinked() > max(most, PROSE * letters.links)


def _remove(element: Any) -> None:
    parent, before, tail = element.getparent(), element.getprevious(), element.tail or ""
    parent.remove(element)
    if before is None:
        parent.text = f"{parent.text or ''}\n{tail}"
    else:
        before.tail = f"{before.tail or ''}\n{tail}"
