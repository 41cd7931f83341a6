"""AsciiDoc as headings and text, line by line: there is no maintained parser of it in Python."""

import re

from pipeline.data.readers.sections import Block

SPAN = 1000
"""Longest markup within a line, in characters; longer ones stay as text. Without a limit, time is quadratic."""
HEADING = re.compile(r"(={1,6}|#{1,6}) +(\S.*)")
UNDERLINES = "=-~^+"
"""Below a title of two lines, by level; about as long as it."""
ATTRIBUTE = re.compile(r":!?[\w-]+!?:(?: |$)")
DELIMITER = re.compile(r"(-{4,}|\.{4,}|={4,}|_{4,}|\*{4,}|\+{4,}|--|```\w*)$")
VERBATIM = ("-", ".", "+", "`")
COMMENT = re.compile(r"/{4,}$")
TABLE = re.compile(r"[|,:!]={3,}$")
BLOCK_ATTRIBUTES = re.compile(r"\[[^\]]*\]$")
BLOCK_MACRO = re.compile(r"(?:include|image|toc|video|audio|ifdef|ifndef|ifeval|endif)::")
MACRO = re.compile(
    r"\b(?:link|xref|mailto|kbd|btn|menu|image|footnote|https?):"
    rf"[^\s\[\]]{{0,{SPAN}}}\[([^\]]{{0,{SPAN}}})\]"
)
REFERENCE = re.compile(r"<<[^<>,]*(?:,([^<>]*))?>>")
ANCHOR = re.compile(r"\[{2,3}[^\[\]]*\]{2,3}")
EMPHASIS = re.compile(rf"(?<!\w)([*_`#+]{{1,2}})(\S(?:.{{0,{SPAN}}}?\S)?)\1(?!\w)")
CELL = re.compile(r"(?<!\S)[\d.+*]{0,20}[<^>.]{0,4}[adehlmsv]?\|")


def blocks(text: str) -> tuple[str, list[Block]]:
    """Returns ("", the headings and the text). Code is unchanged; attributes and comments are left out."""
    found: list[Block] = []
    fence = ""  # the delimiter that ends the code or the comment
    in_table = False
    lines = ["", *text.splitlines(), ""]
    for above, line, below in zip(lines[:-2], lines[1:-1], lines[2:], strict=True):
        stripped = line.rstrip()
        if fence:
            if stripped == fence:
                fence = ""
                found.append((0, "\n"))
            elif not COMMENT.match(fence):
                found.append((0, f"{line}\n"))
        elif COMMENT.match(stripped):
            fence = stripped
        elif not above.strip() and (level := _underlined(stripped, below.rstrip())):
            found.append((level, _inline(stripped)))
        elif _underlined(above.rstrip(), stripped) and found and found[-1][0]:
            continue
        elif TABLE.match(stripped):
            in_table = not in_table
            found.append((0, "\n"))
        elif DELIMITER.match(stripped):
            if stripped.startswith(VERBATIM) and stripped != "--":
                fence = "```" if stripped.startswith("`") else stripped
            found.append((0, "\n"))
        elif (match := HEADING.match(stripped)) and not in_table:
            found.append((len(match[1]), _inline(_heading(*match.groups()))))
        elif not _is_markup(stripped):
            found.append((0, f"{_row(stripped) if in_table else _inline(stripped)}\n"))
    return "", found


def _underlined(line: str, below: str) -> int:
    """Returns the level of a title by the line below it; 0 if it is none."""
    length = len(below)
    if length < 2 or below[0] not in UNDERLINES or below != below[0] * length or not any(c.isalnum() for c in line):
        return 0
    return UNDERLINES.index(below[0]) + 1 if abs(length - len(line)) <= 2 else 0


def _heading(mark: str, text: str) -> str:
    """Returns the text without the mark, which may follow it once more: `== Title ==`."""
    return text[: -len(mark)].rstrip(" ") if text.endswith(f" {mark}") else text


def _is_markup(line: str) -> bool:
    return bool(
        ATTRIBUTE.match(line)
        or BLOCK_ATTRIBUTES.match(line)
        or BLOCK_MACRO.match(line)
        or (line.startswith("//") and not line.startswith("///"))
        or line == "+"
    )


def _inline(line: str) -> str:
    shown = REFERENCE.sub(lambda match: (match[1] or "").lstrip(), ANCHOR.sub("", line))
    shown = MACRO.sub(lambda match: match[1], shown)
    return EMPHASIS.sub(r"\2", shown)


def _row(line: str) -> str:
    return " | ".join(_inline(cell).strip() for cell in CELL.split(line) if cell.strip())
