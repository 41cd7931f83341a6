"""Writes ONNX graphs of a model, float32 and int8, and measures them.

Shapes: N texts, E dimensions of a vector, Q questions, K passages of each, R rows of a run, M measures.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.collection import passage_id_array
from pipeline.data.documents import read_documents
from pipeline.data.runs import ranked
from pipeline.dense.index_files import open_index
from pipeline.dense.search import top_k
from pipeline.errors import InputError
from pipeline.evaluate.config import SPLITS
from pipeline.evaluate.document_ranking import numbered, of_documents
from pipeline.evaluate.measures import MEASURES, as_ranks, measure
from pipeline.evaluate.questions import relevant_questions
from pipeline.export.graph import INPUTS, OPSET, quiet, write_graph
from pipeline.export.model import write_tokenizer
from pipeline.export.source import Source, cut_encoders, form_of, judged_places, read_sample
from pipeline.modeling.biencoder import Encoder, encode_rows
from pipeline.modeling.inputs import Ids, question_rows
from pipeline.modeling.model_files.sentence_transformers_files import side, write_json
from pipeline.runtime.work import Progress
from pipeline.tokenization.token_files import Tokens

MOST_DIFFERENCE = 1e-4
"""Share of a vector's norm: a float32 graph with a larger difference from torch is wrong."""
BATCH = 16
"""Rows that are padded together: their lengths differ, so that a graph that reads padding is detected."""
BUDGET = 2048
"""Tokens of a forward call of torch; about 2,000 fit into a CPU's cache."""
SPEED_SAMPLE = 100
SHOWN = ("RR@10", "nDCG@10")
DEPTH = 10
"""Deepest rank of the measures SHOWN."""
ENCODED = 64
"""Questions between two reports of progress."""
Encode = Callable[[Ids], np.ndarray]
"""Encodes rows one by one to vectors, [N, E]."""


@dataclass(frozen=True)
class Measured:
    figures: dict[str, Any]
    """Content of onnx.json."""
    milliseconds: dict[str, float]
    """Median time of a single question on one thread of this machine."""


def write_onnx(source: Source, folder: Path, progress: Progress) -> Measured:
    """Writes `model.onnx` and `model.int8.onnx` (untied: `query.` and `passage.`), the tokenizer and onnx.json.

    Raises InputError if the float32 graph gives other vectors than torch.
    """
    folder.mkdir()
    questions, passages = cut_encoders(source.checkpoint, source.dimension)
    texts = read_sample(source)
    tied = questions is passages
    sides: dict[str, tuple[Encoder, Ids]] = {
        "query": (questions, texts.question_rows),
        "passage": (passages, texts.passage_rows),
    }
    if tied:
        sides = {"model": (questions, [*texts.question_rows, *texts.passage_rows])}
    files: dict[str, Any] = {}
    for done, (name, (encoder, rows)) in enumerate(sides.items()):
        progress(done, len(sides), "graphs")
        exact, small = folder / f"{name}.onnx", folder / f"{name}.int8.onnx"
        write_graph(encoder, exact)
        quantise(exact, small)
        expected_NE = encode_rows(encoder, rows, BUDGET)
        files[exact.name] = {"texts": len(rows), "greatest_difference": checked(exact, rows, expected_NE)}
        files[small.name] = {"texts": len(rows), **cosines(session_encode(small)(rows), expected_NE)}
    progress(len(sides), len(sides), "graphs")
    first = next(iter(sides))
    ways: dict[str, Encode] = {
        "torch": lambda rows: encode_rows(questions, rows, BUDGET),
        "float32": session_encode(folder / f"{first}.onnx"),
        "int8": session_encode(folder / f"{first}.int8.onnx"),
    }
    write_tokenizer(
        side(source.checkpoint, "passage"),
        folder,
        source.encoder.title_separator,
        source.passage_tokens,
    )
    figures = {"opset": OPSET, "files": files, "retrieval": retrieval_measures(source, ways, progress)}
    write_json(folder / "onnx.json", figures)
    return Measured(figures, speed(ways, texts.question_rows[:SPEED_SAMPLE]))


