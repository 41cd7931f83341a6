"""Passages with navigation among those that the recipe `text` reads: `python -m benchmarks.navigation FOLDER`.

FOLDER has HTML pages made by DocBook, whose classes name what is not text: headers and footers of navigation, tables of
contents, indexes. Such as usr/share/doc/postgresql-doc-15/html of the Debian package postgresql-doc-15, or
usr/share/doc/debian-handbook/html/en-US of debian-handbook. A passage has navigation if one of its lines is a line of
these elements on its page. `lost`: words of the other elements that are in no passage of their page, as a share.
Headings count, and so do sections that only refer to other pages. A minute for PostgreSQL's 1,169 pages.
"""

import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from lxml import etree

from flows.recipes.recipe import resolve
from pipeline.data.readers import text
from pipeline.runtime.work import silent

NAVIGATION = {"navheader", "navfooter", "docnav", "toc", "index", "list-of-tables", "list-of-figures"}
BANNERS = {"banner", "title"}
"""Ids, of the Debian handbook."""
HIDDEN = {"head", "script", "style"}
LINES = {
    "br",
    "dd",
    "div",
    "dl",
    "dt",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "li",
    "p",
    "pre",
    "table",
    "td",
    "th",
    "tr",
}
NUMBER = re.compile(r"^\s*[A-Z\d]+(?:\.\d+)*\.?\s+")
LINE = re.compile(r"\n| \| ")
"""Between lines, and between cells, of a passage."""
WORD = re.compile(r"\w+")


class Figures(NamedTuple):
    pages: int
    passages: int
    with_navigation: int
    share: float
    """Of the passages."""
    untitled: int
    """Passages without a title."""
    numbered: int
    """Passages whose title has the number of a section."""
    lost: float
    milliseconds_per_page: float


def main(
    folder: Annotated[Path, typer.Argument(help="HTML pages made by DocBook.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of lines.")] = False,
) -> None:
    """Counts the passages with navigation."""
    figures = measured(folder)
    if as_json:
        print(json.dumps(figures._asdict()))
    else:
        print("\n".join(f"{name.replace('_', ' '):22} {value:,.4g}" for name, value in figures._asdict().items()))


def measured(folder: Path) -> Figures:
    """Reads the pages as the recipe does, without questions, and compares the passages with the pages' elements."""
    config: Any = resolve("text", [f"ingest.path={folder}", "ingest.questions=[]", "ingest.endings=[html]"]).ingest
    start = time.perf_counter()
    passages = [passage for _, passage in text.read(config, silent).passages()]
    seconds = time.perf_counter() - start
    of_page = defaultdict(list)
    for passage in passages:
        of_page[passage.doc_id].append(passage)
    pages = sorted(folder.rglob("*.html"))
    found, lost, words = 0, 0, 0
    for page in pages:
        root = etree.fromstring(page.read_bytes(), etree.HTMLParser(encoding="utf-8"))
        lines: dict[bool, set[str]] = {True: set(), False: set()}
        page_words: Counter[str] = Counter()
        for line, is_navigation in _lines(root):
            lines[is_navigation].add(_plain(line))
            page_words.update(() if is_navigation else _plain(line).split())
        only = lines[True] - lines[False] - {""}
        of = of_page[page.relative_to(folder).as_posix()]
        found += sum(any(_plain(line) in only for line in LINE.split(passage.text)) for passage in of)
        missing = page_words - Counter(w for p in of for w in WORD.findall(f"{p.title} {p.text}"))
        lost, words = lost + missing.total(), words + page_words.total()
    return Figures(
        len(pages),
        len(passages),
        found,
        found / len(passages),
        sum(not passage.title for passage in passages),
        sum(re.search(r"(?:^|: )\d+\.(?:\d+\.?)+\s", passage.title) is not None for passage in passages),
        lost / words,
        1000 * seconds / len(pages),
    )


def _lines(root: Any) -> Iterator[tuple[str, bool]]:
    """Yields (line, whether it is navigation) of a page."""
    pieces: list[str] = []
    depth = 0
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        start = event == "start"
        named = element is not root and (
            not NAVIGATION.isdisjoint(element.get("class", "").split()) or element.get("id") in BANNERS
        )
        if element.tag in LINES or named:
            yield "".join(pieces), depth > 0
            pieces.clear()
        depth += named * (1 if start else -1)
        if element.tag in HIDDEN and start:
            walk.skip_subtree()
        elif element.tag not in HIDDEN:
            pieces.append((element.text if start else element.tail) or "")
    yield "".join(pieces), False


def _plain(line: str) -> str:
    """Returns the line's words without the number of a section."""
    return " ".join(WORD.findall(NUMBER.sub("", line.strip())))


if __name__ == "__main__":
    typer.run(main)
