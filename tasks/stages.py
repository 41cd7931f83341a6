"""Every stage of the flow: its function, and what its key needs to know beside its configuration."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pipeline.bm25.bm25
import pipeline.cross_encoder.cross_encoder
import pipeline.data.ingest
import pipeline.dense.index_kinds
import pipeline.dense.search
import pipeline.evaluate.evaluate
import pipeline.modeling.adopt
import pipeline.modeling.initial
import pipeline.negatives.from_file
import pipeline.pretrain.cocondenser
import pipeline.pretrain.condenser
import pipeline.pretrain.inverse_cloze
import pipeline.sentences.model
import pipeline.sentences.tables
import pipeline.tokenization.tokenizer
from pipeline.ablation.ablation import ablation
from pipeline.bm25.bm25 import bm25
from pipeline.cross_encoder.cross_encoder import cross_encoder
from pipeline.cross_encoder.rerank import rerank
from pipeline.cross_encoder.soft_labels import scores
from pipeline.data.ingest import ingest
from pipeline.dense.encode import encode
from pipeline.dense.index import index
from pipeline.dense.search import search
from pipeline.evaluate.attention import attention
from pipeline.evaluate.evaluate import evaluate
from pipeline.finetune.finetune import finetune
from pipeline.modeling.adopt import adopt
from pipeline.modeling.initial import initial
from pipeline.negatives.denoise import denoise
from pipeline.negatives.from_file import given
from pipeline.negatives.mine import mine
from pipeline.negatives.pseudo_labels import pseudo
from pipeline.pretrain.cocondenser import cocondenser
from pipeline.pretrain.condenser import condenser
from pipeline.pretrain.inverse_cloze import ict
from pipeline.report.build import report
from pipeline.runtime.work import Metrics
from pipeline.sentences.model import sentence_model
from pipeline.sentences.summary import summary
from pipeline.sentences.tables import sentence_table
from pipeline.sentences.tune import tune
from pipeline.tokenization.tokenizer import tokenizer
from pipeline.tokenization.tokens import tokens


@dataclass(frozen=True)
class Stage:
    function: Callable[..., Metrics]
    """`function(config, **inputs, work)`, the inputs by parameter name."""
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


def choice_of_text(config: Any) -> tuple[str, ...]:
    """The field that says which tokens are the stage's input."""
    return ("text",)


STAGES: dict[str, Stage] = {
    "ingest": Stage(ingest, sources=pipeline.data.ingest.sources, missing=pipeline.data.ingest.missing),
    "tokenizer": Stage(
        tokenizer, libraries=lambda config: ("tokenizers",), missing=pipeline.tokenization.tokenizer.missing
    ),
    "tokens": Stage(tokens, libraries=lambda config: ("tokenizers",)),
    "bm25": Stage(bm25, identity="key", libraries=lambda config: ("pyserini",), missing=pipeline.bm25.bm25.missing),
    "initial": Stage(initial, missing=pipeline.modeling.initial.missing),
    "ict": Stage(ict, missing=pipeline.pretrain.inverse_cloze.missing, unread=choice_of_text, gpu=True),
    "condenser": Stage(condenser, missing=pipeline.pretrain.condenser.missing, gpu=True),
    "cocondenser": Stage(cocondenser, missing=pipeline.pretrain.cocondenser.missing, unread=choice_of_text, gpu=True),
    "finetune": Stage(finetune, gpu=True),
    "encode": Stage(encode, gpu=True, earlier=True, parts=True),
    "index": Stage(index, libraries=pipeline.dense.index_kinds.libraries, unread=pipeline.dense.index_kinds.unread),
    "search": Stage(search, libraries=pipeline.dense.search.libraries, gpu=True, parts=True),
    "adopt": Stage(adopt, missing=pipeline.modeling.adopt.missing),
    "mine": Stage(mine, parts=True),
    "given": Stage(given, missing=pipeline.negatives.from_file.missing),
    "cross_encoder": Stage(cross_encoder, missing=pipeline.cross_encoder.cross_encoder.missing, gpu=True),
    "scores": Stage(scores, gpu=True),
    "denoise": Stage(denoise),
    "pseudo": Stage(pseudo, gpu=True),
    "rerank": Stage(rerank, gpu=True),
    "evaluate": Stage(evaluate, missing=pipeline.evaluate.evaluate.missing),
    "attention": Stage(attention, unread=choice_of_text, gpu=True),
    "report": Stage(report, identity="key", lineage=True),  # times are no part of what it was made from
    "sentence_table": Stage(sentence_table, missing=pipeline.sentences.tables.missing),
    "sentence_model": Stage(sentence_model, missing=pipeline.sentences.model.missing),
    "sentence_tune": Stage(tune, libraries=lambda config: ("tokenizers",), gpu=True),
    "sentence_summary": Stage(summary),
    "ablation": Stage(ablation),
}
