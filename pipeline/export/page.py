"""Writes the README.md of an export."""

import json
import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.evaluate.config import SPLITS
from pipeline.export.source import Source, prompt


def write_page(
    source: Source,
    folder: Path,
    parts: Collection[str],
    reading: Mapping[str, int] | None,
    onnx: Mapping[str, Any] | None,
) -> None:
    """Writes a description of `folder` and how to load each part; every code block runs in that folder.

    `reading`: the result of `reading.differing`; `onnx`: the content of onnx.json.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from pipeline.dense.index_files import open_index
    from pipeline.export.card import card, markdown
    from pipeline.formatting import counted, share_text

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"counted": counted, "share": share_text, "repr": repr, "md": markdown}
    text = environment.get_template("README.md.jinja").render(
        source=source,
        encoder=source.encoder,
        parts=parts,
        card=card(source),
        **(_of_model(source) if {"model", "onnx"} & {*parts} else {"vector": None}),
        before_question=prompt(source.encoder.question_prefix),
        before_passage=prompt(source.encoder.passage_prefix),
        reading=reading,
        onnx=onnx,
        kind=open_index(source.served).kind if "index" in parts and source.served else None,
        runs=[*source.runs, *(["fusion"] if source.fusion else [])],
        qrels=next((split for split in SPLITS if (folder / "run" / f"qrels.{split}.trec").is_file()), None),
    )
    (folder / "README.md").write_text(text, "utf-8")


def _of_model(source: Source) -> dict[str, Any]:
    """Returns the page's values about an exported model."""
    from pipeline.modeling.biencoder import as_projection, cut_projection
    from pipeline.modeling.checkpoint import encoder_options
    from pipeline.modeling.model_files.model_config import model_config
    from pipeline.modeling.model_files.sentence_transformers_files import is_tied, read_vector, side
    from pipeline.tokenization.tokenizer import read_tokenizer, special_tokens

    checkpoint = source.checkpoint
    tied, question_model = is_tied(checkpoint), side(checkpoint, "query")
    vector = read_vector(question_model)
    config = model_config(question_model)
    cut = cut_projection(as_projection(vector.projection), config["hidden_size"], source.dimension)
    dense = cut.dense if cut else None
    vector = replace(vector, projection=dense)
    specials, names = special_tokens(read_tokenizer(question_model))
    return {
        "vector": vector,
        "tei": _requests(source, vector.normalise),
        "dimension": config["hidden_size"] if dense is None else len(dense.weight_ED),
        "options": "".join(f", {name}={value}" for name, value in encoder_options(question_model).items()),
        "tied": tied,
        "query": "model" if tied else "model/query",
        "onnx_query": "model" if tied else "query",
        "onnx_passage": "model" if tied else "passage",
        "pad": (specials.pad, names["pad_token"]),
        "sep": names["sep_token"],
    }


def _requests(source: Source, normalise: bool) -> dict[str, str]:
    """Returns bodies of requests to text-embeddings-inference, quoted for a shell. It normalises unless told not to."""
    texts = {
        "question": prompt(source.encoder.question_prefix) + source.question,
        "passage": prompt(source.encoder.passage_prefix) + "the passage's text",
    }
    own = {} if normalise else {"normalize": False}
    return {name: shlex.quote(json.dumps({"inputs": text, "truncate": True, **own})) for name, text in texts.items()}
