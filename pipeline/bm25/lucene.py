"""Writes, opens and searches an index with Lucene, through Anserini's Java classes.

`autoclass`: the result of `java.start_java`, which returns a Java class by name. Runs in a separate process.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
    terms: Callable[[str], int]
    """Text -> number of terms after the analyser."""


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
        "-input", "", "-collection", "JsonCollection", "-index", str(folder), "-stemmer", job["stemmer"],
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
        analyser = autoclass("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    else:
        lucene.setSimilarity(autoclass("org.apache.lucene.search.similarities.BM25Similarity")(job["k1"], job["b"]))
        analyser = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newStemmingInstance(job["stemmer"])
    generator = autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")()
    ScoredDocs = autoclass("io.anserini.search.ScoredDocs")
    AnalyzerUtils = autoclass("io.anserini.analysis.AnalyzerUtils")

    def query(text: str) -> Any:
        return generator.buildQuery(FIELD, analyser, text)

    def search(text: str, k: int) -> "Hits":
        # unpacks the stored fields of every hit
        hits = ScoredDocs.fromTopDocs(lucene.search(query(text), k), lucene)
        return hits.docids, hits.scores

    return Lucene(lucene, query, search, lambda text: AnalyzerUtils.analyze(analyser, text).size())


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
