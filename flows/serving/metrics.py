"""Counts what a search server does, in the text format of Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECONDS_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10)
"""Upper limits of the times that are counted together."""
QUESTIONS_BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""Upper limits of the batch sizes that are counted together (batching.MOST)."""
MEDIA_TYPE = CONTENT_TYPE_LATEST
"""Media type of `ServerMetrics.text`."""


class ServerMetrics:
    """The figures of one server, and of its process. They say nothing about who asked or what."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.questions = Counter("cocondenser_questions", "Valid questions.", ["by"], registry=self.registry)
        self.seconds = Histogram(
            "cocondenser_answer_seconds",
            "Time from a question to its answer, with its wait for others.",
            ["by"],
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "cocondenser_batch_questions",
            "Questions that were computed together.",
            buckets=QUESTIONS_BUCKETS,
            registry=self.registry,
        )
        self.errors = Counter(
            "cocondenser_errors", "Requests that were refused or failed.", ["status"], registry=self.registry
        )

    def text(self) -> bytes:
        return generate_latest(self.registry)


class CountErrors:
    """Counts answers with a status from 400 on, and exceptions, which get status 500."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self.app = app
        self.errors = metrics.errors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self.errors.labels(str(message["status"])).inc()
            await send(message)

        try:
            await self.app(scope, receive, send_counted)
        except Exception:
            self.errors.labels("500").inc()
            raise
