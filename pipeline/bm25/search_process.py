"""Answers a Searcher in Java: `python -m pipeline.bm25.search_process JOB`, started only by pipeline.bm25.searcher.

JOB is JSON. Reads requests as JSON lines from stdin until it ends, writes answers as JSON lines to the original stdout.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.bm25.java import in_java
from pipeline.bm25.lucene import Lucene, open_lucene, terms_of_each
from pipeline.bm25.texts import clean_question
from pipeline.data.stored import AGAIN
from pipeline.errors import InputError
from pipeline.runtime.processes import Say


class Numbered(NamedTuple):
    """An open index that identifies passages by Lucene's numbers.

    Only `hits` may be called from several threads (see `Lucene`).
    """

    query: Callable[[str, Any], Any]
    """(text, filter or None) -> a Query for the passages with one of its words that pass the filter."""
    hits: Callable[[Any, int], tuple[list[int], list[float]]]
    """(query, k) -> numbers and scores, best first: ten times as fast as with ids."""
    ids: Callable[[Sequence[int]], list[str]]
    """Numbers -> passage ids, in the same order."""
    filter_of: Callable[[Sequence[str]], Any]
    """Passage ids -> a Query for these passages."""
    terms: Callable[[Sequence[str]], list[list[str]]]
    """Texts -> the terms of each."""


def readable(autoclass: Any, job: Mapping[str, Any]) -> Lucene:
    """Opens the index. Raises InputError if Lucene cannot read it."""
    from jnius import JavaException

    try:
        return open_lucene(autoclass, Path(job["index"]), job)
    except JavaException as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{job['index']}: damaged: Lucene cannot read it ({reason}); {AGAIN}") from error


def numbered(autoclass: Any, lucene: Lucene) -> Numbered:
    """Returns the functions that use Lucene's numbers."""
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
        # a FILTER does not change scores or the index's statistics
        return Builder().add(words, Occur.MUST).add(within, Occur.FILTER).build()

    def hits(query: Any, k: int) -> tuple[list[int], list[float]]:
        docs = json.loads(as_json(lucene.searcher.search(query, k)))["scoreDocs"]
        return [number for _, number, _ in docs], [score for score, _, _ in docs]

    def ids(numbers: Sequence[int]) -> list[str]:
        values = MultiDocValues.getBinaryValues(lucene.searcher.getIndexReader(), "id")  # only moves forward
        by_number = {}
        for number in sorted({*numbers}):
            values.advanceExact(number)
            by_number[number] = values.binaryValue().utf8ToString()
        return [by_number[number] for number in numbers]

    def filter_of(passage_ids: Sequence[str]) -> Any:
        terms = ArrayList()
        for passage_id in passage_ids:
            terms.add(BytesRef(passage_id.encode()))
        return TermInSetQuery("id", terms)

    return Numbered(query, hits, ids, filter_of, partial(terms_of_each, lucene.terms))


def hits_writer(autoclass: Any) -> Callable[[Any], str]:
    """Returns a function from Lucene's `TopDocs` to JSON, each hit as [score, number, shard].

    It needs one call to Java instead of two per hit.
    """
    annotation = "com.fasterxml.jackson.annotation.JsonFormat"
    as_array = autoclass(f"{annotation}$Value").forShape(autoclass(f"{annotation}$Shape").ARRAY)
    mapper = autoclass("com.fasterxml.jackson.databind.ObjectMapper")()
    mapper.configOverride(autoclass("java.lang.Class").forName("org.apache.lucene.search.ScoreDoc")).setFormat(as_array)
    return mapper.writeValueAsString


def answer(autoclass: Any, job: Mapping[str, Any], say: Say) -> None:
    """Answers each line from stdin with one line until it ends; searches `job["threads"]` questions at a time.

    {"questions": [[text, k, filter or null], ...]} gives {"hits": [[numbers, scores], ...]}; {"numbers": [...]} gives
    {"ids": [...]}; {"texts": [...]} gives {"terms": [[...], ...]}; {"keep": [ids]} creates a filter and gives
    {"filter": number}; {"drop": number} deletes it.
    """
    lucene = numbered(autoclass, readable(autoclass, job))
    filters: dict[int | None, Any] = {None: None}
    numbers = count()
    with ThreadPoolExecutor(job["threads"]) as pool:
        say({"ready": True})
        for line in sys.stdin:
            request = json.loads(line)
            if "numbers" in request:
                say({"ids": lucene.ids(request["numbers"])})
            elif "texts" in request:
                say({"terms": lucene.terms([clean_question(text, job) for text in request["texts"]])})
            elif "keep" in request:
                number = next(numbers)
                filters[number] = lucene.filter_of(request["keep"])
                say({"filter": number})
            elif "drop" in request:
                del filters[request["drop"]]
                say({"filter": request["drop"]})
            else:
                questions = request["questions"]
                queries = [lucene.query(clean_question(text, job), filters[number]) for text, _, number in questions]
                depths = [k for _, k, _ in questions]
                say({"hits": [*pool.map(lucene.hits, queries, depths)]})


if __name__ == "__main__":
    in_java(answer)
