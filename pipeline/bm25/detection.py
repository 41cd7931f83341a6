"""Detects the language of a collection, from a sample of its passages."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from pipeline.bm25.languages import CODES
from pipeline.data.collection import at_rows, passage_count, sample_rows
from pipeline.data.text.words import count
from pipeline.formatting import counted

CHARACTERS = 1000
"""Characters that are read of a passage: enough for its language."""
SURE = 0.5
"""Smallest share of the words that the collection's language has; texts about software hold much English."""
SHOWN = 0.01
"""Smallest share of a language that the notice names."""
MEMBERS = {"ary": "ar", "arz": "ar", "nb": "no", "nn": "no", "sdh": "ckb", "wuu": "zh", "yue": "zh"}
"""Languages that the library tells apart, and the analyser reads as one."""
NO_LANGUAGE = "zxx"
"""The library's code for text without words, such as numbers."""


class Detected(NamedTuple):
    language: str | None
    """The code for `bm25.language`; None: unsure, or without an analyser."""
    shares: dict[str, float]
    """Share of the words in each language, the largest first."""
    passages: int
    """Size of the sample."""

    @property
    def notice(self) -> str:
        """What was found, in one line."""
        first = [f"{code} {share:.0%}" for code, share in self.shares.items() if share >= SHOWN][:3]
        of = f"{', '.join(first) or 'nothing'} in the words of {counted(self.passages, 'passages')}"
        if self.language:
            return f"language found by auto: {self.language} ({of})"
        best, share = next(iter(self.shares.items()), ("", 0.0))
        without = "neither stems nor stop words"
        if share >= SURE:
            return f"{best}, the language found by auto, has no analyser ({of}): {without}"
        return f"no language found by auto ({of}), none has half of the words: {without}; set bm25.language"


def detect(collection: Path) -> Detected:
    """Returns the language with most words of the sample. Equal collections give equal results."""
    rows = sample_rows(passage_count(collection))
    table = at_rows(collection / "passages.parquet", rows, ["title", "text"]).to_pylist()
    return of_texts([f"{row['title']}\n{row['text']}" for row in table])


def of_texts(texts: list[str]) -> Detected:
    """Returns the language of these texts, each weighted by its number of words."""
    import py3langid

    words: Counter[str] = Counter()
    for text in (text[:CHARACTERS] for text in texts):
        if any(map(str.isalpha, text)):
            code = py3langid.classify(text)[0]
            words[MEMBERS.get(code, code)] += count(text)
    del words[NO_LANGUAGE]
    total = max(1, words.total())
    shares = {code: number / total for code, number in sorted(words.items(), key=lambda item: (-item[1], item[0]))}
    best = next(iter(shares), None)
    sure = best is not None and shares[best] >= SURE and best in CODES
    return Detected(best if sure else None, shares, len(texts))
