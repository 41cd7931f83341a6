"""Encoding passages, one thread, against sentence-transformers' `encode` on the same texts, the same model folder.

Both ways start from texts, so they tokenise; texts are pydocs in pieces as long as coCondenser's spans (MS MARCO's
passages are about as long), at most 128 tokens with special ones. encode_sgemm: the products of matrices that all
layers would need at all real tokens, in the seconds that they need here, over the machine's own rate. It is above 1 if
the savings in the last layer outweigh all other work. The least of the three shapes counts.
"""

import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.data import FOLDER, pydocs
from benchmarks.paired import Figures, Step, Way, interleave, ratio, seconds
from benchmarks.steps import BUDGET, LIMIT, new_module
from pipeline.modeling.biencoder import Encoder, encode_rows, load_encoders
from pipeline.modeling.checkpoint import save_checkpoint
from pipeline.modeling.inputs import Form, Ids, passage_row
from pipeline.modeling.packing import packed_rows
from pipeline.pretrain.spans import long_enough
from pipeline.runtime.launch import ENCODING
from pipeline.tokenization.tokenizer import read_tokenizer, special_tokens
from pipeline.tokenization.tokens import encode
from pipeline.training import flops

TEXTS = {"mini": 1024, "minilm": 512, "base": 128}
ROUNDS = {"mini": 6, "minilm": 4, "base": 3}
TOLERANCE = 1e-4
"""Tolerance of a vector's numbers, which the last normalisation keeps near 1."""


def texts(number: int) -> list[str]:
    """Pieces of pydocs drawn at random: a document of n tokens gives one of n / 2, the length of a span."""
    data, tokenizer = pydocs(), read_tokenizer(FOLDER / "tokenizer")
    edges = data.passages.offsets[data.doc_offsets]
    length_D = np.diff(edges)
    drawn = np.random.default_rng(0).choice(np.flatnonzero(long_enough(length_D, 16)), number, replace=False)
    ends = edges[drawn] + np.minimum(length_D[drawn] // 2, LIMIT - 2)
    return [tokenizer.decode(data.passages.tokens[a:b].tolist()) for a, b in zip(edges[drawn], ends, strict=True)]


def write_model(shape: str, folder: Path) -> None:
    """Writes a random BERT with CLS pooling, as a checkpoint of this project."""
    lm: Any = new_module(shape, dropout=0.0)["lm"]
    pydocs()  # writes the tokenizer
    save_checkpoint(folder, lm.base_model, FOLDER / "tokenizer")


def encode_texts(encoder: Encoder, tokenizer: Tokenizer, given: list[str], limit: int = LIMIT) -> np.ndarray:
    """Returns this program's vectors of texts, of at most `limit` tokens, float32 [N, E]."""
    return encode_rows(encoder, token_rows(tokenizer, given, limit), BUDGET)


def token_rows(tokenizer: Tokenizer, given: list[str], limit: int) -> Ids:
    """Returns the ids of each text, of at most `limit` tokens, special ones included."""
    form = Form(special_tokens(tokenizer)[0], question_tokens=limit, title_tokens=0)
    return [passage_row(np.array([]), np.array(one), form, limit) for one in encode(tokenizer, given)]


def ours(*, shape: str, model: str) -> Step:
    given, tokenizer = texts(TEXTS[shape]), read_tokenizer(Path(model))
    encoder = load_encoders(Path(model))[1]
    needed = product_operations(encoder.model.config, [len(one) + 2 for one in encode(tokenizer, given, LIMIT - 2)])
    return lambda _: {"operations": needed, **seen(encode_texts(encoder, tokenizer, given))}


def theirs(*, shape: str, model: str) -> Step:
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    given, encoder = texts(TEXTS[shape]), SentenceTransformer(model, device="cpu")
    encoder.max_seq_length = LIMIT
    return lambda _: seen(encoder.encode(given, show_progress_bar=False))


def seen(vectors_NE: np.ndarray) -> Figures:
    """Returns a few numbers of the vectors, to compare two ways."""
    return {f"vector {i}": float(vectors_NE[i, i % vectors_NE.shape[1]]) for i in range(0, len(vectors_NE), 16)}


def product_operations(config: Any, lengths: list[int]) -> float:
    """Returns the operations of the matrix products in all layers, at all tokens of rows of these lengths."""
    length_N = np.sort(lengths)
    every = packed_rows(length_N, length_N, None, "cpu")
    return flops.encoder(config, every, every)


def ways(shape: str, folder: Path) -> dict[str, Way]:
    """Returns the two ways to encode with the model in `folder`."""
    given = {"shape": shape, "model": str(folder)}
    return {
        "sentence-transformers": Way("benchmarks.encode:theirs", given, tuned=False),
        "ours": Way("benchmarks.encode:ours", given, tuned=True, kept=ENCODING),
    }


@cache
def measure(shape: str) -> tuple[float, float]:
    """Returns (seconds of sentence-transformers over ours, our rate as a share of the machine's matrix products)."""
    with tempfile.TemporaryDirectory() as place:
        write_model(shape, Path(place))
        of_models = ways(shape, Path(place))
        figures = interleave(
            {**of_models, "sgemm": Way("benchmarks.steps:sgemm", {}, tuned=True)}, ROUNDS[shape], batches=1
        )
    check_equal_vectors({name: figures[name][0] for name in of_models}, TOLERANCE)
    found = ratio(figures["sentence-transformers"], figures["ours"])
    turns = zip(figures["ours"], figures["sgemm"], strict=True)
    share = median(x["operations"] / x["seconds"] / y["rate"] for x, y in turns)
    rates = ", ".join(f"{name} {TEXTS[shape] / seconds(figures[name]):,.0f}/s" for name in of_models)
    print(f"{shape}: {rates}, {share:.2f} of sgemm", file=sys.stderr)
    return found, share


def check_equal_vectors(figures: Mapping[str, Figures], tolerance: float) -> None:
    """SystemExit unless all ways gave the same vectors, within `tolerance` times the largest number."""
    numbers = {
        way: {name: x for name, x in of_way.items() if name.startswith("vector")} for way, of_way in figures.items()
    }
    largest = max(abs(x) for of_way in numbers.values() for x in of_way.values())
    for name in next(iter(numbers.values())):
        seen = {way: of_way[name] for way, of_way in numbers.items()}
        if max(seen.values()) - min(seen.values()) > tolerance * largest:
            raise SystemExit(f"{name}: {', '.join(f'{x} by {way}' for way, x in seen.items())}")


ROWS = {
    "encode_mini": lambda: measure("mini")[0],
    "encode_minilm": lambda: measure("minilm")[0],
    "encode_base": lambda: measure("base")[0],
    "encode_sgemm": lambda: min(measure(shape)[1] for shape in TEXTS),
}
