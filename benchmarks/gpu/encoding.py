"""Encoding passages: this project's way, a padded Hugging Face model, and sentence-transformers.

The first two start from ids, sorted by length. sentence-transformers starts from texts, and so does our way that it is
compared with; the tokenizer of both looks words up.

Shapes: N passages, B of a chunk, D dimensions.
"""

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import published
from benchmarks.gpu import inputs
from benchmarks.gpu.clock import Computed, Timing, Way, allocated, begin, held, most, wait
from benchmarks.gpu.inputs import LIMIT, Size
from pipeline.modeling.biencoder import Encoder, encode_rows
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.modeling.inputs import Ids
from pipeline.modeling.packing import packed_rows
from pipeline.runtime.precision import low_precision
from pipeline.tokenization.tokenizer import read_tokenizer
from pipeline.training import flops
from pipeline.training.memory import encoding_budget

BATCH = 384
"""Passages of a padded forward pass: 49,152 tokens."""
COMPARED = 1000
"""Passages whose vectors are compared."""


def encoder(size: Size, device: str) -> Encoder:
    one = inputs.encoder(size, device)
    one.model.eval()
    return one


def work(config: Any, ids: Ids) -> dict[str, float]:
    """Returns the tokens of the rows, and the operations that CLS vectors need."""
    length_N = np.sort([len(row) for row in ids])
    begin_N = length_N.cumsum() - length_N
    every = packed_rows(length_N, length_N, None, "cpu")
    first = packed_rows(length_N, np.ones_like(length_N), begin_N, "cpu")
    return {"tokens": float(length_N.sum()), "operations": flops.encoder(config, first, every)}


def way(encode: Callable[[Any], np.ndarray], model: Any, data: Any, work: dict[str, float], device: str) -> Way:
    """Returns a way that encodes all of `data` in a turn. The host reads vectors in between: it has no own time."""

    def turn() -> Timing:
        others = allocated(device) - held(model)
        begin(device)
        started = time.perf_counter()
        encode(data)
        wait(device)
        return Timing(time.perf_counter() - started, None, most(device, others), work)

    def compute() -> Computed:
        return Computed(None, torch.from_numpy(encode(data[:COMPARED]).astype(np.float32)).flatten())

    return Way(turn, compute)


def ours(one: Encoder, ids: Ids, device: str) -> Way:
    budget = encoding_budget("auto", device, one.model.config)
    return way(lambda data: encode_rows(one, data, budget), one.model, ids, work(one.model.config, ids), device)


def padded(size: Size, ids: Ids, device: str) -> Way:
    """Hugging Face's model with weights in bfloat16 and SDPA attention, sorted and padded."""
    model = encoder(size, device).model.to(low_precision(device) or torch.float32)
    model.set_attn_implementation("sdpa")

    def encode(data: Ids) -> np.ndarray:
        vector_ND = np.empty((len(data), model.config.hidden_size), np.float32)
        order = np.argsort([-len(row) for row in data], kind="stable")
        with torch.inference_mode():
            for first in range(0, len(order), BATCH):
                row_B = order[first : first + BATCH]
                filled = published.filled([data[row] for row in row_B], len(data[row_B[0]]), 0)
                hidden_BLD = model(
                    input_ids=filled.ids_BL.to(device), attention_mask=filled.attention_BL.to(device)
                ).last_hidden_state
                vector_ND[row_B] = hidden_BLD[:, 0].float().cpu().numpy()
        return vector_ND

    return way(encode, model, ids, {}, device)


def write_model(one: Encoder, folder: Path) -> None:
    """Writes the encoder with a tokenizer whose words are `w5`, `w6` ... for the ids 5, 6 ..."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    names = special + [f"w{i}" for i in range(5, one.model.config.vocab_size)]
    tokenizer = Tokenizer(WordPiece({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder / "tokenizer")
    save_checkpoint(folder / "model", one.model, folder / "tokenizer")


def texts(ids: Ids) -> list[str]:
    """Returns the text of each row."""
    return [" ".join(f"w{i}" for i in row[1:-1]) for row in ids]


def ours_from_texts(one: Encoder, folder: Path, data: list[str], work: dict[str, float], device: str) -> Way:
    tokenizer, budget = read_tokenizer(folder / "model"), encoding_budget("auto", device, one.model.config)
    tokenizer.no_padding()

    def encode(some: list[str]) -> np.ndarray:
        ids = [np.array(found.ids, np.int64) for found in tokenizer.encode_batch(some)]
        return encode_rows(one, ids, budget)

    return way(encode, one.model, data, work, device)


def sentence_transformers(folder: Path, data: list[str], device: str) -> Way:
    """Its `encode` in bfloat16; unpadded with flash-attention if that package is installed, otherwise padded."""
    from sentence_transformers import SentenceTransformer

    options: dict[str, Any] = {"attn_implementation": attention()}
    if dtype := low_precision(device):
        options["dtype"] = dtype
    model = SentenceTransformer(str(folder / "model"), device=device, model_kwargs=options)
    model.max_seq_length = LIMIT

    def encode(some: list[str]) -> np.ndarray:
        return np.asarray(model.encode(some, batch_size=BATCH, show_progress_bar=False), np.float32)

    return way(encode, model, data, {}, device)


def attention() -> str:
    return "flash_attention_2" if find_spec("flash_attn") else "sdpa"
