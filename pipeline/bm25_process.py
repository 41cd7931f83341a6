"""The process that holds Java: `python -m pipeline.bm25_process JOB`, started by pipeline.bm25 alone.

JOB is JSON. `{"do": "build", ...}` makes the whole artifact, `{"do": "answer", ...}` answers questions that come as
JSON lines on stdin until it ends. Reports are JSON lines on what was stdout; whatever Java prints goes to stderr.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import first_stage, java, sparse
from pipeline.collection import Query, passage_batches, passage_count, passage_ids
from pipeline.errors import InputError
from pipeline.first_stage import Hits
from pipeline.parent import die_with_parent
from pipeline.processes import Say, reporter

FIELD = "contents"
BUFFER = 256
"""MiB of Lucene's index buffer, inside Java's heap."""
DOCUMENTS, CHARACTERS = 8192, 1 << 24
"""Passages, and about as many characters, handed to Lucene at once: weights make long texts."""
QUERY_CHARACTERS = 20_000
"""What is read of a question. A 1 MB question would hold Lucene for minutes and say no more."""
QUERY_TERMS = 4_000
"""What is read of a question of weights."""
UNKNOWN_SHARE = 0.01
"""Of the collection's size may be unknown among the passages given; more means that the two do not belong together."""

IDENTIFIER = re.compile(r"_|(?<=[^\W\d])\.(?=[^\W\d])|(?<=[a-z0-9])(?=[A-Z])")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
WORD = re.compile(r"\w+")

Document = tuple[str, str]
"""Passage id and what is indexed of it."""


class Lucene(NamedTuple):
    """An open index. Its functions may be called from several threads."""

    search: Callable[[str, int], Hits]
    """(text, k) -> passage ids and scores, best first; equal scores in the index's own order."""
    terms: Callable[[str], int]
    """Terms that the analyser finds in a text."""


def contents(title: str, text: str, job: Mapping[str, Any]) -> str:
    """What is indexed of a passage."""
    return words("\n".join([title] * job["titles"] + [text]).strip(), job)


def cleaned(text: str, job: Mapping[str, Any]) -> str:
    """A question as Lucene gets it: cut, and control characters and lone surrogates (no UTF-8) made spaces."""
    text = CONTROL.sub(" ", text[:QUERY_CHARACTERS])
    return " ".join(WORD.findall(text.lower())) if job["scores"] == "weights" else words(text, job)


def words(text: str, job: Mapping[str, Any]) -> str:
    """The text with its identifiers split, where the job says so: `io.TextWrapper` becomes `io Text Wrapper`."""
    return IDENTIFIER.sub(" ", text) if job["split_identifiers"] else text


def own(collection: Path, job: Mapping[str, Any]) -> Iterator[Document]:
    """What is indexed of the collection's own passages."""
    for batch in passage_batches(collection, ["passage_id", "title", "text"]):
        for passage_id, title, text in zip(*batch.values(), strict=True):
            yield passage_id, contents(title, text, job)


def given(job: Mapping[str, Any], row: Mapping[str, int], counts: Counter[str]) -> Iterator[Document]:
    """What is indexed of passages that another system wrote; `row` are the collection's ids.

    Counts `passages_unknown` and `passages_missing`. Raises InputError for an id that stands twice and at the first
    unknown one that is too many.
    """
    counts.update(passages_unknown=0, passages_missing=0)
    seen = bytearray(len(row))
    for place, passage_id, content in sparse.passages(Path(job["passages"])):
        at = row.get(passage_id)
        if at is None:
            counts["passages_unknown"] += 1
            if counts["passages_unknown"] > UNKNOWN_SHARE * len(row):
                raise InputError(
                    f"{place}: unknown passage id {passage_id!r}, one of more than 1 % of the collection's {len(row):,}"
                )
            continue
        if seen[at]:
            raise InputError(f"{place}: passage id {passage_id!r} stands twice")
        seen[at] = 1
        yield passage_id, sparse.repeated(content) if isinstance(content, dict) else words(content.strip(), job)
    counts["passages_missing"] = seen.count(0)


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


