"""The characters of a page whose encoding is declared in it."""

import codecs
import re

from pipeline.data.text.text_files import MARKS

BEGINNING = 4096
"""Bytes that are searched for a declaration. HTML's standard allows it in the first 1,024; a title may come first."""
DECLARED = re.compile(
    rb"""<\?xml[^>]*?\bencoding\s*=\s*["']([\w.:-]+)|<meta\b[^>]*?\bcharset\s*=\s*["']?\s*([\w.:-]+)""",
    re.IGNORECASE,
)
# The encodings of the Web, by WHATWG's standard, as Python names them. Python's other codecs are none of pages.
SAME = (
    *("utf-8", "gb18030", "big5", "big5hkscs", "euc_jp", "iso2022_jp", "cp932", "cp949", "koi8-r", "koi8-u", "cp866"),
    *("mac-roman", "mac-cyrillic", "cp874", *(f"cp125{i}" for i in range(9))),
    *(f"iso8859-{i}" for i in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
)
# What browsers read under these names. A page that declares UTF-16 in ASCII is not in UTF-16.
READ_AS = {**{name: name for name in SAME},
           "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
           "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949",
           "utf-16": "utf-8", "utf-16-le": "utf-8", "utf-16-be": "utf-8"}  # fmt: skip
# Labels that Python does not know.
LABELS = {"windows-874": "cp874", "dos-874": "cp874", "windows-949": "cp949", "windows-31j": "cp932",
          "x-sjis": "cp932", "x-euc-jp": "euc_jp", "x-gbk": "gbk", "gb_2312-80": "gb2312", "cn-big5": "big5",
          "x-x-big5": "big5", "iso-8859-8-i": "iso8859-8", "x-mac-roman": "mac-roman",
          "x-mac-cyrillic": "mac-cyrillic", "x-mac-ukrainian": "mac-cyrillic"}  # fmt: skip


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
    """Returns the declared encoding, as Python names it; empty without one, and for one that is not of the Web."""
    found = DECLARED.search(page[:BEGINNING])
    if not found:
        return ""
    label = (found[1] or found[2]).decode().lower()
    try:
        return READ_AS.get(codecs.lookup(LABELS.get(label, label)).name, "")
    except LookupError:
        return ""
