"""Lucene through Anserini's Java classes: an index is written, opened and searched.

`autoclass` is what `pipeline.bm25.java.start` gives: the class of a Java name. For a process of its own.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.bm25.first_stage import Hits
from pipeline.data.collection import passage_count
from pipeline.errors import InputError
from pipeline.notices import Examples, keep, one_line
from pipeline.runtime.processes import Say

FIELD = "contents"
BUFFER = 256
"""MiB of Lucene's index buffer, inside Java's heap."""
DOCUMENTS, CHARACTERS = 8192, 1 << 24
"""Passages, and about as many characters, handed to Lucene at once: weights make long texts."""
QUERY_CHARACTERS = 20_000
"""What is read of a question. A 1 MB question would hold Lucene for minutes and say no more."""

Document = tuple[str, str]
"""Passage id and what is indexed of it."""


class Lucene(NamedTuple):
    """An open index. `search` alone may be called from several threads.

    For pyjnius keeps the object that a method is called on in the method, which all objects of a class share: threads
    may have one object of a class between them, not one each.
    """

    searcher: Any
    """Java's IndexSearcher, to be asked for what is not here."""
    query: Callable[[str], Any]
    """Text -> a Query for the passages that hold one of its words."""
    search: Callable[[str, int], Hits]
    """(text, k) -> passage ids and scores, best first; equal scores in the index's own order."""
    terms: Callable[[str], int]
    """Terms that the analyser finds in a text."""


def pieces(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """At most DOCUMENTS at a time, and no more once there are CHARACTERS."""
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
    """Whether a text holds white space and control characters alone, which Java trims and Anserini then refuses."""
    return not any(character > " " for character in text)


def index(
    autoclass: Any, job: Mapping[str, Any], documents: Iterable[Document], say: Say, examples: Examples
) -> Counter[str]:
    """Index the documents that are not empty into `index/` of `job["out"]`. Counts `passages` and `passages_empty`;
    `examples` gets the first of these.

    Raises InputError where all are empty.
    """
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
    for piece in pieces(documents):
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


def opened(autoclass: Any, folder: Path, job: Mapping[str, Any]) -> Lucene:
    """The index in `folder`, to search by BM25 or by weights.

    Lucene is asked directly, not by Anserini's searchers, which cut scores to four decimals and lower the equal ones
    to tell them apart.
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

    def search(text: str, k: int) -> Hits:
        # unpacks the stored fields of every hit
        hits = ScoredDocs.fromTopDocs(lucene.search(query(text), k), lucene)
        return hits.docids, hits.scores

    return Lucene(lucene, query, search, lambda text: AnalyzerUtils.analyze(analyser, text).size())


def best(search: Callable[[str, int], Hits], text: str, depth: int, row: Mapping[str, int]) -> Hits:
    """The first `depth` by score, then passage order (`row`), also where `depth` cuts through equal scores."""
    asked = depth + 16
    while True:
        ids, scores = search(text, asked)
        if len(ids) < asked or scores[-1] < scores[depth - 1]:
            break
        asked *= 2
    by = sorted(range(len(ids)), key=lambda i: (-scores[i], row[ids[i]]))[:depth]
    return [ids[i] for i in by], [scores[i] for i in by]
