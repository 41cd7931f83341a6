"""Ways to encode texts on a CPU, one thread each, in turn: texts per second, and the lowest cosine to float32.

    python -m benchmarks.encoding_ways MODEL SCIFACT    a model folder, a BEIR folder (extra `bench`)

384 passages of at most 256 tokens, titles included, drawn at random; all ways begin with the texts. Prints a table.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import torch
import typer

from benchmarks.data import beir_source, passage_texts
from benchmarks.encode import encode_texts, token_rows
from benchmarks.int8.ways import WAYS as INT8
from benchmarks.openvino_bf16 import Encode, cosines, load
from benchmarks.paired import Figures, Step, Way, interleave, seconds
from pipeline.modeling.biencoder import frozen_encoders
from pipeline.runtime.host import processor_name
from pipeline.runtime.launch import ENCODING
from pipeline.runtime.precision import Precision
from pipeline.tokenization.tokenizer import read_tokenizer

LIMIT = 256
"""Tokens of a text, special ones included."""
PASSAGES, ROUNDS = 384, 5
"""Each round encodes all of them."""
OURS, OURS_LOW = "this program, float32", "this program, bfloat16"


def sentence_transformers(precision: str) -> Callable[[Path], Encode]:
    """Returns the way that encodes with all weights in this precision."""

    def prepare(folder: Path) -> Encode:
        from sentence_transformers import SentenceTransformer

        encoder = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": getattr(torch, precision)})
        encoder.max_seq_length = LIMIT
        return lambda texts: encoder.encode(texts, show_progress_bar=False, convert_to_tensor=True).float().numpy()

    return prepare


def onnx_int8(folder: Path) -> Encode:
    encoder, tokenizer = INT8["onnxruntime"](folder), read_tokenizer(folder)
    return lambda texts: encoder(token_rows(tokenizer, texts, LIMIT))


def this_program(folder: Path) -> Encode:
    encoder, tokenizer = frozen_encoders(folder)[1], read_tokenizer(folder)
    return lambda texts: encode_texts(encoder, tokenizer, texts, LIMIT)


WAYS: dict[str, Callable[[Path], Encode]] = {
    "sentence-transformers, float32": sentence_transformers("float32"),
    "sentence-transformers, bfloat16": sentence_transformers("bfloat16"),
    "ONNX Runtime, int8": onnx_int8,
    "OpenVINO, hint bf16": lambda folder: load(folder, limit=LIMIT),
    OURS: this_program,
    OURS_LOW: this_program,
}


def encoding(*, way: str, model: str, place: str) -> Step:
    """The step: encodes the texts in the folder `place`; returns the lowest cosine to its vectors."""
    torch.set_num_threads(1)
    folder = Path(place)
    given, expected_NE = json.loads((folder / "texts.json").read_text()), np.load(folder / "expected.npy")
    prepared = WAYS[way](Path(model))

    def step(number: int) -> Figures:
        return {"lowest": float(cosines(expected_NE, prepared(given)).min())}

    return step


def main(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    scifact: Annotated[Path, typer.Argument(help="A BEIR folder.")],
) -> None:
    """Measures all ways."""
    given = list(passage_texts(beir_source(scifact)).values())
    chosen = [given[i] for i in np.random.default_rng(0).choice(len(given), PASSAGES, replace=False)]
    with tempfile.TemporaryDirectory() as place:
        Path(place, "texts.json").write_text(json.dumps(chosen))
        np.save(Path(place, "expected.npy"), WAYS[OURS](model)(chosen))
        figures = interleave({way: _process(way, model, place) for way in WAYS}, ROUNDS, batches=1)
    print(f"{processor_name()}, one thread each\n\n| way | texts/s | of {OURS} | lowest cosine |\n|---|---|---|---|")
    for way, rounds in figures.items():
        faster = median(a["seconds"] / b["seconds"] for a, b in zip(figures[OURS], rounds, strict=True))
        print(f"| {way} | {PASSAGES / seconds(rounds):.1f} | {faster:.2f} | {rounds[0]['lowest']:.5f} |")


def _process(way: str, model: Path, place: str) -> Way:
    precision: Precision = "bfloat16" if way == OURS_LOW else "float32"
    arguments = {"way": way, "model": str(model), "place": place}
    tuned = way in (OURS, OURS_LOW)
    return Way("benchmarks.encoding_ways:encoding", arguments, tuned=tuned, kept=ENCODING, precision=precision)


if __name__ == "__main__":
    typer.run(main)
