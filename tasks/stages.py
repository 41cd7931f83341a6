"""The registry: one entry for each stage. Add a stage here.

A stage's module is imported when the stage is called.
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
from tasks.notices import CUT, CUT_IN_TRAINING, FILLED, SHORTER, SKIPPED, NoticeTexts

Check = Callable[[Planned], Iterable[InputError] | None]
"""See pipeline/runtime/planned.py."""
AT_START = ""
"""Used instead of a node's name for checks before anything is built."""
PRETRAINED_FROM = ("tokens", "tokens-pretraining", "initial")
"""Nodes that a pre-training may read."""
OTHER = "-other-"
"""Before the name of a further collection (`evaluate.others`) in the names of its nodes: `ingest-other-scifact`."""
PAIRS_READ_BY = ("initial", "cross-initial", "tokens-cross-encoder")
"""Nodes after which it is known what a cross-encoder reads."""


@dataclass(frozen=True)
class Stage:
    call: str | Callable[..., Metrics]
    """`module:name` of `function(config, **inputs, work)`, the inputs by parameter name."""
    identity: Literal["content", "key"] = "content"
    """What represents the artifact in later keys: `key` if equal inputs may give different bytes."""
    libraries: Callable[[Any], tuple[str, ...]] = lambda config: ()
    """Returns the libraries whose version changes the bytes, for a configuration."""
    unread: Callable[[Any], tuple[str, ...]] = lambda config: ()
    """Returns the fields that the stage ignores because of the values of other fields."""
    unkeyed: tuple[str, ...] = ()
    """Inputs that only messages read: no key counts them, and one artifact may serve several."""
    sources: Callable[[Any], dict[str, Path]] | None = None
    """Returns files and folders that the stage reads in addition to the configuration's Path fields."""
    missing: Callable[[Any], list[str]] | None = None
    """Returns lines about missing or unusable inputs from outside, and how to provide them."""
    checks: Mapping[str, Check] = field(default_factory=dict)
    """{node: checks of the stage that run as soon as that node's artifact exists (or `AT_START`)}."""
    section: str = ""
    """The recipe's section that configures it. Empty: called as its nodes are, up to the first dash (`stage2-2`).

    A section that is no field of `Sections` (flows/recipes/sections.py) has the class of the function's `config`, or
    is null.
    """
    places: Mapping[str, str] = field(default_factory=dict)
    """{NODE or NODE.FIELD: where the recipe has it} for nodes with another section."""
    gpu: bool = False
    """Computes on the GPU if there is one, and waits until no other run uses it."""
    takes_turns: bool = False
    """Holds the GPU only while it computes, by `work.gpu_turn`: other parts of it take long."""
    float32: bool = False
    """Its model computes in float32, whatever `machine.precision` is."""
    earlier: bool = False
    """Reuses parts of artifacts that the same code built before."""
    parts: bool = False
    """Builds shards, on Ray if `machine.ray` is set."""
    lineage: bool = False
    """Receives `lineage`: what its inputs were built from, the cost, and the speed of searches. Then its bytes are not
    its identity."""

    sizes: Mapping[str, str] = field(default_factory=dict)
    """{count among the metrics: what it counts} that the user sees next to the artifact."""
    notices: NoticeTexts = field(default_factory=dict)
    """Counts among the metrics that the user sees as notices."""
    pretrains: bool = False
    """Its model is the pre-trained one, unless a later such stage of this list follows."""
    shown: bool = False
    """Its figures and pages are shown at the end of a run, although other stages read them."""

    def section_of(self, node: str) -> str:
        """Returns the recipe's section of a node: `stage2` of stage2-2, also in an ablation (`stage2-2 (BERT)`)."""
        own = _own_name(node)
        return self.places.get(own) or self.section or own.partition("-")[0]

    def field_of(self, node: str, name: str) -> str:
        """Returns the recipe's name of a field of a node's configuration."""
        own = _own_name(node)
        return self.places.get(f"{own}.{name}", f"{self.section_of(node)}.{name}")

    @cached_property
    def function(self) -> Callable[..., Metrics]:
        """Imports the stage's module."""
        return resolve_name(self.call) if isinstance(self.call, str) else self.call


def _own_name(node: str) -> str:
    """Returns a node's name without the row of an ablation, and without the name of a further collection."""
    own, other, _ = node.partition(" (")[0].partition(OTHER)
    return own + other.rstrip("-")


def at(place: str) -> Callable[..., Any]:
    """Returns the function at `module:name`; its module is imported at the first call."""
    return partial(_call, place)


def _call(place: str, *given: Any) -> Any:
    return resolve_name(place)(*given)


def always(*names: str) -> Callable[[Any], tuple[str, ...]]:
    """Returns a hook that gives these names for every configuration."""
    return lambda config: names


