"""Every stage of the flow, in one entry each: add one here.

Nothing of a stage is imported before it is called.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from pipeline.errors import InputError
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics
from tasks.notices import CUT, CUT_IN_TRAINING, FILLED, SKIPPED, NoticeTexts

Check = Callable[[Planned], Iterable[InputError] | None]
"""See pipeline/runtime/planned.py."""
AT_START = ""
"""Instead of a node's name: before anything is built."""
PRETRAINED_FROM = ("tokens", "tokens-pretraining", "initial")
"""Nodes that a pre-training may read."""


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
    checks: Mapping[str, Check] = field(default_factory=dict)
    """{node: what will fail of the stage, known once that node's artifact is there (or `AT_START`)}."""
    section: str = ""
    """The recipe's section that configures it. Empty: called as its nodes are, up to the first dash (`stage2-2`).

    A section that flows/recipes/recipe.py does not list has the class of the function's `config`, or is null.
    """
    places: Mapping[str, str] = field(default_factory=dict)
    """{NODE or NODE.FIELD: where the recipe has it} of nodes whose section is another."""
    gpu: bool = False
    """Computes on the GPU where there is one, and so waits for its turn there."""
    earlier: bool = False
    """Takes over parts of what the same code made before."""
    parts: bool = False
    """Made in shards, which go to Ray where `machine.ray` says so."""
    lineage: bool = False
    """Is given `lineage`: what its inputs were made from, and what that took. Its bytes then are not its identity."""

    notices: NoticeTexts = field(default_factory=dict)
    """Counts among the metrics that are reported to the user."""
    pretrains: bool = False
    """Its model is the pre-trained one, unless a later such stage of this list follows."""
    shown: bool = False
    """Its figures and pages are shown at the end of a run, although other stages read them."""

    def section_of(self, node: str) -> str:
        """The recipe's section of a node: `stage2` of stage2-2, also in an ablation (`stage2-2 (BERT)`)."""
        own = node.partition(" (")[0]
        return self.places.get(own) or self.section or own.partition("-")[0]

    def field_of(self, node: str, name: str) -> str:
        """The recipe's name of a field of a node's configuration."""
        own = node.partition(" (")[0]
        return self.places.get(f"{own}.{name}", f"{self.section_of(node)}.{name}")

    @cached_property
    def function(self) -> Callable[..., Metrics]:
        """Imports the stage's module."""
        return resolve_name(self.call) if isinstance(self.call, str) else self.call


def at(place: str) -> Callable[..., Any]:
    """The function at `module:name`, whose module is imported when the function is called."""
    return partial(_call, place)


def _call(place: str, *given: Any) -> Any:
    return resolve_name(place)(*given)


def always(*names: str) -> Callable[[Any], tuple[str, ...]]:
    """The same names, whatever the configuration."""
    return lambda config: names


