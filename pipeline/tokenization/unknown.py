"""What of a collection's text a tokenizer does not know, by a sample of its passages."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.data.collection import at_rows, passage_count, sample
from pipeline.notices import EXAMPLES

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Unknown:
    passages: int
    """In the sample."""
    characters: int
    """Of their titles and texts, without white space, that became [UNK]."""
    share: float
    """Of all their characters without white space."""
    words: list[str]
    """The first unknown words."""


def unknown(tokenizer: "Tokenizer", unk: int, collection: Path) -> Unknown:
    """Counts characters, because one token [UNK] may stand for a word of any length."""
    rows = sample(passage_count(collection))
    columns = at_rows(collection / "passages.parquet", rows, ["title", "text"]).to_pydict()
    texts = [*columns["title"], *columns["text"]]
    total = lost = 0
    words: dict[str, None] = {}
    for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True):
        total += _length(text)
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token == unk:
                lost += _length(text[start:end])
                words[text[start:end]] = None
    return Unknown(len(rows), lost, lost / max(1, total), [*islice(words, EXAMPLES)])


def _length(text: str) -> int:
    return sum(map(len, text.split()))
