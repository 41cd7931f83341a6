"""Exports the model for sentence-transformers (6 or newer) and AutoModel, which then read texts as the project does.

The export adds settings that a checkpoint's files lack: maximum lengths of questions and passages, the separator
between title and text (the tokenizer's template for a pair), and that `[SEP]` in a text is text.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from pipeline.export.source import prompt
from pipeline.modeling.biencoder import Encoder, load_encoders
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.sentence_transformers_files import (
    DENSE,
    MODULES,
    NORMALISE,
    POOLING,
    read_vector,
    write_json,
    write_prompts,
)
from pipeline.tokenization.tokenizer import special_tokens

SIDES = {"query": "query", "passage": "document"}
"""Folders of an untied model -> names of the two sides in sentence-transformers."""


def write_model(checkpoint: Path, folder: Path, encoder: EncoderConfig, passage_tokens: int) -> None:
    """Writes the model of `checkpoint`; an untied one as `query/` and `passage/`, with a router for both.

    Raises InputError for a folder without a loadable model.
    """
    lengths = {"query": encoder.question_tokens, "passage": passage_tokens}
    sides = dict(zip(SIDES, load_encoders(checkpoint), strict=True))
    if sides["query"] is sides["passage"]:
        _write(folder, checkpoint, sides["passage"], encoder, lengths)
        return
    for side, model in sides.items():
        _write(folder / side, checkpoint / side, model, encoder, {side: lengths[side]})
    _write_router(folder, sides, encoder)


def _write(folder: Path, checkpoint: Path, model: Encoder, encoder: EncoderConfig, lengths: dict[str, int]) -> None:
    question, passage = prompt(encoder.question_prefix), prompt(encoder.passage_prefix)
    vector = replace(read_vector(checkpoint), question_prefix=question, passage_prefix=passage)
    save_checkpoint(folder, model.model, checkpoint, vector=vector)
    settings: dict[str, Any] = {f"{SIDES[side]}_length": longest for side, longest in lengths.items()}
    # Otherwise transformers warns about a missing pooler, and creates an unused random one.
    settings["model_kwargs"] = {"add_pooling_layer": False}
    write_json(folder / "sentence_bert_config.json", settings)
    write_tokenizer(checkpoint, folder, encoder.title_separator, [*lengths.values()][-1])


def write_tokenizer(source: Path, folder: Path, title_separator: str, longest: int) -> None:
    """Writes `source`'s tokenizer with this project's input format for a text, and for a pair of title and text.

    `longest`: default maximum number of tokens.
    """
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    specials, names = special_tokens(tokenizer)
    cls, sep = names["cls_token"], names["sep_token"]
    tokenizer.post_processor = TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B {sep}" if title_separator == "sep" else f"{cls} $A $B {sep}",
        special_tokens=[(cls, specials.cls), (sep, specials.sep)],
    )
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n", "utf-8")
    description = json.loads((source / "tokenizer_config.json").read_text("utf-8"))
    own = {"model_max_length": longest, "split_special_tokens": True}
    write_json(folder / "tokenizer_config.json", {**description, **own})


def _write_router(folder: Path, sides: dict[str, Encoder], encoder: EncoderConfig) -> None:
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for side, model in sides.items():
        parts = {side: "Transformer", f"{side}/{POOLING}": "Pooling"}
        parts |= {f"{side}/{DENSE}": "Dense"} if model.projection else {}
        parts |= {f"{side}/{NORMALISE}": "Normalize"} if model.normalise else {}
        types |= {path: MODULES + name for path, name in parts.items()}
        structure[SIDES[side]] = [*parts]
    parameters = {"default_route": "document", "allow_empty_key": True}
    write_json(folder / "router_config.json", {"types": types, "structure": structure, "parameters": parameters})
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": MODULES + "Router"}])
    write_prompts(folder, prompt(encoder.question_prefix), prompt(encoder.passage_prefix))
