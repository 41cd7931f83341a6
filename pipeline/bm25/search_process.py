"""Answers a Searcher in Java: `python -m pipeline.bm25.search_process JOB`, started by pipeline.bm25.searcher alone.

JOB is JSON. Questions come as JSON lines on stdin until it ends, answers go as JSON lines to what was stdout.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.bm25.index_process import cleaned, in_java
from pipeline.bm25.lucene import Lucene, opened
from pipeline.data.stored import AGAIN
from pipeline.errors import InputError
from pipeline.runtime.processes import Say


class Numbered(NamedTuple):
    """An open index whose passages go by Lucene's own numbers.

    Only `hits` may be called from several threads (see `Lucene`).
    """

    query: Callable[[str, Any], Any]
    """(text, filter or None) -> a Query for the passages that hold one of its words and pass the filter."""
    hits: Callable[[Any, int], tuple[list[int], list[float]]]
    """(query, k) -> numbers and scores, best first: ten times as quick as with ids."""
    ids: Callable[[Sequence[int]], list[str]]
    """Passage ids of numbers, in their order."""
    filter_of: Callable[[Sequence[str]], Any]
    """Passage ids -> a Query for these passages."""


def readable(autoclass: Any, job: Mapping[str, Any]) -> Lucene:
    """The index. Raises InputError where Lucene cannot read it."""
    from jnius import JavaException

    try:
        return opened(autoclass, Path(job["index"]), job)
    except JavaException as error:
        said = str(error).partition("\n")[0]
        raise InputError(f"{job['index']}: damaged: Lucene cannot read it ({said}); {AGAIN}") from error


def numbered(autoclass: Any, lucene: Lucene) -> Numbered:
    as_json = hits_writer(autoclass)
    ArrayList = autoclass("java.util.ArrayList")
    BytesRef = autoclass("org.apache.lucene.util.BytesRef")
    TermInSetQuery = autoclass("org.apache.lucene.search.TermInSetQuery")
    Builder = autoclass("org.apache.lucene.search.BooleanQuery$Builder")
    Occur = autoclass("org.apache.lucene.search.BooleanClause$Occur")
    MultiDocValues = autoclass("org.apache.lucene.index.MultiDocValues")

    def query(text: str, within: Any) -> Any:
        words = lucene.query(text)
        if within is None:
            return words
        # a FILTER scores nothing, and leaves the index's statistics as they are
        return Builder().add(words, Occur.MUST).add(within, Occur.FILTER).build()

    def hits(query: Any, k: int) -> tuple[list[int], list[float]]:
        found = json.loads(as_json(lucene.searcher.search(query, k)))["scoreDocs"]
        return [number for _, number, _ in found], [score for score, _, _ in found]

    def ids(numbers: Sequence[int]) -> list[str]:
        values = MultiDocValues.getBinaryValues(lucene.searcher.getIndexReader(), "id")  # goes forward alone
        found = {}
        for number in sorted({*numbers}):
            values.advanceExact(number)
            found[number] = values.binaryValue().utf8ToString()
        return [found[number] for number in numbers]

    def filter_of(passage_ids: Sequence[str]) -> Any:
        terms = ArrayList()
        for passage_id in passage_ids:
            terms.add(BytesRef(passage_id.encode()))
        return TermInSetQuery("id", terms)

    return Numbered(query, hits, ids, filter_of)


def hits_writer(autoclass: Any) -> Callable[[Any], str]:
    """Lucene's `TopDocs` -> JSON, each hit as [score, number, shard]: one call to Java in the place of two a hit."""
    annotation = "com.fasterxml.jackson.annotation.JsonFormat"
    as_array = autoclass(f"{annotation}$Value").forShape(autoclass(f"{annotation}$Shape").ARRAY)
    mapper = autoclass("com.fasterxml.jackson.databind.ObjectMapper")()
    mapper.configOverride(autoclass("java.lang.Class").forName("org.apache.lucene.search.ScoreDoc")).setFormat(as_array)
    return mapper.writeValueAsString


def answer(autoclass: Any, job: Mapping[str, Any], say: Say) -> None:
    """Answer lines from stdin until it ends, a line each: `job["threads"]` questions at a time.

    {"questions": [[text, k, filter or null], ...]} with {"hits": [[numbers, scores], ...]}, {"numbers": [...]} with
    {"ids": [...]}. {"keep": [ids]} makes a filter and is answered with {"filter": number}, {"drop": number} ends it.
    """
    lucene = numbered(autoclass, readable(autoclass, job))
    filters: dict[int | None, Any] = {None: None}
    numbers = count()
    with ThreadPoolExecutor(job["threads"]) as pool:
        say({"ready": True})
        for line in sys.stdin:
            asked = json.loads(line)
            if "numbers" in asked:
                say({"ids": lucene.ids(asked["numbers"])})
            elif "keep" in asked:
                number = next(numbers)
                filters[number] = lucene.filter_of(asked["keep"])
                say({"filter": number})
            elif "drop" in asked:
                del filters[asked["drop"]]
                say({"filter": asked["drop"]})
            else:
                queries = [lucene.query(cleaned(text, job), filters[number]) for text, _, number in asked["questions"]]
                depths = [k for _, k, _ in asked["questions"]]
                say({"hits": [*pool.map(lucene.hits, queries, depths)]})


if __name__ == "__main__":
    in_java(answer)
