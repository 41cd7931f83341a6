"""Whether a passage holds an answer, as DPR counts its top-k hits (Karpukhin et al., 2020, section 5; the rules of
`has_answer` with its tokenizer, which are those of DrQA).

Texts are compared token by token, after Unicode's canonical decomposition (NFD) and in lower case. A token is a run of
letters, numbers and marks, or any one other character that is neither white space nor a control.
"""

import unicodedata
from collections.abc import Iterable

import regex


def normalised(text: str) -> str:
    """Returns a text's tokens, each between spaces: ` the u . s . `; a single space if it has none.

    No token contains a space, so one text's tokens are a consecutive part of another's if and only if this string is.
    """
    tokens = TOKEN.findall(unicodedata.normalize("NFD", text))
    return f" {' '.join(map(str.lower, tokens))} ".replace("  ", " ")


def holds_answer(passage: str, answers: Iterable[str]) -> bool:
    """Whether the passage contains one of the answers; both from `normalised`.

    No passage contains an answer without a token (in DPR's code every passage does).
    """
    return any(answer.strip() and answer in passage for answer in answers)


TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
