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
OF_MARKDOWN = ("markdown-it-py", "pyyaml", "lxml")
OF_OFFICE = ("markitdown", "markdownify", "beautifulsoup4", *OF_MARKDOWN)
LIBRARIES = {
    "html": ("lxml",),
    "markdown": OF_MARKDOWN,
    "restructured": ("docutils", "lxml"),
    "asciidoc": (),
    "pdf": ("markitdown", "pdfminer.six", "pdfplumber"),
    "docx": ("mammoth", *OF_OFFICE),
    "pptx": ("python-pptx", *OF_OFFICE),
    "epub": ("defusedxml", *OF_OFFICE),
}
"""{module, or ending that is converted: distributions whose versions may change a text}."""


class Unreadable(ValueError):
    """A file that is damaged, encrypted, nested too deeply, or not of its ending's type."""
