"""Gets the answers that are not stored yet, from a server or a local model, within the user's limits."""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pipeline.errors import InputError
from pipeline.generate.answer_store import AnswerStore
from pipeline.generate.config import GenerateConfig
from pipeline.generate.local_model import write_prompts
from pipeline.generate.requests import Request, Requests
from pipeline.language_model.chat_completion import Answer
from pipeline.language_model.endpoint import Endpoint, Failed
from pipeline.notices import notice
from pipeline.runtime.work import Metrics, Work

FEW, SHARE = 5, 0.05
"""Failed requests end the stage if they are more than FEW and more than this share of those sent."""
PROMPTS = "prompts.jsonl"


@dataclass
class Sent:
    """The requests of this run."""

    config: GenerateConfig
    total: int
    """Requests without a stored answer."""
    answered: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    first_failure: str = ""

    @property
    def cost(self) -> float | None:
        price = self.config.price_per_million_tokens
        return None if price is None else price.cost(self.input_tokens, self.output_tokens)

    def reaches_cost(self, running: int = 0) -> bool:
        """Whether `max_cost` is reached, also by `running` further requests if they cost as much as the others."""
        if self.config.max_cost is None:
            return False
        return (self.cost or 0.0) * (1 + running / max(self.answered, 1)) >= self.config.max_cost

    def count(self, answer: Answer) -> None:
        self.answered += 1
        self.input_tokens += answer.input_tokens
        self.output_tokens += answer.output_tokens

    def fail(self, why: str) -> None:
        """Raises InputError if there are too many failures."""
        self.failed += 1
        self.first_failure = self.first_failure or why
        sent = self.answered + self.failed
        if not self.answered or self.failed > max(FEW, SHARE * sent):
            raise InputError(
                f"generate.endpoint {self.config.endpoint}: {why}; {self.failed:,} of {sent:,} requests failed; "
                "the answers so far are kept"
            )

    def numbers(self) -> dict[str, float]:
        """For the progress bar."""
        cost = {} if self.cost is None else {"cost": self.cost}
        return {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens, **cost}

    def metrics(self) -> Metrics:
        cost: Metrics = {} if self.cost is None else {"cost": self.cost}
        return {
            "requests": self.answered + self.failed,
            "requests_failed": self.failed,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            **cost,
        }

    def notices(self) -> list[str]:
        advice = "--refresh generate asks them again"
        return [notice("requests without an answer", self.failed, [self.first_failure], advice)] if self.failed else []


def missing_requests(requests: Iterable[Request], store: AnswerStore) -> Iterator[Request]:
    """Yields the requests without a stored answer, each once."""
    seen: set[str] = set()
    for request in requests:
        if request.key not in seen and request.key not in store:
            seen.add(request.key)
            yield request


def get_answers(config: GenerateConfig, requests: Requests, folder: Path | None, answers: Path, work: Work) -> Sent:
    """Stores the answers in the folder `answers`. `folder`: of a local model.

    Raises InputError before the first request if there are more than `max_requests`, once they have cost `max_cost`,
    and if too many fail. Answers are stored as they arrive, so that the next run continues.
    """
    with AnswerStore(answers) as store:
        sent = Sent(config, sum(1 for _ in missing_requests(requests, store)))
        if config.max_requests is not None and sent.total > config.max_requests:
            raise InputError(
                f"generate.max_requests: {config.max_requests:,}, but {sent.total:,} requests have no answer yet: "
                "raise it, or lower generate.passages"
            )
        if not sent.total:
            return sent
        if config.endpoint is not None:
            _ask_server(config, missing_requests(requests, store), store, sent, work)
            return sent
        prompts = work.checkpoints / PROMPTS
        prompts.parent.mkdir(parents=True, exist_ok=True)
        write_prompts(prompts, ((one.key, one.messages) for one in missing_requests(requests, store)))
    assert folder is not None
    _ask_local_model(config, folder, prompts, answers, sent, work)
    return sent


def _ask_local_model(
    config: GenerateConfig, folder: Path, prompts: Path, answers: Path, sent: Sent, work: Work
) -> None:
    from pipeline.runtime.launch import ENCODING, device_of, launch, one_process
    from pipeline.runtime.processes import workers

    fields = {"prompt", "questions", "answer_tokens", "temperature", "seed", "batch"}
    arguments = {
        "folder": str(folder),
        "prompts": str(prompts),
        "answers": str(answers),
        "total": sent.total,
        "config": config.model_dump(mode="json", include=fields),
    }
    # A language model's products are large.
    threads = workers(work.machine) if device_of(work.machine) == "cpu" else None
    machine = one_process(work.machine, threads)
    with work.gpu_turn():
        counts = launch(
            "pipeline.generate.local_model:write", arguments, machine, work.progress, work.checkpoints, ENCODING
        )
    prompts.unlink(missing_ok=True)
    sent.failed = int(counts["too_long"])
    sent.answered = sent.total - sent.failed
    sent.input_tokens, sent.output_tokens = int(counts["input_tokens"]), int(counts["output_tokens"])
    if sent.failed:
        sent.first_failure = "the instructions alone are longer than the model's input"


def _ask_server(config: GenerateConfig, waiting: Iterator[Request], store: AnswerStore, sent: Sent, work: Work) -> None:
    """Sends the requests, some at the same time. After an error no more are sent; those being answered are stored. An
    interruption waits for them only a moment.
    """
    running: dict[Future[Answer], str] = {}
    try:
        with Endpoint(config, say=logging.getLogger(__name__).info) as endpoint:
            # The first one alone: a wrong key or model is then found by one request.
            for request in islice(waiting, 1):
                running[endpoint.start(endpoint.ask, request.messages)] = request.key
            while running:
                _collect(endpoint, running, store, sent, work)
                if sent.reaches_cost():
                    while running:
                        _collect(endpoint, running, store, sent, work)
                    if sent.answered + sent.failed < sent.total:
                        raise InputError(
                            f"generate.max_cost: {config.max_cost:g} is reached after {sent.answered:,} of "
                            f"{sent.total:,} requests, which cost {sent.cost:g}; the answers are kept: raise it to "
                            "continue"
                        )
                    return
                while len(running) < config.concurrent and not sent.reaches_cost(len(running)):
                    next_one = next(waiting, None)
                    if next_one is None:
                        break
                    running[endpoint.start(endpoint.ask, next_one.messages)] = next_one.key
    finally:
        store.add(_answered(running).items())  # they are paid for


def _collect(
    endpoint: Endpoint, running: dict[Future[Answer], str], store: AnswerStore, sent: Sent, work: Work
) -> None:
    """Waits for answers and stores them, then raises InputError if the stage must end."""
    done = endpoint.wait(running)
    answers = _answered({future: running.pop(future) for future in done})
    store.add(answers.items())
    for answer in answers.values():
        sent.count(answer)
    for future in done:
        try:
            future.result()
        except Failed as error:
            sent.fail(str(error))
    work.progress(sent.answered + sent.failed, sent.total, "requests", sent.numbers())


def _answered(running: dict[Future[Answer], str]) -> dict[str, Answer]:
    """Returns the answers of the requests that have one."""
    ended = {future: key for future, key in running.items() if future.done() and not future.cancelled()}
    return {key: future.result() for future, key in ended.items() if future.exception() is None}
