"""Words of a text, also in scripts without spaces: the one measure of the length of texts.

A word is the text between spaces. In a script without spaces, a few characters count as one word, so that a passage of
80 words holds about as much text as in English. Runs of more than `LONGEST` other characters, such as a DNA sequence,
base64 or a long URL, are split in the same way.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import cycle, pairwise, repeat
from unicodedata import category

LONGEST = 300
"""Most characters of a run without spaces that is one word; nearly all URLs in prose are shorter."""
PIECE = 5
"""Characters per word in a longer run, and in alphabets without spaces. English has 4 to 5 per word."""
DENSE_PIECES = (2, 1)
"""Characters per word of Han, kana, Bopomofo and Yi, alternating: 1.5 on average."""

DENSE = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua48f\uf900-\ufaff\uff66-\uff9f"
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b2ff\U00020000-\U000323af"
)
"""Characters that are words, or almost words."""
ALPHABETS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ede\u0edf\u0f00\u0f40-\u0fbc\u1000-\u103f\u1050-\u109f\u1780-\u17d3\u17dc\u17dd"
    "\u1950-\u1974\u1980-\u19c9\u1a20-\u1a7c\u1b05-\u1b4c\ua980-\ua9c0\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f\uaa80-\uaadf"
)
"""Thai, Lao, Tibetan, Myanmar, Khmer, Tai Le, New Tai Lue, Tai Tham, Balinese, Javanese, Tai Viet."""
ENDS = (
    "。｡！？។៕။།༎"
    "\u0964\u0965\u06d4\u061f\u061e\u1362\u1367\u1368\u0589\u166e\u0df4\u0700\u0701\u0702\u1803\u1809"
    "\u1c7e\u1c7f\uabeb\ua9c9\u1b5e\u1b5f\u1aa8\u1aa9\u1aaa\u1aab\uaa5d\uaa5e\uaa5f\ua4ff"
)
"""Signs that end sentences in these scripts, in full width, and in those of India, Arabic, Ethiopic, Armenian and other
scripts with own signs; no space needs to follow."""
CLOSING = "\"'”’)]」』】》〉）］｣»"
"""Signs that may follow the end of a sentence and belong to it."""
OPENING = "「『【《〈（［｢“‘(["
UNSPACED_END = rf"(?:[{ENDS}]|(?<!\d)\uff0e(?!\d))[{re.escape(CLOSING + ENDS)}.!?\uff0e]*"
"""Regular expression for the end of a sentence by such a sign; a full-width full stop next to a digit is none."""
JOINING = "เแโใไເແໂໃໄ" + "\u1039\u17d2\u1a60\u1b44\ua9c0"
"""Vowels written before their consonant, and signs that place the next letter below the previous one."""

RUN = re.compile(r"\S+")
UNSPACED = re.compile(f"[{DENSE}{ALPHABETS}]")
ENDED = re.compile(UNSPACED_END + r"\Z")
IN_ALPHABET = re.compile(f"[{ALPHABETS}]")
KINDS = re.compile(f"(?P<dense>[{DENSE}]+)|(?P<alphabet>[{ALPHABETS}]+)|[^{DENSE}{ALPHABETS}]+")


def spans(text: str) -> list[tuple[int, int]]:
    """Returns (start, end) of each word, in order; between two words there is white space or nothing."""
    runs = [match.span() for match in RUN.finditer(text)]
    if not _has_unspaced(text) and all(end - start <= LONGEST for start, end in runs):
        return runs
    return [word for start, end in runs for word in pairwise([*_starts(text, start, end), end])]


def count(text: str) -> int:
    """Returns the number of words."""
    words = text.split()
    if not _has_unspaced(text) and max(map(len, words), default=0) <= LONGEST:
        return len(words)
    return len(spans(text))


def blank(text: str) -> bool:
    """Returns whether nothing is visible: the text has only white space, control and format characters (U+200B)."""
    return all(c.isspace() or category(c) in ("Cc", "Cf") for c in text)


def run_share(text: str) -> float:
    """Returns the share of characters, without white space, in alphabets that write no spaces between words."""
    if text.isascii():
        return 0.0
    return len(IN_ALPHABET.findall(text)) / max(1, sum(map(len, text.split())))


def ends_sentence(text: str, start: int, end: int) -> bool:
    """Returns whether the word `text[start:end]` ends a sentence with one of `ENDS`, or in Thai with a space."""
    if ENDED.search(text, start, end):
        return True
    return text[end : end + 1].isspace() and IN_ALPHABET.match(text, end - 1) is not None


def _has_unspaced(text: str) -> bool:
    return not text.isascii() and UNSPACED.search(text) is not None


def _starts(text: str, start: int, end: int) -> Iterator[int]:
    """Yields the starts of the words of `text[start:end]`, which holds no space.

    Signs belong to the word before them, opening signs to the word after them.
    """
    yield start
    opened = None
    for match in KINDS.finditer(text, start, end):
        at = match.start()
        if match.lastgroup is None:
            while at < match.end() and not text[at].isalnum() and text[at] not in OPENING:
                at += 1
            if not any(c.isalnum() for c in text[at : match.end()]) and match.end() - at <= LONGEST:
                opened = at if at < match.end() and opened is None else opened
                continue
        first = at if opened is None else opened
        if first > start:
            yield first
        opened = None
        if match["dense"]:
            yield from _inside(text, at, match.end(), cycle(DENSE_PIECES))
        elif match["alphabet"] or match.end() - at > LONGEST:
            yield from _inside(text, at, match.end(), repeat(PIECE))


def _inside(text: str, start: int, end: int, sizes: Iterable[int]) -> Iterator[int]:
    """Yields the starts of pieces of these sizes after the first; none begins with a mark of the letter before it."""
    at = start
    for size in sizes:
        at += size
        while at < end and (category(text[at])[0] == "M" or text[at - 1] in JOINING):
            at += 1
        if at >= end:
            return
        yield at
