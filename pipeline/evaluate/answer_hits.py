"""Whether a passage holds an answer, as DPR counts its top-k hits (Karpukhin et al., 2020, section 5; the rules of
`has_answer` with its tokenizer, which are those of DrQA).

Texts are compared token by token, after Unicode's canonical decomposition (NFD) and in lower case. A token is a run of
letters, numbers and marks, or any one other character that is neither white space nor a control.
"""

import unicodedata
from collections.abc import Iterable

import regex

TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def normalised(text: str) -> str:
    """The tokens of a text, each between spaces: ` the u . s . `; a single space where it has none.

    No token holds a space, so that one text's tokens stand in a row in another's if and only if this string does.
    """
    tokens = TOKEN.findall(unicodedata.normalize("NFD", text))
    return f" {' '.join(map(str.lower, tokens))} ".replace("  ", " ")


def holds_answer(passage: str, answers: Iterable[str]) -> bool:
    """Whether one of the answers stands in the passage; both as `normalised` writes them.

    An answer without a token stands nowhere (in DPR's code: everywhere).
    """
    return any(answer.strip() and answer in passage for answer in answers)
