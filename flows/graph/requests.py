"""The requests to a language model that a run will send, and what they cost.

They are counted where the collection is in the store, else guessed from the size of its texts. Tokens that the model
will write are the mean of its stored answers, else the most that it may write.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from artifacts.errors import StoreError
from artifacts.store import Store
from flows.graph.plan import PlannedRequests, Step
from flows.graph.text_size import collection_size
from pipeline.data.text.token_estimate import estimated_tokens
from pipeline.errors import InputError
from pipeline.formatting import counted
from pipeline.generate.answer_store import AnswerStore
from pipeline.generate.config import GenerateConfig
from pipeline.generate.prompts import messages, of_kind, read_examples
from pipeline.generate.requests import read_requests
from tasks.node import Node


def with_requests(steps: Iterable[Step], dag: Iterable[Node], store: Store) -> list[Step]:
    """Returns the steps, in the same order; those that send requests say how many, and what these cost."""
    by_name = {step.node: step for step in steps}
    for node in dag:
        step = by_name[node.name]
        if node.stage != "generate" or step.action == "reuse":
            continue
        try:
            planned = _planned(node, by_name, store)
        except (InputError, StoreError):  # a run reports it
            continue
        if planned is not None:
            by_name[node.name] = replace(step, requests=planned, why=[requests_text(planned), *step.why])
    return list(by_name.values())


def _planned(node: Node, by_name: dict[str, Step], store: Store) -> PlannedRequests | None:
    config = node.config
    assert isinstance(config, GenerateConfig)
    collection = node.inputs["collection"]
    assert collection is not None
    ref = by_name[collection.name].ref
    return _guessed(config, collection, by_name) if ref is None else _counted(config, ref.path, node, store)


def _counted(config: GenerateConfig, collection: Path, node: Node, store: Store) -> PlannedRequests:
    def hash_files(files: Sequence[Path]) -> dict[str, str]:  # the store hashes a file once
        return store.source_digests({path.name: path for path in files})

    requests = read_requests(config, collection, config.checkpoint, hash_files)
    tokens_of = {one.key: sum(estimated_tokens(part["content"]) for part in one.messages) for one in requests}
    with AnswerStore(store.kept / node.stage, writes=False) as answers:
        waiting = [tokens for key, tokens in tokens_of.items() if key not in answers]
        number, read = len(waiting), sum(waiting)
        means = answers.means(tokens_of) if number else None
    written = number * (means.output_tokens if means is not None else config.answer_tokens)
    return PlannedRequests(
        requests=number,
        stored=len(requests) - number,
        cost=_cost(config, read, written),
        at_most=means is None,
        estimated=False,
    )


def _guessed(config: GenerateConfig, collection: Node, by_name: dict[str, Step]) -> PlannedRequests | None:
    size = collection_size(collection, by_name)
    if size is None:
        return None
    examples = read_examples(config.examples)
    passages = min(size.passages, config.passages or size.passages)
    prompts = [messages(config, kind, "", "", of_kind(examples, kind, config.max_examples)) for kind in config.kinds]
    own = sum(estimated_tokens(message["content"]) for prompt in prompts for message in prompt)
    number = round(passages * len(config.kinds))
    read = passages * (own + len(config.kinds) * (size.passage + size.title))
    cost = _cost(config, read, number * config.answer_tokens)
    return PlannedRequests(requests=number, stored=0, cost=cost, at_most=True, estimated=True)


def _cost(config: GenerateConfig, read: float, written: float) -> float | None:
    price = config.price_per_million_tokens
    return None if price is None else price.cost(read, written)


def requests_text(planned: PlannedRequests) -> str:
    """`~400 requests to a language model (88 more are answered), cost at most 0.12`."""
    number = counted(planned.requests, "requests")
    shown = f"about {number}, fewer if some are answered," if planned.estimated else number
    stored = f" ({planned.stored:,} more are answered)" if planned.stored else ""
    cost = "" if planned.cost is None else f", cost {'at most' if planned.at_most else 'about'} {planned.cost:.2g}"
    return f"{shown} to a language model{stored}{cost}"