def index(
    autoclass: Any, documents: Iterable[Document], total: int, folder: Path, job: Mapping[str, Any], say: Say
) -> Counter[str]:
    """Index the documents that are not empty into `folder`. Counts `passages` and `passages_empty`."""
    # fmt: off
    indexer = autoclass("io.anserini.index.SimpleIndexer")([
        "-input", "", "-collection", "JsonCollection", "-index", str(folder), "-stemmer", job["stemmer"],
        "-threads", str(job["threads"]), "-memoryBuffer", str(BUFFER),
        *(["-pretokenized"] if job["scores"] == "weights" else []),
    ])
    # fmt: on
    counts: Counter[str] = Counter(passages=0, passages_empty=0)
    for piece in pieces(documents):
        raw = [json.dumps({"id": passage_id, FIELD: text}) for passage_id, text in piece if text]
        if indexer.addRawDocuments(raw) != len(raw):
            raise RuntimeError("Lucene refused a passage")
        counts["passages"] += len(raw)
        counts["passages_empty"] += len(piece) - len(raw)
        say({"progress": [counts.total(), total, "passages"]})
    indexer.close()
    (folder / "write.lock").unlink(missing_ok=True)
    if counts["passages"] == 0:
        where = job["passages"] or Path(job["collection"]) / "passages.parquet"
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
    IndexSearcher = autoclass("org.apache.lucene.search.IndexSearcher")
    IndexSearcher.setMaxClauseCount(QUERY_CHARACTERS)
    lucene = IndexSearcher(cast("org.apache.lucene.index.IndexReader", reader))
    if job["scores"] == "weights":
        lucene.setSimilarity(autoclass("io.anserini.search.similarity.ImpactSimilarity")())
        analyser = autoclass("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    else:
        lucene.setSimilarity(autoclass("org.apache.lucene.search.similarities.BM25Similarity")(job["k1"], job["b"]))
        analyser = autoclass("io.anserini.analysis.DefaultEnglishAnalyzer").newStemmingInstance(job["stemmer"])
    generator = autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")()
    ScoredDocs = autoclass("io.anserini.search.ScoredDocs")
    AnalyzerUtils = autoclass("io.anserini.analysis.AnalyzerUtils")

    def search(text: str, k: int) -> Hits:
        hits = ScoredDocs.fromTopDocs(lucene.search(generator.buildQuery(FIELD, analyser, text), k), lucene)
        return hits.docids, hits.scores

    return Lucene(search, lambda text: AnalyzerUtils.analyze(analyser, text).size())


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


def read_topics(job: Mapping[str, Any], questions: Sequence[Query], counts: Counter[str]) -> dict[str, sparse.Content]:
    """{query id: what another system made of it} of the questions that are asked.

    Counts `topics_not_asked` and `questions_without_topic`. Raises InputError for a question that stands twice, for
    weights where the passages are text, and where none of the questions is among them.
    """
    wanted = {q.query_id for q in questions}
    found: dict[str, sparse.Content] = {}
    counts.update(topics_not_asked=0)
    for place, query_id, content in sparse.topics(Path(job["topics"])):
        if isinstance(content, dict) and job["scores"] != "weights":
            raise InputError(f"{place}: a question of weights, but bm25.passages gives no passages of weights")
        if query_id not in wanted:
            counts["topics_not_asked"] += 1
        elif query_id in found:
            raise InputError(f"{place}: question id {query_id!r} stands twice")
        else:
            found[query_id] = sparse.counted(content) if job["scores"] == "weights" else content
    if not found:
        raise InputError(f"{job['topics']}: none of its questions is one of the collection's")
    counts["questions_without_topic"] = len(wanted) - len(found)
    return found


def query(content: sparse.Content, job: Mapping[str, Any], counts: Counter[str]) -> str:
    """What Lucene is asked. Counts `questions_cut` and `questions_with_control_characters`."""
    if isinstance(content, dict):
        counts["questions_cut"] += len(content) > QUERY_TERMS
        return sparse.repeated(dict(islice(content.items(), QUERY_TERMS)))
    counts["questions_cut"] += len(content) > QUERY_CHARACTERS
    counts["questions_with_control_characters"] += CONTROL.search(content) is not None
    return cleaned(content, job)


def build(autoclass: Any, job: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Write the whole artifact but its settings into `job["out"]` and return its counts."""
    collection, out = Path(job["collection"]), Path(job["out"])
    questions, positives = first_stage.asked(collection)
    names = ("questions_cut", "questions_with_control_characters", "questions_without_terms")
    counts: Counter[str] = Counter(dict.fromkeys(names, 0))
    topics = read_topics(job, questions, counts) if job["topics"] else {q.query_id: q.text for q in questions}
    row = {passage_id: n for n, passage_id in enumerate(passage_ids(collection))}
    documents = given(job, row, counts) if job["passages"] else own(collection, job)
    counts.update(index(autoclass, documents, passage_count(collection), out / "index", job, say))
    lucene = opened(autoclass, out / "index", job)

    with ThreadPoolExecutor(job["threads"]) as pool:

        def find(piece: Sequence[Query], depth: int) -> list[Hits]:
            texts = [query(topics.get(q.query_id, ""), job, counts) for q in piece]
            found = list(pool.map(lambda text: best(lucene.search, text, depth, row), texts))
            nothing = [text for text, (ids, _) in zip(texts, found, strict=True) if not ids]
            counts["questions_without_terms"] += sum(lucene.terms(text) == 0 for text in nothing)
            return found

        def progress(done: int, total: int | None, unit: str, numbers: Any = None) -> None:
            say({"progress": [done, total, unit]})

        counts.update(first_stage.write(out, questions, positives, job["depths"], find, progress))
    return dict(counts)


def answer(autoclass: Any, job: Mapping[str, Any], say: Say) -> None:
    """Answer {"text", "k"} lines from stdin with {"ids", "scores"} lines until stdin ends."""
    lucene = opened(autoclass, Path(job["index"]), job)
    say({"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        ids, scores = lucene.search(cleaned(question["text"], job), question["k"])
        say({"ids": ids, "scores": scores})


def main() -> None:
    job = json.loads(sys.argv[1])
    if job["do"] == "build":
        die_with_parent()
    say = reporter()
    try:
        autoclass = java.start()
        if job["do"] == "build":
            say({"result": build(autoclass, job, say)})
        else:
            answer(autoclass, job, say)
    except InputError as error:
        say({"input_error": str(error)})
        sys.exit(2)
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}".strip().splitlines()[0]})
        raise


if __name__ == "__main__":
    main()
