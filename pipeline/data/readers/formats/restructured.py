"""reStructuredText as headings and text, parsed by docutils; also the sources of Sphinx's documentation."""

import re
from typing import Any

from docutils import nodes
from docutils.core import publish_string
from docutils.parsers.rst import Directive, directives, roles
from docutils.parsers.rst.languages import en

from pipeline.data.readers.formats import Unreadable, html
from pipeline.data.readers.sections import Block

DIRECTIVE = re.compile(r"^[^\S\n]*\.\. ([\w:.+-]+)::", re.MULTILINE)
ROLE = re.compile(r":([\w:.+-]{1,100}):`")
TARGET = re.compile(r"\s*(?<!^)<[^<>]*>$")
CODE = {"code", "code-block", "sourcecode"}
OTHER_IN_SPHINX = {"class"}
PROSE = {"deprecated", "seealso", "versionadded", "versionchanged", "versionremoved"}
NOT_TEXT = {
    "codeauthor", "currentmodule", "default-domain", "highlight", "include", "index", "literalinclude", "module",
    "py:currentmodule", "py:module", "sectionauthor", "tabularcolumns", "toctree",
}  # fmt: skip
SETTINGS = {
    "file_insertion_enabled": False,  # a text names files of its author
    "raw_enabled": False,
    "report_level": 5,  # a fault of the text is no text
    "halt_level": 5,
    "stylesheet_path": None,
    "embed_stylesheet": False,
    "math_output": "LaTeX",
    "syntax_highlight": "none",
    "_disable_config": True,
}


class _AnyOption(dict[str, Any]):
    """Options that a directive may have: all."""

    def __missing__(self, name: str) -> Any:
        return directives.unchanged


class _Contents(Directive):
    """A directive of Sphinx: its arguments and its content are text."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec = _AnyOption({"class": directives.unchanged})

    def run(self) -> list[nodes.Node]:
        found = nodes.container()
        if self.arguments and self.name in PROSE:
            found += nodes.paragraph("", "", *self.state.inline_text(self.arguments[0], self.lineno)[0])
        elif self.arguments:  # a signature, where `*args` is no emphasis
            found += nodes.paragraph("", self.arguments[0])
        self.state.nested_parse(self.content, self.content_offset, found)
        return [found]


class _Code(_Contents):
    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        return [nodes.literal_block(code, code)]


class _Nothing(_Contents):
    def run(self) -> list[nodes.Node]:
        return []


def _text_role(
    name: str, source: str, text: str, line: int, inliner: Any, options: Any = None, content: Any = None
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """A role of Sphinx: `Title <target>` is its title, `~package.name` and `!name` are names."""
    shown = TARGET.sub("", nodes.unescape(text)).lstrip("~!")
    return [nodes.inline(source, shown)], []


def blocks(text: str) -> tuple[str, list[Block]]:
    """Returns (the document's title or "", the headings and the text). Faulty markup is text.

    Raises Unreadable for text that docutils cannot parse, such as lists that are nested too deeply for its recursion.
    """
    _register(text)
    try:
        page = publish_string(text, writer="html5", settings_overrides={**SETTINGS, "output_encoding": "unicode"})
    except Exception as error:  # directives have faults of their own
        raise Unreadable(f"{type(error).__name__}: {error}") from error
    return "", html.blocks(str(page))[1]


def _register(text: str) -> None:
    """Gives docutils the directives and roles of the text that it does not know; it would drop their content."""
    for name in {name.lower() for name in DIRECTIVE.findall(text)}:
        if name in CODE:  # those of Sphinx have more options
            directives.register_directive(name, _Code)
        elif name in NOT_TEXT | OTHER_IN_SPHINX or name not in en.directives:
            directives.register_directive(name, _Nothing if name in NOT_TEXT else _Contents)
    for name in {name.lower() for name in ROLE.findall(text)} - en.roles.keys():
        roles.register_local_role(name, _text_role)
