"""Docstrings as documents, and their first paragraphs as questions."""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pipeline.data.text.words import count

QUESTION_WORDS = 4  # at least
QUESTION_CHARACTERS = 200  # at most
NOT_PROSE = ("Args", ":param", ">>>", "->")
SIGNATURE = re.compile(r"[\w.]+\s?\(.*\)\s*$|[\w.]+\(")
UNDERLINE = re.compile(r"\s*([^\w\s])\1{2,}\s*$", re.MULTILINE)
PARAGRAPH_END = re.compile(r"\n\s*\n")

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Docstring(NamedTuple):
    """`name`: the qualified name, made unique by a suffix. `question` None: the first paragraph is not a question."""

    name: str
    title: str
    file: str
    text: str
    question: str | None


def docstrings(source: bytes, module: str) -> Iterator[tuple[str, str]]:
    """Yields (qualified name, cleaned docstring) of a module and of all its definitions, in line order.

    Raises SyntaxError or ValueError for source that is not Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as those of invalid escapes
        tree = ast.parse(source)
    for name, node in _definitions(tree, module):
        if text := ast.get_docstring(node):
            yield name, text


def _definitions(node: ast.AST, name: str) -> Iterator[tuple[str, Definition]]:
    if isinstance(node, Definition):
        yield name, node
    for block in ("body", "handlers", "orelse", "finalbody"):
        children = getattr(node, block, None)
        for child in children if isinstance(children, list) else ():
            named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _definitions(child, f"{name}.{child.name}" if named else name)


def question_of(text: str, remaining_words: int) -> tuple[str, str] | None:
    """Returns (question, remaining text) if the first paragraph is prose and enough text remains, otherwise None."""
    end = PARAGRAPH_END.search(text)
    if not end:
        return None
    paragraph, rest = text[: end.start()], text[end.end() :].rstrip()
    question = " ".join(paragraph.split())
    prose = (
        question[:1].isalpha()
        and count(question) >= QUESTION_WORDS
        and len(question) <= QUESTION_CHARACTERS
        and not any(mark in question for mark in NOT_PROSE)
        and not SIGNATURE.match(question)
        and not UNDERLINE.search(paragraph)
    )
    return (question, rest) if prose and count(rest) >= remaining_words else None


def documents(found: Iterable[tuple[str, str, str]], remaining_words: int) -> list[Docstring]:
    """Returns documents from (file, qualified name, docstring), in order.

    Of equal docstrings, and of equal texts without the question, the first is kept. A first paragraph that occurs in
    two docstrings is not used as a question. A repeated name gets `~2`, `~3`, ...
    """
    unique: dict[str, tuple[str, str]] = {}
    for file, name, text in found:
        unique.setdefault(text, (file, name))
    split = {text: question_of(text, remaining_words) for text in unique}
    occurrences = Counter(_normal(parts[0]) for parts in split.values() if parts)

    by_body: dict[str, Docstring] = {}
    names: Counter[str] = Counter()
    for text, (file, name) in unique.items():
        parts = split[text]
        question, body = parts if parts and occurrences[_normal(parts[0])] == 1 else (None, text)
        key = _normal(body)
        if key not in by_body:
            names[name] += 1
            unique_name = name if names[name] == 1 else f"{name}~{names[name]}"
            by_body[key] = Docstring(unique_name, name, file, body, question)
    return list(by_body.values())


def _normal(text: str) -> str:
    return " ".join(text.lower().split())