STAGES: dict[str, Stage] = {
    "ingest": Stage(
        "pipeline.data.ingest:ingest",
        places={"ingest-pretraining": "pretraining"},
        sources=at("pipeline.data.ingest:sources"),
        missing=at("pipeline.data.ingest:missing"),
    ),
    "tokenizer": Stage(
        "pipeline.tokenization.tokenizer:tokenizer",
        libraries=always("tokenizers"),
        missing=at("pipeline.tokenization.tokenizer:missing"),
    ),
    "tokens": Stage(
        "pipeline.tokenization.tokens:tokens",
        libraries=always("tokenizers"),
        notices={
            "passages_cut": ("passages cut", "tokens.max_tokens"),
            "passages_without_tokens": ("passages whose text has no token, so that their titles alone are read", ""),
        },
    ),
    "bm25": Stage(
        "pipeline.bm25.bm25:bm25",
        identity="key",
        libraries=always("pyserini"),
        missing=at("pipeline.bm25.bm25:missing"),
    ),
    "initial": Stage(
        "pipeline.modeling.initial:initial", missing=at("pipeline.modeling.initial:missing"), pretrains=True
    ),
    "ict": Stage(
        "pipeline.pretrain.inverse_cloze:ict",
        missing=at("pipeline.pretrain.inverse_cloze:missing"),
        checks=dict.fromkeys(PRETRAINED_FROM, at("pipeline.pretrain.inverse_cloze:check_planned")),
        notices={
            "passages_one_sentence": ("passages left out of ICT, of one sentence", ""),
            "passages_without_segment": ("passages left out of ICT, without a long enough sentence", "ict.segment_min"),
            **SKIPPED,
        },
        unread=always("corpus"),
        pretrains=True,
        gpu=True,
    ),
    "condenser": Stage(
        "pipeline.pretrain.condenser:condenser",
        missing=at("pipeline.pretrain.condenser:missing"),
        checks=dict.fromkeys(PRETRAINED_FROM, at("pipeline.pretrain.condenser:check_planned")),
        notices=SKIPPED,
        pretrains=True,
        gpu=True,
    ),
    "cocondenser": Stage(
        "pipeline.pretrain.cocondenser:cocondenser",
        missing=at("pipeline.pretrain.cocondenser:missing"),
        checks=dict.fromkeys(PRETRAINED_FROM, at("pipeline.pretrain.cocondenser:check_planned")),
        notices={
            "documents_too_short": ("documents left out, too short for two spans", "cocondenser.span_min"),
            **SKIPPED,
        },
        unread=always("corpus"),
        pretrains=True,
        gpu=True,
    ),
    "finetune": Stage(
        "pipeline.finetune.finetune:finetune",
        checks={
            "ingest": at("pipeline.finetune.finetune:check_collection"),
            "tokens": at("pipeline.dense.shape_checks:check_prefixes"),
            "initial": at("pipeline.dense.shape_checks:check_lengths"),
        },
        notices={**CUT_IN_TRAINING, **FILLED, **SKIPPED},
        gpu=True,
    ),
    "encode": Stage(
        "pipeline.dense.encode:encode",
        checks={
            "tokens": at("pipeline.dense.shape_checks:check_prefixes"),
            "initial": at("pipeline.dense.shape_checks:check_lengths"),
        },
        gpu=True,
        earlier=True,
        parts=True,
    ),
    "index": Stage(
        "pipeline.dense.index:index",
        libraries=at("pipeline.dense.index_kinds:libraries"),
        unread=at("pipeline.dense.index_kinds:unread"),
        checks={
            AT_START: at("pipeline.dense.shape_checks:check_existing_dimension"),
            "ingest": at("pipeline.dense.shape_checks:check_index_passages"),
            "initial": at("pipeline.dense.shape_checks:check_index_dimension"),
        },
    ),
    "search": Stage(
        "pipeline.dense.search:search", libraries=at("pipeline.dense.search:libraries"), gpu=True, parts=True
    ),
    "adopt": Stage(
        "pipeline.modeling.adopt:adopt",
        places={"miner.checkpoint": "rounds.miner", "model.checkpoint": "model"},
        missing=at("pipeline.modeling.adopt:missing"),
    ),
    "mine": Stage("pipeline.negatives.mine:mine", parts=True, shown=True),
    "negatives_file": Stage(
        "pipeline.negatives.from_file:negatives_file",
        section="negatives_file",
        missing=at("pipeline.negatives.from_file:missing"),
        shown=True,
    ),
    "cross_encoder": Stage(
        "pipeline.cross_encoder.cross_encoder:cross_encoder",
        section="cross_encoder",
        missing=at("pipeline.cross_encoder.cross_encoder:missing"),
        checks={
            "ingest": at("pipeline.cross_encoder.cross_encoder:check_collection"),
            "initial": at("pipeline.cross_encoder.cross_encoder:check_model"),
        },
        notices={**FILLED, **CUT, **SKIPPED},
        gpu=True,
    ),
    "soft_labels": Stage(
        "pipeline.cross_encoder.soft_labels:soft_labels",
        section="soft_labels",
        checks={"ingest": at("pipeline.cross_encoder.soft_labels:check_collection")},
        notices=CUT,
        gpu=True,
    ),
    "denoise": Stage("pipeline.negatives.denoise:denoise"),
    "pseudo_labels": Stage(
        "pipeline.negatives.pseudo_labels:pseudo_labels", section="pseudo_labels", notices=CUT, gpu=True
    ),
    "rerank": Stage("pipeline.cross_encoder.rerank:rerank", notices=CUT, gpu=True),
    "evaluate": Stage(
        "pipeline.evaluate.evaluate:evaluate",
        missing=at("pipeline.evaluate.evaluate:missing"),
        checks={"ingest": at("pipeline.evaluate.evaluate:check_collection")},
        shown=True,
    ),
    "attention": Stage("pipeline.evaluate.attention:attention", unread=always("corpus"), gpu=True),
    "report": Stage("pipeline.report.build:report", identity="key", lineage=True),  # times are no input of it
    "sentence_table": Stage(
        "pipeline.sentences.tables:sentence_table",
        missing=at("pipeline.sentences.tables:missing"),
        notices={
            **{f"{s}_left_out": (f"rows of {s} left out by their label", "left_out") for s in ("train", "dev", "test")},
            **{f"{s}_in_train": (f"rows of {s} that are in train too", "") for s in ("dev", "test")},
        },
    ),
    "sentence_model": Stage("pipeline.sentences.model:sentence_model", missing=at("pipeline.sentences.model:missing")),
    "sentence_tune": Stage("pipeline.sentences.tune:tune", libraries=always("tokenizers"), gpu=True),
    "sentence_summary": Stage("pipeline.sentences.summary:summary"),
    "ablation": Stage("pipeline.ablation.ablation:ablation"),
}