STAGES: dict[str, Stage] = {
    "ingest": Stage(
        "pipeline.data.ingest:ingest",
        libraries=at("pipeline.data.ingest:libraries"),
        places={"ingest-pretraining": "pretraining", "ingest-other.folder": "evaluate.others"},
        sources=at("pipeline.data.ingest:sources"),
        missing=at("pipeline.data.ingest:missing"),
        sizes={"documents": "documents", "passages": "passages", "queries": "questions"},
    ),
    "tokenizer": Stage(
        "pipeline.tokenization.tokenizer:tokenizer",
        places={
            "tokenizer-cross-encoder.path": "cross_encoder.checkpoint",
            "tokenizer-cross-initial": "cross_encoder_initial",
            "tokenizer-cross-initial.path": "cross_encoder_initial.checkpoint",
            "tokenizer-miner.path": "rounds.miner",
        },
        libraries=always("tokenizers"),
        missing=at("pipeline.tokenization.tokenizer:missing"),
    ),
    "tokens": Stage(
        "pipeline.tokenization.tokens:tokens",
        libraries=always("tokenizers", "sentencex"),
        notices={
            "passages_cut": ("passages cut", f"raise tokens.max_tokens if the model reads more, {SHORTER}"),
            "passages_without_tokens": ("passages whose text has no token, so that their titles alone are read", ""),
        },
    ),
    "bm25": Stage(
        "pipeline.bm25.bm25:bm25",
        identity="key",
        libraries=at("pipeline.bm25.bm25:libraries"),
        missing=at("pipeline.bm25.bm25:missing"),
    ),
    "initial": Stage(
        "pipeline.modeling.initial:initial",
        places={"cross-initial": "cross_encoder_initial"},
        missing=at("pipeline.modeling.initial:missing"),
        pretrains=True,
    ),
    "ict": Stage(
        "pipeline.pretrain.inverse_cloze:ict",
        missing=at("pipeline.pretrain.inverse_cloze:missing"),
        checks=dict.fromkeys(PRETRAINED_FROM, at("pipeline.pretrain.inverse_cloze:check_planned")),
        notices={
            "passages_one_sentence": ("passages left out of ICT, of one sentence", ""),
            "passages_without_segment": ("passages left out of ICT, without a long enough sentence", "ict.segment_min"),
            "passages_cut": (
                "passages cut for ICT",
                f"raise ict.passage_tokens as far as the model allows, {SHORTER}",
            ),
            **SKIPPED,
        },
        unread=always("corpus"),
        pretrains=True,
        gpu=True,
    ),
    "condenser": Stage(
        "pipeline.pretrain.condenser:condenser",
        missing=at("pipeline.pretrain.condenser:missing"),
        checks={
            AT_START: at("pipeline.pretrain.start:check_type"),
            **dict.fromkeys(PRETRAINED_FROM, at("pipeline.pretrain.condenser:check_planned")),
        },
        notices=SKIPPED,
        pretrains=True,
        gpu=True,
    ),
    "cocondenser": Stage(
        "pipeline.pretrain.cocondenser:cocondenser",
        missing=at("pipeline.pretrain.cocondenser:missing"),
        checks={
            AT_START: at("pipeline.pretrain.start:check_type"),
            **dict.fromkeys(PRETRAINED_FROM, at("pipeline.pretrain.cocondenser:check_planned")),
        },
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
            "initial": at("pipeline.dense.shape_checks:check_training"),
        },
        notices={**CUT_IN_TRAINING, **FILLED, **SKIPPED},
        gpu=True,
    ),
    "encode": Stage(
        "pipeline.dense.encode:encode",
        unkeyed=("collection",),
        checks={
            **dict.fromkeys(("tokens", "tokens-miner"), at("pipeline.dense.shape_checks:check_prefixes")),
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
    "adapt": Stage(
        "pipeline.adapt.adapt:adapt",
        section="adapt",
        libraries=always("pyserini", "sentencex", "tokenizers"),
        checks={AT_START: at("pipeline.adapt.adapt:check_start")},
        gpu=True,
    ),
    "fusion_labels": Stage(
        "pipeline.adapt.fusion_labels:fusion_labels",
        section="fusion_labels",
        checks={"ingest": at("pipeline.finetune.soft_label_pairs:check_collection")},
    ),
    "map_vectors": Stage("pipeline.adapt.map_vectors:map_vectors"),
    "generate": Stage(
        "pipeline.generate.generate:generate",
        section="generate",
        libraries=at("pipeline.generate.generate:libraries"),
        unread=at("pipeline.generate.generate:unread"),
        missing=at("pipeline.generate.generate:missing"),
        gpu=True,
        takes_turns=True,
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
            **dict.fromkeys(PAIRS_READ_BY, at("pipeline.cross_encoder.cross_encoder:check_model")),
        },
        notices={**FILLED, **CUT, **SKIPPED},
        gpu=True,
    ),
    "soft_labels": Stage(
        "pipeline.cross_encoder.soft_labels:soft_labels",
        section="soft_labels",
        unkeyed=("run",),
        checks={"ingest": at("pipeline.finetune.soft_label_pairs:check_collection")},
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
        places={"evaluate-other": "evaluate.others"},
        checks={"ingest": at("pipeline.evaluate.evaluate:check_collection")},
        shown=True,
    ),
    "dimensions": Stage(
        "pipeline.evaluate.dimensions:dimensions",
        identity="key",
        places={"dimensions": "evaluate"},
        lineage=True,  # for the speed of the searches
        shown=True,
    ),
    "others": Stage("pipeline.evaluate.others:others", places={"others": "evaluate"}, shown=True),
    "attention": Stage("pipeline.evaluate.attention:attention", unread=always("corpus"), gpu=True, float32=True),
    "report": Stage("pipeline.report.build:report", identity="key", lineage=True),  # times are not an input
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
