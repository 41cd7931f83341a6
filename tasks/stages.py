"""Every stage of the flow: its function, and what its key needs to know beside its configuration."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from pipeline.runtime.work import Metrics


@dataclass(frozen=True)
class Stage:
    call: str | Callable[..., Metrics]
    """`module:name` of `function(config, **inputs, work)`, the inputs by parameter name."""
    identity: Literal["content", "key"] = "content"
    """What stands for the artifact in the keys of what is built from it: `key` where equal inputs give other bytes."""
    libraries: Callable[[Any], tuple[str, ...]] = lambda config: ()
    """Libraries whose version changes the bytes, of a configuration."""
    unread: Callable[[Any], tuple[str, ...]] = lambda config: ()
    """Fields of a configuration that the stage does not look at, for what others of its fields are."""
    sources: Callable[[Any], dict[str, Path]] | None = None
    """Files and folders that the stage reads beside those in the configuration's Path fields."""
    missing: Callable[[Any], list[str]] | None = None
    """Lines that say what the stage would need from outside and cannot have or use, and how to bring it."""
    gpu: bool = False
    """Computes on the GPU where there is one, and so waits for its turn there."""
    earlier: bool = False
    """Takes over parts of what the same code made before."""
    parts: bool = False
    """Made in shards, which go to Ray where `machine.ray` says so."""
    lineage: bool = False
    """Is given `lineage`: what its inputs were made from, and what that took. Its bytes then are not its identity."""

    @cached_property
    def function(self) -> Callable[..., Metrics]:
        """Imports the stage's module."""
        return resolve_name(self.call) if isinstance(self.call, str) else self.call


@cache
def at(place: str) -> Callable[..., Any]:
    """The function at `module:name`, whose module is imported when the function is first called."""

    def call(*given: Any) -> Any:
        return resolve_name(place)(*given)

    return call


def always(*names: str) -> Callable[[Any], tuple[str, ...]]:
    """The same names, whatever the configuration."""
    return lambda config: names


STAGES: dict[str, Stage] = {
    "ingest": Stage(
        "pipeline.data.ingest:ingest",
        sources=at("pipeline.data.ingest:sources"),
        missing=at("pipeline.data.ingest:missing"),
    ),
    "tokenizer": Stage(
        "pipeline.tokenization.tokenizer:tokenizer",
        libraries=always("tokenizers"),
        missing=at("pipeline.tokenization.tokenizer:missing"),
    ),
    "tokens": Stage("pipeline.tokenization.tokens:tokens", libraries=always("tokenizers")),
    "bm25": Stage(
        "pipeline.bm25.bm25:bm25",
        identity="key",
        libraries=always("pyserini"),
        missing=at("pipeline.bm25.bm25:missing"),
    ),
    "initial": Stage("pipeline.modeling.initial:initial", missing=at("pipeline.modeling.initial:missing")),
    "ict": Stage(
        "pipeline.pretrain.inverse_cloze:ict",
        missing=at("pipeline.pretrain.inverse_cloze:missing"),
        unread=always("text"),
        gpu=True,
    ),
    "condenser": Stage(
        "pipeline.pretrain.condenser:condenser", missing=at("pipeline.pretrain.condenser:missing"), gpu=True
    ),
    "cocondenser": Stage(
        "pipeline.pretrain.cocondenser:cocondenser",
        missing=at("pipeline.pretrain.cocondenser:missing"),
        unread=always("text"),
        gpu=True,
    ),
    "finetune": Stage("pipeline.finetune.finetune:finetune", gpu=True),
    "encode": Stage("pipeline.dense.encode:encode", gpu=True, earlier=True, parts=True),
    "index": Stage(
        "pipeline.dense.index:index",
        libraries=at("pipeline.dense.index_kinds:libraries"),
        unread=at("pipeline.dense.index_kinds:unread"),
    ),
    "search": Stage(
        "pipeline.dense.search:search", libraries=at("pipeline.dense.search:libraries"), gpu=True, parts=True
    ),
    "adopt": Stage("pipeline.modeling.adopt:adopt", missing=at("pipeline.modeling.adopt:missing")),
    "mine": Stage("pipeline.negatives.mine:mine", parts=True),
    "given": Stage("pipeline.negatives.from_file:given", missing=at("pipeline.negatives.from_file:missing")),
    "cross_encoder": Stage(
        "pipeline.cross_encoder.cross_encoder:cross_encoder",
        missing=at("pipeline.cross_encoder.cross_encoder:missing"),
        gpu=True,
    ),
    "scores": Stage("pipeline.cross_encoder.soft_labels:scores", gpu=True),
    "denoise": Stage("pipeline.negatives.denoise:denoise"),
    "pseudo": Stage("pipeline.negatives.pseudo_labels:pseudo", gpu=True),
    "rerank": Stage("pipeline.cross_encoder.rerank:rerank", gpu=True),
    "evaluate": Stage("pipeline.evaluate.evaluate:evaluate", missing=at("pipeline.evaluate.evaluate:missing")),
    "attention": Stage("pipeline.evaluate.attention:attention", unread=always("text"), gpu=True),
    "report": Stage("pipeline.report.build:report", identity="key", lineage=True),  # times are no input of it
    "sentence_table": Stage(
        "pipeline.sentences.tables:sentence_table", missing=at("pipeline.sentences.tables:missing")
    ),
    "sentence_model": Stage("pipeline.sentences.model:sentence_model", missing=at("pipeline.sentences.model:missing")),
    "sentence_tune": Stage("pipeline.sentences.tune:tune", libraries=always("tokenizers"), gpu=True),
    "sentence_summary": Stage("pipeline.sentences.summary:summary"),
    "ablation": Stage("pipeline.ablation.ablation:ablation"),
}
