"""Writes, opens and searches an index with Lucene, through Anserini's Java classes.

`autoclass`: the result of `java.start_java`, which returns a Java class by name. Runs in a separate process.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.bm25.languages import ENGLISH, LANGUAGES, STANDARD, language_of
from pipeline.bm25.texts import QUERY_CHARACTERS
from pipeline.errors import InputError
from pipeline.notices import Examples, keep, one_line
from pipeline.runtime.processes import Say

if TYPE_CHECKING:  # a process that answers questions needs no tables
    from pipeline.bm25.first_stage import Hits

FIELD = "contents"
BUFFER = 256
"""MiB of Lucene's index buffer, inside Java's heap."""
DOCUMENTS, CHARACTERS = 8192, 1 << 24
"""Maximum number of passages, and approximate maximum of characters, that Lucene gets at once: weights give long texts.
"""

BETWEEN = "7071067811865"
"""Separates texts that are analysed in one call: a number, which no analyser changes or joins with a word."""

Document = tuple[str, str]
"""Passage id and indexed text."""


class Lucene(NamedTuple):
    """An open index. Only `search` may be called from several threads.

    The reason: pyjnius stores the object of a call in the method, which all objects of a class share. So threads may
    share one object of a class, but not use one each.
    """

    searcher: Any
    """Java's IndexSearcher, for other operations."""
    query: Callable[[str], Any]
    """Text -> a Query for the passages with one of its words."""
    search: "Callable[[str, int], Hits]"
    """(text, k) -> passage ids and scores, best first; equal scores in the index's order."""
    terms: Callable[[str], list[str]]
    """Text -> its terms after the analyser."""


