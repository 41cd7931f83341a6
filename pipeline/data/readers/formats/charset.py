"""The characters of a page whose encoding is declared in it."""

import codecs
import re

from pipeline.data.text.text_files import MARKS

BEGINNING = 4096
"""Bytes that are searched for a declaration. HTML asks for it within the first 1,024; titles may come before."""
DECLARED = re.compile(
    rb"""<\?xml[^>]*?\bencoding\s*=\s*["']([\w.:-]+)|<meta\b[^>]*?\bcharset\s*=\s*["']?\s*([\w.:-]+)""",
    re.IGNORECASE,
)
# What browsers read under these names: WHATWG's standard of encodings.
READ_AS = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932",
           "euc_kr": "cp949", "iso8859-9": "cp1254", "tis-620": "cp874", "utf-16": "utf-8", "utf-16-le": "utf-8",
           "utf-16-be": "utf-8"}  # fmt: skip
# A page without a byte order mark that declares UTF-16 in ASCII is not in UTF-16.


def decode(page: bytes) -> str:
    """Returns the text of a page: in the encoding of its byte order mark, or in UTF-8, or as its beginning declares.

    Pages that say otherwise are often in UTF-8; bytes of other encodings are nearly never valid UTF-8. Only pages of
    ASCII bytes follow their declaration first (ISO-2022-JP). Raises UnicodeDecodeError for other pages.
    """
    mark, encoding = next(((m, name) for m, name in MARKS.items() if page.startswith(m)), (b"", ""))
    if encoding:
        return page.decode(encoding) if encoding != "utf-8" else page[len(mark) :].decode()
    declared = _declared(page)
    if page.isascii() and declared:
        return page.decode(declared)
    try:
        return page.decode()
    except UnicodeDecodeError:
        if not declared:
            raise
        return page.decode(declared)


def _declared(page: bytes) -> str:
    """Returns the name of the declared encoding, as Python knows it; empty without one."""
    found = DECLARED.search(page[:BEGINNING])
    if not found:
        return ""
    try:
        name = codecs.lookup((found[1] or found[2]).decode()).name
        "".encode(name)  # codecs such as `hex` are no encodings of text
    except LookupError:
        return ""
    return READ_AS.get(name, name)
