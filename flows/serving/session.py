"""Opens a run once, to answer many questions."""

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

from flows.serving.answers import questions_by_passage
from flows.serving.ask import ask
from flows.serving.engine import By, Engine, check_whole
from flows.serving.question import Question, Session
from flows.serving.rankings import BM25Retriever, open_dense
from flows.serving.reranker import RerankerSource, open_reranking
from pipeline.bm25.highlights import highlighter
from pipeline.bm25.searcher import Searcher
from pipeline.data.filter import Where
from pipeline.data.near_duplicates.groups import read_groups
from pipeline.data.passages import in_memory_map, in_parquet
from pipeline.errors import InputError, JavaFailed


@contextmanager
def open_session(
    engine: Engine, ways: Iterable[By] | None = None, often: bool = False, reranker: RerankerSource | None = None
) -> Iterator[Session]:
    """Opens what the search methods `ways` need (None: `engine.by`), and closes it with the block.

    `often`: opens more slowly and answers faster, for a server. `reranker`: scores the first passages of lists again.
    Raises InputError if a part that `engine.by` needs is damaged, or if the parts do not belong together. Other search
    methods are left out in this case.
    """
    needed = {engine.by, *(ways or ())}
    problems: dict[By, str] = {}

    def leave_out(by: By, error: InputError) -> None:
        if engine.by in (by, "fusion"):
            raise error
        problems.update({by: str(error), "fusion": str(error)})

    for node in ("evaluate", engine.part("ingest")):
        check_whole(engine.run, node)
    with ExitStack() as running:
        searcher = bm25 = dense = None
        if needed & {"bm25", "fusion"}:
            artifact = engine.run.nodes[engine.part("bm25")].path
            try:
                check_whole(engine.run, engine.part("bm25"))
                # Java loads at the same time as the rest.
                searcher = running.enter_context(Searcher(artifact, once=not often))
            except InputError as error:
                leave_out("bm25", error)
        collection = engine.collection
        passages = in_memory_map(collection) if often else in_parquet(collection)
        if needed & {"dense", "fusion"}:
            try:
                for node in (engine.model, engine.part(f"index-{engine.metrics['dense']}")):
                    check_whole(engine.run, node)
                dense = open_dense(engine, passages.count, often)
            except InputError as error:
                leave_out("dense", error)
        reranking = None if reranker is None else open_reranking(reranker, often)
        if searcher is not None:
            try:
                searcher.wait()
                bm25 = running.enter_context(contextlib.closing(BM25Retriever(artifact, passages, searcher)))
            except InputError as error:
                leave_out("bm25", error)
            except JavaFailed as error:
                leave_out("bm25", InputError(f"{artifact}: {error}"))
        all_questions = questions_by_passage(collection) if often else None
        known_questions = (
            partial(questions_by_passage, collection) if all_questions is None else lambda passage_ids: all_questions
        )
        bm25_thread = running.enter_context(ThreadPoolExecutor(1))
        first_stage = engine.run.nodes.get(engine.part("bm25"))
        words = highlighter(first_stage.path if first_stage else None, bm25.terms if bm25 else None)
        near = read_groups(collection)
        where = Where(collection)
        session = Session(
            engine, passages, where, known_questions, dense, bm25, near, bm25_thread, words, problems, reranking
        )
        if often:  # the first question is many times slower: libraries load their parts, and Java compiles
            ask(
                session,
                [Question("first", 1, way, "true", 1 if reranking else 0) for way in session.ways if way in needed],
            )
        yield session
