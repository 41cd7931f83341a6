"""The flow: the nodes of flows/dag.py, one task run each, in order."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext

from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows import preflight, results
from flows.dag import Node, nodes
from flows.recipe import Recipe, change
from flows.selection import names, select, store_folder, upstream
from pipeline.cocondenser import CocondenserConfig, check_cocondenser
from pipeline.cross_encoder import CrossEncoderConfig, check_cross_encoder
from pipeline.errors import InputError
from pipeline.finetune import FinetuneConfig, check_finetune
from pipeline.scores import ScoresConfig
from tasks.run import Order, stage


@flow(name="cocondenser", flow_run_name="{recipe.name}", persist_result=False)
def cocondenser(
    recipe: Recipe,
    set: list[str] = [],  # noqa: B006 (Prefect's form needs a list, and nothing changes it)
    until: str | None = None,
    only: str | None = None,
    refresh: list[str] = [],  # noqa: B006
    keep: list[str] = [],  # noqa: B006
    store: str | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
) -> dict[str, Ref]:
    """From a text collection and training questions to a dense retriever; every stage is reused where it can be.

    Args:
        recipe: The complete recipe.
        set: Changes to it, such as condenser.steps=100, applied last.
        until: The last stage to run, with all that it needs.
        only: The one stage to run; what it reads must be in the store.
        refresh: Stages to build anew.
        keep: Stages whose artifacts of older code are accepted.
        store: The folder of artifacts; COCONDENSER_STORE or ./store where empty.
        device: auto, cpu or cuda; the recipe's where empty.
    """
    recipe = change(recipe, [*set, *([f"machine.device={device}"] if device else [])])
    root = store_folder(store)
    shelf = Store(root)
    dag = nodes(recipe)
    wanted = select(dag, until, only)
    anew, kept = names(dag, refresh), names(dag, keep)
    preflight.check(shelf, dag, wanted)

    begun = run_created()
    refs: dict[str, Ref] = upstream(shelf, dag, wanted, recipe.name) if only else {}
    for node in wanted:
        order = Order(
            node=node.name,
            stage=node.stage,
            config=node.config,
            shared=node.shared,
            machine=recipe.machine,
            store=root,
            recipe=recipe.name,
            keep=node.name in kept,
            refresh_since=begun if node.name in anew else None,
        )
        inputs = {name: refs[given.name] if given else None for name, given in node.inputs.items()}
        state: State[Any] = stage.with_options(name=node.name)(order, inputs, return_state=True)
        refs[node.name] = state.result()
        if node.name == "ingest":
            check_training_data(refs["ingest"], wanted)
        if node.name == "initial":
            start = recipe.condenser.checkpoint or refs["initial"].path
            check_pretraining(refs["tokens"], start, wanted)
            check_cross_encoders(refs, recipe.cocondenser.checkpoint or start, wanted)

    details: dict[str, Any] = {"recipe": recipe.model_dump(mode="json"), "set": set, "until": until, "only": only}
    record_run(shelf, recipe.name, refs, details, begun)
    results.show(recipe, refs, root)
    return refs


def run_created() -> datetime:
    """When the flow run was made: a retry of the run does not build anew what the run itself has built."""
    context = FlowRunContext.get()
    created = context.flow_run.created if context and context.flow_run else None
    return created or datetime.now(UTC)


def check_pretraining(tokens: Ref, start: Path, wanted: list[Node]) -> None:
    """What coCondenser cannot do with the collection or the model `start` fails now, not after Condenser."""
    for node in wanted:
        if isinstance(node.config, CocondenserConfig):
            check_cocondenser(node.config, tokens.path, start)


def check_cross_encoders(refs: Mapping[str, Ref], start: Path, wanted: list[Node]) -> None:
    """A cross-encoder that fits neither tokens nor lengths fails now, not after pre-training."""
    for node in wanted:
        if isinstance(node.config, CrossEncoderConfig):
            check_cross_encoder(node.config, refs["tokens"].path, start, refs["tokenizer"].path)


def check_training_data(ingest: Ref, wanted: list[Node]) -> None:
    """Training without judged questions, or without its negatives, fails now, not after pre-training."""
    for node in wanted:
        if not isinstance(node.config, FinetuneConfig | CrossEncoderConfig | ScoresConfig):
            continue
        if not ingest.metrics.get("train_relevant"):
            start = node.inputs.get("start")
            before = f"; `--until {start.name}` stops before it" if start else ""
            raise InputError(f"{node.name}: the collection has no training questions with a relevant passage{before}")
        if node.config.negatives_from == "collection" and not (ingest.path / "negatives.parquet").exists():
            raise InputError(f"{node.name}.negatives_from: the collection came without negatives; set it to bm25")
        if isinstance(node.config, FinetuneConfig) and node.inputs["pseudo"] is None:
            kinds = 2 if node.inputs["mined"] is not None and node.config.mix == "twice" else 1
            try:
                check_finetune(node.config, ingest.path, kinds)
            except InputError as error:
                raise InputError(f"{node.name}: {error}") from None
