"""When two texts have the same words."""

import unicodedata
from functools import partial


def same_words(text: str) -> str:
    """Returns equal strings for texts with the same words, ignoring case, white space, Unicode form and full width.

    The text is normalised twice, because case folding can give text that is not normalised.
    """
    folded = text.casefold() if text.isascii() else _normal(_normal(text).casefold())
    return " ".join(folded.split())


_normal = partial(unicodedata.normalize, "NFKC")
