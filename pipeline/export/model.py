"""Exports the model for sentence-transformers (6 or newer) and AutoModel, which then read texts as the project does.

The export adds settings that a checkpoint's files lack: maximum lengths of questions and passages, the separator
between title and text (the tokenizer's template for a pair), and that `[SEP]` in a text is text.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from pipeline.data.collection import at_rows, read_queries
from pipeline.export.source import Sample, Source, cut_encoders, prompt
from pipeline.modeling.biencoder import Encoder
from pipeline.modeling.checkpoint import encoder_options, save_checkpoint
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.model_files.sentence_transformers_files import (
    DENSE,
    MODULES,
    NORMALISE,
    POOLING,
    read_vector,
    side,
    write_json,
    write_prompts,
)
from pipeline.runtime.work import Progress
from pipeline.tokenization.tokenizer import special_tokens

SIDES = {"query": "query", "passage": "document"}
"""Folders of an untied model -> names of the two sides in sentence-transformers."""


def write_model(
    checkpoint: Path, folder: Path, encoder: EncoderConfig, passage_tokens: int, dimension: int | None = None
) -> None:
    """Writes the model of `checkpoint`; an untied one as `query/` and `passage/`, with a router for both.

    `dimension`: numbers to which a projection cuts its vectors, because settings of sentence-transformers such as
    `truncate_dim` would cut them after the normalisation, and other tools do not know them. None: all. Raises
    InputError for a folder without a loadable model.
    """
    lengths = {"query": encoder.question_tokens, "passage": passage_tokens}
    sides = dict(zip(SIDES, cut_encoders(checkpoint, dimension), strict=True))
    if sides["query"] is sides["passage"]:
        _write(folder, checkpoint, sides["passage"], encoder, lengths)
        return
    for name, model in sides.items():
        _write(folder / name, checkpoint / name, model, encoder, {name: lengths[name]})
    _write_router(folder, sides, encoder)


def _write(folder: Path, checkpoint: Path, model: Encoder, encoder: EncoderConfig, lengths: dict[str, int]) -> None:
    question, passage = prompt(encoder.question_prefix), prompt(encoder.passage_prefix)
    dense = model.projection.dense if model.projection else None
    vector = replace(read_vector(checkpoint), projection=dense, question_prefix=question, passage_prefix=passage)
    save_checkpoint(folder, model.model, checkpoint, vector=vector)
    longest = max(lengths.values())
    settings: dict[str, Any] = {f"{SIDES[side]}_length": length for side, length in lengths.items()}
    settings["max_seq_length"] = longest  # without it text-embeddings-inference does not start
    if options := encoder_options(checkpoint):
        # Otherwise transformers warns about a missing pooler, and creates an unused random one.
        settings["model_kwargs"] = options
    write_json(folder / "sentence_bert_config.json", settings)
    write_tokenizer(checkpoint, folder, encoder.title_separator, longest)


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
    for part, model in sides.items():
        modules = {part: "Transformer", f"{part}/{POOLING}": "Pooling"}
        modules |= {f"{part}/{DENSE}": "Dense"} if model.projection else {}
        modules |= {f"{part}/{NORMALISE}": "Normalize"} if model.normalise else {}
        types |= {path: MODULES + name for path, name in modules.items()}
        structure[SIDES[part]] = [*modules]
    parameters = {"default_route": "document", "allow_empty_key": True}
    write_json(folder / "router_config.json", {"types": types, "structure": structure, "parameters": parameters})
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": MODULES + "Router"}])
    write_prompts(folder, prompt(encoder.question_prefix), prompt(encoder.passage_prefix))


def differing_inputs(source: Source, folder: Path, texts: Sample, progress: Progress) -> dict[str, int]:
    """Returns the sample's numbers of questions and passages, and of those that `folder`'s model reads differently.

    These are passages with a title that the project cuts.
    """
    from transformers import AutoTokenizer

    query = AutoTokenizer.from_pretrained(side(folder, "query"))
    passage = AutoTokenizer.from_pretrained(side(folder, "passage"))
    queries = read_queries(source.collection)
    before = prompt(source.encoder.question_prefix)
    questions = [before + queries[place].text for place in texts.questions]
    rows = at_rows(source.collection / "passages.parquet", texts.passages, ["title", "text"]).to_pylist()
    passages = [_passage_input(source, row["title"], row["text"]) for row in rows]
    progress(0, len(questions) + len(passages), "texts")
    return {
        "questions": len(questions),
        "questions_differing": _unequal(query, questions, source.encoder.question_tokens, texts.question_rows),
        "passages": len(passages),
        "passages_differing": _unequal(passage, passages, source.passage_tokens, texts.passage_rows),
    }


def _passage_input(source: Source, title: str, text: str) -> str | tuple[str, str]:
    """Returns a passage as input of sentence-transformers, after its prompt."""
    before = prompt(source.encoder.passage_prefix)
    return (before + title, text) if title and source.encoder.title_tokens else before + text


def _unequal(tokenizer: Any, texts: Sequence[Any], longest: int, rows: Sequence[np.ndarray]) -> int:
    token_ids = [tokenizer([text], truncation=True, max_length=longest)["input_ids"][0] for text in texts]
    return sum(ids != row.tolist() for ids, row in zip(token_ids, rows, strict=True))
