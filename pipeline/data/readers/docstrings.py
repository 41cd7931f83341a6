"""Docstrings as documents, and their first paragraphs as questions."""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pipeline.data.words import count

QUESTION_WORDS = 4  # at least
QUESTION_CHARACTERS = 200  # at most
NOT_PROSE = ("Args", ":param", ">>>", "->")
SIGNATURE = re.compile(r"[\w.]+\s?\(.*\)\s*$|[\w.]+\(")
UNDERLINE = re.compile(r"\s*([^\w\s])\1{2,}\s*$", re.MULTILINE)
PARAGRAPH_END = re.compile(r"\n\s*\n")

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Document(NamedTuple):
    """`name` is the qualified name, made unique; `question` is None where the first paragraph is none."""

    name: str
    title: str
    file: str
    text: str
    question: str | None


def docstrings(source: bytes, module: str) -> Iterator[tuple[str, str]]:
    """(qualified name, cleaned docstring) of a module and of all that it defines, in the order of the lines.

    Raises SyntaxError or ValueError for what is not Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like are not this reader's business
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
    """(question, remaining text) where the first paragraph is prose and enough remains; else None."""
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


def documents(found: Iterable[tuple[str, str, str]], remaining_words: int) -> list[Document]:
    """Documents from (file, qualified name, docstring), in order.

    Of equal bodies the first is kept: of docstrings, and of what remains once the question is taken out. A first
    paragraph that stands in two docstrings is no question. A name that returns gets `~2`, `~3`, ...
    """
    unique: dict[str, tuple[str, str]] = {}
    for file, name, text in found:
        unique.setdefault(text, (file, name))
    split = {text: question_of(text, remaining_words) for text in unique}
    asked = Counter(_normal(parts[0]) for parts in split.values() if parts)

    kept: dict[str, Document] = {}
    names: Counter[str] = Counter()
    for text, (file, name) in unique.items():
        parts = split[text]
        question, body = parts if parts and asked[_normal(parts[0])] == 1 else (None, text)
        key = _normal(body)
        if key not in kept:
            names[name] += 1
            unique_name = name if names[name] == 1 else f"{name}~{names[name]}"
            kept[key] = Document(unique_name, name, file, body, question)
    return list(kept.values())


def _normal(text: str) -> str:
    return " ".join(text.lower().split())
