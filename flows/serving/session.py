"""A run opened once, to be asked often."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flows.serving.answers import questions_of
from flows.serving.ask import Question, ask
from flows.serving.engine import By, Engine, check_whole
from flows.serving.rankings import Dense, Lexical, open_dense
from pipeline.bm25.bm25 import Ended
from pipeline.bm25.searcher import Searcher
from pipeline.data.filter import Where
from pipeline.data.passages import Passages, in_memory_map, in_parquet
from pipeline.errors import InputError

WAYS: tuple[By, ...] = ("fusion", "dense", "bm25")


@dataclass(frozen=True)
class Opened:
    """What a run needs to answer."""

    engine: Engine
    passages: Passages
    where: Where
    known: Callable[[Sequence[str]], Mapping[str, str]]
    """Passage ids -> {passage id: a question that it is judged relevant to}, at least of those that have one."""
    dense: Dense | None
    lexical: Lexical | None
    beside: ThreadPoolExecutor
    """One thread that waits for BM25 while another encodes."""
    problems: Mapping[By, str]
    """Why the run cannot be asked so."""

    @property
    def collection(self) -> Path:
        return self.engine.collection

    @property
    def ways(self) -> list[By]:
        """How it can be asked."""
        ready = {"dense": self.dense is not None, "bm25": self.lexical is not None}
        ready["fusion"] = all(ready.values()) and bool(self.engine.metrics["fusion"])
        return [way for way in WAYS if ready[way]]


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
