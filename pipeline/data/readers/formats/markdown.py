"""Markdown (CommonMark with tables) as headings and text."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from pipeline.data.readers.formats import Unreadable, html
from pipeline.data.readers.formats.navigation import Letters, count_letters
from pipeline.data.readers.sections import Block

FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
FIRST_KEY = re.compile(r"\s*(?:#.*\n\s*)*[\w-]+[ \t]*:(?:\s|\Z)")
LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
NUMBER = r"-?(?:0|[1-9][0-9]*)"
CONTAINERS = ("blockquote_open", "list_item_open")
NESTING = 100
"""Levels of quotes and lists; a list has two. The parser is recursive, and leaves out what is deeper silently."""
PARSER = MarkdownIt("commonmark", {"maxNesting": NESTING}).enable(["table", "strikethrough"])
# Links and images nested deeper than this stay as text. Each open bracket is tried once per level.
INLINE = MarkdownIt("commonmark", {"maxNesting": 10}).enable("strikethrough")
# The targets of links are not used: skipping them saves a fifth of the parser's time.
for parser in (PARSER, INLINE):
    parser.normalizeLink, parser.validateLink = str, lambda url: True  # type: ignore[method-assign,assignment]


class _JsonScalars(yaml.SafeLoader):
    """YAML 1.2's JSON schema (section 10.2)."""


_JsonScalars.yaml_implicit_resolvers = {}  # not those of YAML 1.1, where `no` is false
for kind, pattern, starts in (
    ("null", r"(?:null|~|)$", ["n", "~", ""]),
    ("bool", r"(?:true|false)$", list("tf")),
    ("int", rf"{NUMBER}$", list("-0123456789")),
    ("float", rf"{NUMBER}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$", list("-0123456789")),
):
    _JsonScalars.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(pattern), starts)


def _inline(state: StateCore) -> None:
    for token in state.tokens:
        if token.type == "inline":
            token.children = []
            INLINE.inline.parse(token.content, INLINE, state.env, token.children)


PARSER.core.ruler.at("inline", _inline)


def blocks(text: str) -> tuple[str, list[Block]]:
    """Returns (title of the front matter or "", the headings and the text).

    Links and images keep their text, code and tables everything, HTML what is visible. A linked image is taken for a
    badge and left out, and a list of links for a table of contents. Headings inside quotes and lists are text. Raises
    Unreadable if quotes, lists or the elements of HTML are nested too deeply.
    """
    front, body = _front(text, yaml.BaseLoader)
    title = front.get("title")
    tokens = PARSER.parse(body)
    if any(token.type in CONTAINERS and token.level >= NESTING - 1 for token in tokens):
        raise Unreadable("quotes and lists are nested too deeply")  # what is in them is missing
    tokens = _without_contents(tokens)
    return " ".join(title.split()) if isinstance(title, str) else "", list(_blocks(tokens))


def metadata(text: str) -> dict[str, Any]:
    """Returns the front matter by key: text, and numbers, true, false and null if they are not in quotes.

    The other types of YAML 1.1 would change the meaning: `no` is a language, 01234 a postcode, 12:30 a time.
    """
    return _front(text, _JsonScalars)[0]


def _front(text: str, loader: type[yaml.SafeLoader | yaml.BaseLoader]) -> tuple[dict[str, Any], str]:
    """Returns (the front matter by key, the text without it); {} if there is none or it cannot be parsed.

    Text between lines of `---` is front matter if it begins with a key.
    """
    match = FRONT_MATTER.match(text)
    if not match or not FIRST_KEY.match(match[1]):
        return {}, text
    try:
        values = yaml.load(match[1], loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        values = None  # perhaps that of a template; it is not indexed either
    items = values.items() if isinstance(values, dict) else ()
    return {key: value for key, value in items if isinstance(key, str)}, text[match.end() :]


def _without_contents(tokens: Sequence[Token]) -> list[Token]:
    """Returns the tokens without lists whose text is nearly all links, and without headings that have only these."""
    kept: list[Token] = []
    place = 0
    while place < len(tokens):
        end = place + 1
        if tokens[place].type in ("bullet_list_open", "ordered_list_open"):
            while tokens[end - 1].level or tokens[end - 1].nesting >= 0:
                end += 1
        if end > place + 1 and _letters(tokens[place:end]).mostly_links():
            ends_section = end == len(tokens) or tokens[end].type == "heading_open"
            if ends_section and kept and kept[-1].type == "heading_close":
                del kept[-3:]  # with its text
        else:
            kept += tokens[place:end]
        place = end
    return kept


def _letters(tokens: Sequence[Token]) -> Letters:
    found, inside = Letters(), 0
    for token in chain.from_iterable(token.children or () for token in tokens):
        inside += (token.type == "link_open") - (token.type == "link_close")
        length = count_letters(token.content)
        found += Letters(length, length if inside else 0, int(token.type == "link_open"))
    return found


def _blocks(tokens: Sequence[Token]) -> Iterator[Block]:
    row: list[str] = []
    for before, token in pairwise([Token("", "", 0), *tokens]):
        if token.type == "inline":
            text = _text(token.children or [])
            if before.type in ("th_open", "td_open"):
                row.append(text)
            elif before.type == "heading_open" and before.level == 0:
                yield int(before.tag[1:]), " ".join(text.split())
            else:
                yield 0, text + ("\n" if before.hidden else "\n\n")
        elif token.type == "tr_close":
            yield 0, " | ".join(row) + "\n"
            row.clear()
        elif token.type in ("table_close", "bullet_list_close", "ordered_list_close"):
            yield 0, "\n"
        elif token.type in ("fence", "code_block"):
            yield 0, token.content + "\n"
        elif token.type == "html_block":
            yield from html.part(token.content)


def _text(tokens: Sequence[Token]) -> str:
    pieces, links = [], 0
    for token in tokens:
        links += (token.type == "link_open") - (token.type == "link_close")
        if token.type in ("text", "code_inline"):
            pieces.append(token.content)
        elif token.type == "softbreak":
            pieces.append(" ")
        elif token.type == "hardbreak" or (token.type == "html_inline" and LINE_BREAK.match(token.content)):
            pieces.append("\n")
        elif token.type == "image" and not links:
            pieces.append(_text(token.children or []))
    return "".join(pieces).strip()
