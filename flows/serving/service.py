"""An open run with the threads that answer from it, which a newer one can replace."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flows.serving.answers import Answer
from flows.serving.ask import ask
from flows.serving.batching import Batches
from flows.serving.metrics import ServerMetrics
from flows.serving.question import Question, Session
from flows.serving.rankings import Mask

DOCUMENTS = 10
"""Number of documents if a request does not say it."""
WAITING_CONDITIONS = 64
"""Maximum number of conditions that wait; more are refused."""
MaskedQuestion = tuple[Question, Mask]
"""A question, and the passages that its condition allows."""


@dataclass
class Service:
    """An open run, and the threads that answer from it. Raises InputError if the run's record lacks a section."""

    session: Session
    batches: Batches[MaskedQuestion, list[Answer]]
    masks: Batches[str, Mask]
    answering: int = field(default=0, init=False)
    """Number of requests that are answered from it now."""
    description: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.description = session_description(self.session)


@contextmanager
def open_service(session: Session, metrics: ServerMetrics) -> Iterator[Service]:
    """The threads that answer from an open session."""

    def answer_and_count(questions: Sequence[MaskedQuestion]) -> Sequence[list[Answer] | Exception]:
        metrics.batches.observe(len(questions))
        return answer_batch(session, questions)

    masks = condition_batches(session)
    batches: Batches[MaskedQuestion, list[Answer]] = Batches(answer_and_count)
    try:
        yield Service(session, batches, masks)
    finally:
        session.where.interrupt()
        masks.close()
        batches.close()


def condition_batches(session: Session) -> Batches[str, Mask]:
    """Masks of conditions, one at a time in their own thread: a slow condition delays only other conditions."""
    return Batches(
        lambda conditions: [session.where.rows(where) for where in conditions], WAITING_CONDITIONS, together=1
    )


def answer_batch(session: Session, questions: Sequence[MaskedQuestion]) -> Sequence[list[Answer] | Exception]:
    masks = {question.where: mask for question, mask in questions}
    return ask(session, [question for question, _ in questions], masks)


class CurrentService:
    """The service that answers new requests. A request keeps the one with which it began."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._changed = threading.Condition()

    @contextmanager
    def answering(self) -> Iterator[Service]:
        with self._changed:
            service = self.service
            service.answering += 1
        try:
            yield service
        finally:
            with self._changed:
                service.answering -= 1
                if service is not self.service:
                    self._changed.notify_all()

    def replace(self, service: Service) -> None:
        """New requests get `service`. Returns once no request uses the one before."""
        with self._changed:
            before, self.service = self.service, service
            self._changed.wait_for(lambda: before.answering == 0)


def session_description(session: Session) -> dict[str, Any]:
    """What the page shows of the run before the first question."""
    engine, recipe = session.engine, session.engine.recipe
    return {
        "recipe": engine.run.name,
        "title": recipe.get("title") or engine.run.name,
        "created": engine.run.created,
        "by": engine.by,
        "ways": {way: engine.label(way) for way in session.ways},
        "fusion": engine.fusion("fusion"),
        "rerank": session.reranking.most if session.reranking else 0,
        "reranker": session.reranking.name if session.reranking else None,
        "passages": session.passages.count,
        "k": min(DOCUMENTS, session.passages.count),
        "columns": session.where.columns,
        "example": recipe.get("example_question"),
    }
