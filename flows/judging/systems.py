"""The systems whose rankings are judged: search methods of one run or of several."""

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import cast, get_args

from artifacts.store import Store
from flows.judging.record import PooledPassage, PooledQuestion
from flows.runs.evaluated import ID_LENGTH, find_evaluated
from flows.serving.ask import ask, check_question
from flows.serving.engine import By, Engine, newest_engine
from flows.serving.excerpts import excerpt
from flows.serving.question import Question, Session
from flows.serving.session import open_session
from pipeline.errors import InputError
from pipeline.evaluate.config import UNNAMED

LINES = 6
"""Lines of an excerpt."""
CHARACTERS = 500
"""Characters of an excerpt: some 80 words, which a person reads in a few seconds."""


@dataclass(frozen=True)
class System:
    """A search method of a run."""

    name: str
    """Also the name of its run file."""
    label: str
    engine: Engine
    by: By


def choose_systems(store: Store, runs: Sequence[str], ways: Sequence[str]) -> list[System]:
    """Returns the systems to compare. `runs`: as `compare` names them; none: the newest. `ways`: search methods; none:
    of one run all that it has, of several the one that answers in each.

    Raises InputError for an unknown run or method, for a run that has lost artifacts, for fewer than two systems, and
    for runs of different collections.
    """
    for way in ways:
        if way not in get_args(By):
            raise InputError(f"--systems {way}: no such search method; known are {', '.join(get_args(By))}")
    if len({*ways}) < len(ways) or len({*runs}) < len(runs):
        raise InputError(f"{'--systems' if len({*ways}) < len(ways) else 'RUN'}: one of them appears twice")
    engines = [engine_of(store, run) for run in runs] or [newest_engine(store, None)]
    systems = []
    for engine in engines:
        available = engine.ways()
        for way in ways or (available if len(engines) == 1 else [engine.by]):
            if way not in available:
                known = ", ".join(available)
                raise InputError(f"--systems {way}: the run of {engine.run.name} cannot answer by it; it has {known}")
            by = cast(By, way)
            name, label = str(by), engine.label(by)
            if len(engines) > 1:
                run_id = engine.run.nodes["evaluate"].digest[:ID_LENGTH]
                name = UNNAMED.sub("-", f"{engine.run.name}-{run_id}-{by}")
                label = f"{engine.run.name} {run_id}: {label}"
            systems.append(System(name, label, replace(engine, requested=by), by))
    if len({one.name for one in systems}) < len(systems):
        raise InputError("RUN: two of them are the same run")
    if len(systems) < 2:
        raise InputError("one system cannot be compared: name another RUN, or another method with --systems")
    collections = {one.engine.run.nodes[one.engine.part("ingest")].digest for one in systems}
    if len(collections) > 1:
        raise InputError("the runs search different collections; only systems of one collection can be compared")
    return systems


def engine_of(store: Store, run: str) -> Engine:
    """Returns the engine of a run as `compare` names it. Raises InputError for one that cannot answer."""
    found = find_evaluated(store, run)
    engine = Engine(found.run, {**found.metrics})
    lost = engine.lost_nodes()
    if lost or not engine.is_complete():
        what = f"has lost {', '.join(lost)}" if lost else "has no parts that answer questions"
        raise InputError(f"{store.root}: the run of {found.run.name} {what}")
    return engine


@dataclass(frozen=True)
class Opened:
    """A system with its open search session."""

    system: System
    session: Session


@contextmanager
def open_systems(systems: Sequence[System]) -> Iterator[list[Opened]]:
    """Opens one session for each run, and closes them with the block. Raises InputError if a system is damaged."""
    with ExitStack() as running:
        sessions: dict[str, Session] = {}
        opened = []
        for one in systems:
            run = one.engine.run.created
            if run not in sessions:
                ways = [other.by for other in systems if other.engine.run.created == run]
                sessions[run] = running.enter_context(open_session(one.engine, ways, often=True))
            if one.by not in sessions[run].ways:
                raise InputError(f"{one.label}: {sessions[run].problems.get(one.by, 'cannot answer')}")
            opened.append(Opened(one, sessions[run]))
        yield opened


def pooled(systems: Sequence[Opened], query_id: str, text: str, depth: int, seed: int) -> PooledQuestion:
    """Returns a question with the first `depth` passages of each system, in an order that depends on `seed` and the
    question alone, so that nothing shows which system found a passage.

    A system's passages are those that `search` shows: one, the best, of each document. Raises InputError or JavaFailed
    if a system cannot answer.
    """
    rankings: dict[str, list[str]] = {}
    for system, session in ((one.system, one.session) for one in systems):
        question = Question(text, min(depth, session.passages.count), system.by)
        (answers,) = ask(session, [check_question(session, question)])
        if isinstance(answers, Exception):
            raise answers
        rankings[system.name] = [answer.passage_id for answer in answers]
    pool = sorted({passage_id for ranked in rankings.values() for passage_id in ranked})
    random.Random(f"{seed} {text}").shuffle(pool)
    return PooledQuestion(
        query_id=query_id, text=text, passages=shown(systems[0].session, text, pool), rankings=rankings
    )


def shown(session: Session, text: str, passage_ids: Sequence[str]) -> list[PooledPassage]:
    """Returns the passages as the page shows them. All come from one session: highlights must not differ between
    systems. Excerpts are short, because a person reads hundreds of them."""
    passages = session.passages.read(session.passages.rows(passage_ids).tolist())
    (matcher,) = session.highlighter([(text, [passage["text"] for passage in passages])])
    found = []
    for passage in passages:
        part = excerpt(passage["text"], matcher, LINES, CHARACTERS)
        found.append(
            PooledPassage(
                passage_id=passage["passage_id"],
                title=passage["title"],
                text=passage["text"],
                excerpt=part,
                highlights=matcher.spans(part),
            )
        )
    return found
