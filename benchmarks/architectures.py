"""Encoding passages with one model of each family, of random weights, against sentence-transformers (encode.py).

BERT's family has the rows `encode_mini` to `encode_base`. RoBERTa stands for XLM-RoBERTa and CamemBERT, DeBERTa for
the models that are padded.
"""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForMaskedLM

from benchmarks.data import FOLDER, pydocs
from benchmarks.encode import ROUNDS, TEXTS, TOLERANCE, check_equal_vectors, ways
from benchmarks.paired import interleave, ratio, seconds
from benchmarks.steps import LIMIT, SHAPES
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.modeling.model_files.model_config import AFTER_PADDING, own_name
from pipeline.tokenization.tokenizer import read_tokenizer, special_tokens

TYPES = ("roberta", "electra", "distilbert", "mpnet", "modernbert", "deberta-v2")
SHAPE = "minilm"


def write_model(model_type: str, folder: Path) -> None:
    """Writes a random encoder with CLS pooling, as a checkpoint of this project."""
    torch.manual_seed(0)
    tokens, sizes = pydocs(), SHAPES[SHAPE]
    specials, _ = special_tokens(read_tokenizer(FOLDER / "tokenizer"))
    fields: dict[str, Any] = {
        "vocab_size": tokens.specials.vocab_size,
        "num_hidden_layers": sizes["layers"],
        "hidden_size": sizes["hidden_size"],
        "embedding_size": sizes["hidden_size"],
        "num_attention_heads": sizes["heads"],
        "intermediate_size": sizes["intermediate_size"],
        "max_position_embeddings": LIMIT + (2 if model_type in AFTER_PADDING else 0),
        "pad_token_id": specials.pad,
        **dict.fromkeys(("bos_token_id", "cls_token_id"), specials.cls),
        **dict.fromkeys(("eos_token_id", "sep_token_id"), specials.sep),
    }
    config = AutoConfig.for_model(model_type, **{own_name(model_type, name): x for name, x in fields.items()})
    save_checkpoint(folder, AutoModelForMaskedLM.from_config(config).base_model, FOLDER / "tokenizer")


def measure(model_type: str) -> float:
    """Returns seconds of sentence-transformers over ours."""
    with tempfile.TemporaryDirectory() as place:
        write_model(model_type, Path(place))
        figures = interleave(ways(SHAPE, Path(place)), ROUNDS[SHAPE], batches=1)
    check_equal_vectors({name: steps[0] for name, steps in figures.items()}, TOLERANCE)
    rates = ", ".join(f"{name} {TEXTS[SHAPE] / seconds(steps):,.0f}/s" for name, steps in figures.items())
    print(f"{model_type}: {rates}", file=sys.stderr)
    return ratio(figures["sentence-transformers"], figures["ours"])


ROWS = {f"encode_{model_type}": partial(measure, model_type) for model_type in TYPES}
