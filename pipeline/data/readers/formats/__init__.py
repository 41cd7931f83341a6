"""Formats of documents. Each has a module with a function from a file's content to its title, headings and text."""

CONVERTED = ("pdf", "docx", "pptx", "epub")
"""Endings of the formats that the extra `documents` reads."""
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
