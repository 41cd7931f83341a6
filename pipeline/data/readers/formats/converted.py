"""PDF, Word, PowerPoint and EPUB, converted to text and Markdown by the library markitdown.

Only the converters are used: the library's guess of a file's type, its plugins and its network access are not.
"""

import io
import logging
import re
import sys
import warnings
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from pipeline.data.readers.formats import CONVERTED, Unreadable
from pipeline.data.readers.sections import Block
from pipeline.data.text.text_files import CHUNK

HYPHEN = re.compile(r"(?<=[^\W\d_])-\n(?=[^\W\d_])")


def installed() -> bool:
    """Returns whether the libraries of the extra `documents` are there."""
    return all(map(find_spec, ("markitdown", "mammoth", "pdfminer", "pdfplumber", "pptx")))


def exceeds(content: bytes, largest: int) -> bool:
    """Returns whether a Word, PowerPoint or EPUB file unpacks to more than `largest` bytes, all its parts together.

    Its parts are decompressed piece by piece: the sizes in the archive's directory may be wrong. Raises Unreadable for
    another kind of file, and for compressions that these formats do not have.
    """
    total = 0
    try:
        archive = ZipFile(io.BytesIO(content))
    except Exception as error:  # zipfile does not say which
        raise Unreadable(f"{type(error).__name__}: {error}") from error
    for part in archive.infolist():
        if part.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise Unreadable(f"{part.filename}: unknown compression")  # others can grow by more in one piece
        part.file_size = sys.maxsize  # the part ends where its data ends
        with suppress(Exception), archive.open(part) as stream:  # perhaps its text is not needed: `blocks` decides
            while total <= largest and (piece := stream.read(CHUNK)):
                total += len(piece)
    return total > largest


def blocks(content: bytes, ending: str) -> tuple[str, list[Block]]:
    """Returns (the document's title or "", its headings and text).

    A PDF has no headings; its pages are text. Without a text layer (a scan) there is no text. Raises Unreadable.
    """
    from markitdown import StreamInfo

    from pipeline.data.readers.formats import markdown

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = _converter(ending).convert(io.BytesIO(content), StreamInfo(extension=f".{ending}"))
        except Exception as error:  # each library under it has its own kinds
            raise Unreadable(f"{type(error).__name__}: {error}") from error
    title = " ".join((found.title or "").split())
    if ending == "pdf":
        return title, [(0, HYPHEN.sub("", found.markdown).replace("\f", "\n\n"))]
    # An EPUB's first paragraph has its metadata. A slide's lines are its paragraphs, not those of one.
    text = found.markdown.partition("\n\n")[2] if ending == "epub" else found.markdown
    return title, markdown.blocks(text.replace("\n", "  \n") if ending == "pptx" else text)[1]


@cache
def _converter(ending: str) -> Any:
    from markitdown import converters

    logging.getLogger("pdfminer").setLevel(logging.ERROR)  # it warns of each odd font
    return getattr(converters, CONVERTED[ending])()
