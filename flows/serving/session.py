"""A run opened once, to be asked often."""

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial

from flows.serving.answers import questions_of
from flows.serving.ask import ask
from flows.serving.engine import By, Engine, check_whole
from flows.serving.question import Opened, Question
from flows.serving.rankings import Lexical, open_dense
from pipeline.bm25.bm25 import Ended
from pipeline.bm25.searcher import Searcher
from pipeline.data.filter import Where
from pipeline.data.passages import in_memory_map, in_parquet
from pipeline.errors import InputError


@contextmanager
def opened(engine: Engine, ways: Iterable[By] | None = None, often: bool = False) -> Iterator[Opened]:
    """Opens what the `ways` of asking need (None: `engine.how`); closes it with the block.

    `often`: take longer to open and answer quicker, for a server.
    Raises InputError for what `engine.how` needs and is damaged, or of different models or collections; other ways are
    left out.
    """
    wanted = {engine.how, *(ways or ())}
    problems: dict[By, str] = {}

    def leave_out(by: By, error: InputError) -> None:
        if engine.how in (by, "fusion"):
            raise error
        problems.update({by: str(error), "fusion": str(error)})

    for node in ("evaluate", engine.part("ingest")):
        check_whole(engine.run, node)
    with ExitStack() as running:
        searcher = lexical = dense = None
        if wanted & {"bm25", "fusion"}:
            artifact = engine.run.nodes[engine.part("bm25")].path
            try:
                check_whole(engine.run, engine.part("bm25"))
                searcher = running.enter_context(Searcher(artifact))  # Java loads while the rest does
            except InputError as error:
                leave_out("bm25", error)
        import torch

        torch.set_num_threads(1)  # two OpenMP threads on a shared core are many times slower than one
        collection = engine.collection
        passages = in_memory_map(collection) if often else in_parquet(collection)
        if wanted & {"dense", "fusion"}:
            try:
                for node in (engine.model, engine.part(f"index-{engine.metrics['dense']}")):
                    check_whole(engine.run, node)
                dense = open_dense(engine, passages.count, often)
            except InputError as error:
                leave_out("dense", error)
        if searcher is not None:
            try:
                searcher.wait()
                lexical = running.enter_context(contextlib.closing(Lexical(artifact, passages, searcher)))
            except InputError as error:
                leave_out("bm25", error)
            except Ended as error:
                leave_out("bm25", InputError(f"{artifact}: {error}"))
        asked = questions_of(collection) if often else None
        known = partial(questions_of, collection) if asked is None else lambda ids: asked
        beside = running.enter_context(ThreadPoolExecutor(1))
        run = Opened(engine, passages, Where(collection), known, dense, lexical, beside, problems)
        # The first question is many times slower: libraries load their parts, Java compiles.
        everywhere = "true" if often else None
        ask(run, [Question("first", 1, way, everywhere) for way in run.ways if way in wanted])
        yield run
