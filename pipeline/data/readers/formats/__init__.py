"""Formats of documents. Each has a module with a function from a file's content to its title, headings and text."""

CONVERTED = {"pdf": "PdfConverter", "docx": "DocxConverter", "pptx": "PptxConverter", "epub": "EpubConverter"}
"""{ending: class of markitdown.converters}, of the formats that the extra `documents` reads."""
PAGES = ("html", "htm", "xhtml")
MARKUP = {
    "md": "markdown",
    "markdown": "markdown",
    **dict.fromkeys(PAGES, "html"),
    "rst": "restructured",
    "adoc": "asciidoc",
    "asciidoc": "asciidoc",
}
"""{ending: module}."""


class Unreadable(ValueError):
    """A file that is damaged, encrypted, nested too deeply, or not of its ending's type."""