def quantise(exact: Path, small: Path) -> None:
    """Quantises weights of matrix products and embeddings to 8 bits; activations are quantised dynamically.

    Weights are unsigned: with signed ones sums overflow 16 bits on processors without VNNI, which loses more, and the
    vectors would depend on the machine.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with quiet():
        quantize_dynamic(
            exact,
            small,
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            weight_type=QuantType.QUInt8,
        )


def session(path: Path) -> Any:
    """Returns an ONNX Runtime session with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def session_encode(path: Path) -> Encode:
    model = session(path)
    return lambda rows: np.concatenate([padded(model, [row]) for row in rows])


def padded(model: Any, rows: Ids) -> np.ndarray:
    """Returns vectors of rows that are padded to the longest, [N, E]."""
    ids_NL = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask_NL = np.zeros_like(ids_NL)
    for row, (ids_L, mask_L) in zip(rows, zip(ids_NL, mask_NL, strict=True), strict=True):
        ids_L[: len(row)], mask_L[: len(row)] = row, 1
    return model.run(None, dict(zip(INPUTS, (ids_NL, mask_NL), strict=True)))[0]


def checked(path: Path, rows: Ids, expected_NE: np.ndarray) -> float:
    """Returns the largest relative distance of a vector from `expected`; the graph gets padded batches."""
    model = session(path)
    found_NE = np.concatenate([padded(model, rows[at : at + BATCH]) for at in range(0, len(rows), BATCH)])
    distance_N = np.linalg.norm(found_NE - expected_NE, axis=1) / np.linalg.norm(expected_NE, axis=1)
    worst = float(distance_N.max())
    if not worst <= MOST_DIFFERENCE:  # NaN too
        raise InputError(f"{path.name}: its vectors differ from torch's by {worst:.1e} of their norm")
    return worst


def cosines(found_NE: np.ndarray, expected_NE: np.ndarray) -> dict[str, float]:
    lengths_N = np.linalg.norm(found_NE, axis=1) * np.linalg.norm(expected_NE, axis=1)
    cosine_N = np.einsum("ne,ne->n", found_NE, expected_NE) / lengths_N
    return {"mean_cosine": float(cosine_N.mean()), "least_cosine": float(cosine_N.min())}


def speed(ways: Mapping[str, Encode], rows: Sequence[np.ndarray]) -> dict[str, float]:
    """Returns median milliseconds per single row on one thread; the ways alternate, so noise affects all equally."""
    import torch

    seconds: dict[str, list[float]] = {name: [] for name in ways}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for row in [rows[0], *rows]:  # the first warms up
            for name, encode in ways.items():
                started_at = time.perf_counter()
                encode([row])
                seconds[name].append(time.perf_counter() - started_at)
    finally:
        torch.set_num_threads(threads)
    return {name: 1000 * float(np.median(times[1:])) for name, times in seconds.items()}


def retrieval_measures(source: Source, ways: Mapping[str, Encode], progress: Progress) -> dict[str, Any] | None:
    """Returns measures in the run's own index of the judged dev questions (or test if there are none), for each way of
    encoding them.

    Returns None if the run has no index by this model.
    """
    if source.index is None:
        return None
    for split in SPLITS:
        query_ids, qrels, _ = relevant_questions(source.collection, split, source.relevance)
        if qrels:
            break
    else:
        return None
    tokens = Tokens.open(source.tokens)
    index = open_index(source.index)
    rows = question_rows(tokens, judged_places(source, split, [*qrels]), form_of(source, tokens))
    documents = read_documents(source.collection, passage_id_array(source.collection))
    measured: dict[str, dict[str, float]] = {}
    for number, (name, encode) in enumerate(ways.items()):
        encoded = []
        for start in range(0, len(rows), ENCODED):
            progress(number * len(rows) + start, len(ways) * len(rows), "questions")
            encoded.append(encode(rows[start : start + ENCODED]))
        found_QK, scores_QK = top_k(np.concatenate(encoded), index, DEPTH)
        question_R = np.arange(len(rows)).repeat(found_QK.shape[1])
        run = ranked(question_R, found_QK.ravel(), scores_QK.ravel())
        ranks = as_ranks(
            numbered(of_documents(run, documents, source.best_three_share), documents), query_ids, documents.ids
        )
        values_QM = measure(ranks, [*qrels], qrels, source.relevance)
        measured[name] = {shown: float(values_QM[:, MEASURES.index(shown)].mean()) for shown in SHOWN}
    return {"split": split, "questions": len(rows), **measured}