def document_lists(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yields lists of at most DOCUMENTS documents; a list also ends once it has CHARACTERS."""
    piece: list[Document] = []
    size = 0
    for document in documents:
        piece.append(document)
        size += len(document[1])
        if len(piece) == DOCUMENTS or size >= CHARACTERS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def is_empty_in_java(text: str) -> bool:
    """Returns whether a text has only white space and control characters: Java trims them, and Anserini rejects it."""
    return not any(character > " " for character in text)


def index(
    autoclass: Any, job: Mapping[str, Any], documents: Iterable[Document], say: Say, examples: Examples
) -> Counter[str]:
    """Writes the documents that are not empty to the index `index/` in `job["out"]`.

    Counts `passages` and `passages_empty`; `examples` gets the first empty ones. Raises InputError if all are empty.
    """
    from pipeline.data.collection import passage_count

    folder, collection = Path(job["out"], "index"), Path(job["collection"])
    total = passage_count(collection)
    # fmt: off
    indexer = autoclass("io.anserini.index.SimpleIndexer")([
        "-input", "", "-collection", "JsonCollection", "-index", str(folder), *analyser_options(autoclass, job),
        "-threads", str(job["threads"]), "-memoryBuffer", str(BUFFER),
        *(["-pretokenized"] if job["scores"] == "weights" else []),
    ])
    # fmt: on
    counts: Counter[str] = Counter(passages=0, passages_empty=0)
    for piece in document_lists(documents):
        raw = []
        for passage_id, text in piece:
            if is_empty_in_java(text):
                keep(examples, "passages_empty", passage_id)
            else:
                raw.append(json.dumps({"id": passage_id, FIELD: text}))
        added = indexer.addRawDocuments(raw)
        if added != len(raw):
            refused = f"{len(raw) - added} of the passages from '{one_line(piece[0][0])}' to '{one_line(piece[-1][0])}'"
            raise RuntimeError(f"Lucene refused {refused}")
        counts["passages"] += len(raw)
        counts["passages_empty"] += len(piece) - len(raw)
        say({"progress": [counts.total(), total, "passages"]})
    indexer.close()
    (folder / "write.lock").unlink(missing_ok=True)
    if counts["passages"] == 0:
        where = job["passages"] or collection / "passages.parquet"
        raise InputError(f"{where}: no passage holds any text")
    return counts


def class_name(language: str | None) -> str:
    """Returns the Java class of a language's analyser."""
    return f"org.apache.lucene.analysis.{LANGUAGES[language].analyser}"


def analyser_options(autoclass: Any, job: Mapping[str, Any]) -> list[str]:
    """Returns the indexer's options for the analyser of the job's language.

    Anserini finds an analyser by a language's code in a map. It gets ours: Lucene has more, and its Japanese one there
    has no pairs of characters.
    """
    language = language_of(job)
    if language == ENGLISH:
        return ["-stemmer", job["stemmer"]]
    name = language or STANDARD
    autoclass("io.anserini.analysis.AnalyzerMap").analyzerMap.put(name, class_name(language))
    return ["-language", name]


def analyser(autoclass: Any, job: Mapping[str, Any]) -> Any:
    """Returns Java's analyser of passages and questions."""
    if job["scores"] == "weights":
        return autoclass("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    language = language_of(job)
    if language == ENGLISH:
        return autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newStemmingInstance(job["stemmer"])
    return autoclass(class_name(language))()


def stop_words(analyser: Any) -> list[str]:
    """Returns the words that the analyser leaves out, sorted; empty if it has no list of them."""
    for method in ("getStopwordSet", "getDefaultStopSet"):
        if hasattr(analyser, method):
            words = as_list(getattr(analyser, method)())
            return sorted(word for word in words if word.split() == [word])  # Lucene's Sorani list holds its comments
    return []


def as_list(java_words: Any) -> list[str]:
    """Returns the members of a Java collection of words without commas: one call to Java, not one per member."""
    text = java_words.toString()[1:-1]
    return text.split(", ") if text else []


def terms_of_each(terms: Callable[[str], list[str]], texts: Sequence[str]) -> list[list[str]]:
    """Returns the terms of each text, from one call: `terms` costs as much for a word as for a page."""
    lists: list[list[str]] = [[]]
    for term in terms(f" {BETWEEN} ".join(texts)):
        if term == BETWEEN:
            lists.append([])
        else:
            lists[-1].append(term)
    return lists[: len(texts)]


def open_lucene(autoclass: Any, folder: Path, job: Mapping[str, Any]) -> Lucene:
    """Opens the index in `folder`, to search by BM25 or by weights.

    Lucene is called directly: Anserini's searchers round scores to four decimals and lower equal ones to make them
    distinct.
    """
    from jnius import cast

    directory = autoclass("org.apache.lucene.store.FSDirectory").open(
        autoclass("java.nio.file.Paths").get(str(folder.resolve()))
    )
    reader = autoclass("org.apache.lucene.index.DirectoryReader").open(directory)
    reader = cast("org.apache.lucene.index.IndexReader", reader)
    IndexSearcher = autoclass("org.apache.lucene.search.IndexSearcher")
    IndexSearcher.setMaxClauseCount(QUERY_CHARACTERS)
    lucene = IndexSearcher(reader)
    if job["scores"] == "weights":
        lucene.setSimilarity(autoclass("io.anserini.search.similarity.ImpactSimilarity")())
    else:
        lucene.setSimilarity(autoclass("org.apache.lucene.search.similarities.BM25Similarity")(job["k1"], job["b"]))
    own = analyser(autoclass, job)
    generator = autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")()
    ScoredDocs = autoclass("io.anserini.search.ScoredDocs")
    AnalyzerUtils = autoclass("io.anserini.analysis.AnalyzerUtils")

    def query(text: str) -> Any:
        return generator.buildQuery(FIELD, own, text)

    def search(text: str, k: int) -> "Hits":
        # unpacks the stored fields of every hit
        hits = ScoredDocs.fromTopDocs(lucene.search(query(text), k), lucene)
        return hits.docids, hits.scores

    return Lucene(lucene, query, search, lambda text: as_list(AnalyzerUtils.analyze(own, text)))


def best_hits(search: "Callable[[str, int], Hits]", text: str, depth: int, row: Mapping[str, int]) -> "Hits":
    """Returns the first `depth` hits by score, then passage order (`row`), also if `depth` falls among equal scores."""
    requested = depth + 16
    while True:
        ids, scores = search(text, requested)
        if len(ids) < requested or scores[-1] < scores[depth - 1]:
            break
        requested *= 2
    by = sorted(range(len(ids)), key=lambda i: (-scores[i], row[ids[i]]))[:depth]
    return [ids[i] for i in by], [scores[i] for i in by]
