"""The kinds of sentence tables: the loss of a batch's vectors, and the measures of a split.

Shapes: Q examples of the batch; R rows: the first sentences of all examples, then the second ones, then the third; E
dimensions of a vector; N rows of a split.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.evaluate.significance.bootstrap import rounded
from pipeline.modeling.packing import to_device, upload
from pipeline.runtime.work import Metrics
from pipeline.sentences.measures import correlations
from pipeline.sentences.readers import TEXTS

MEASURE = {"scored": "spearman", "labelled": "accuracy", "triplets": "accuracy"}
"""Kind of table -> measure that selects the best epoch."""
LABELS = 3
"""Labels of natural language inference."""


def cosine_loss(vectors_RE: Tensor, score_Q: Tensor) -> Tensor:
    """Returns the mean squared difference of cosines and scores (0 to 1) of the pairs (Sentence-BERT, section 3)."""
    first_QE, second_QE = vectors_RE.chunk(2)
    return F.mse_loss(F.cosine_similarity(first_QE, second_QE), score_Q)


def features(vectors_RE: Tensor) -> Tensor:
    """Returns u, v and |u - v| of each pair, [Q, 3E] (Sentence-BERT, section 3)."""
    first_QE, second_QE = vectors_RE.chunk(2)
    return torch.cat([first_QE, second_QE, (first_QE - second_QE).abs()], dim=1)


def label_loss(vectors_RE: Tensor, label_Q: Tensor, classifier: nn.Linear) -> Tensor:
    """Returns the cross-entropy of the three labels, from a linear map of `features` (Sentence-BERT, section 3)."""
    return F.cross_entropy(classifier(features(vectors_RE)), label_Q)


def triplet_loss(vectors_RE: Tensor, margin: float) -> Tensor:
    """Returns the mean of max(|a - p| - |a - n| + margin, 0), Euclidean (Sentence-BERT, section 3, with margin 1)."""
    anchor_QE, positive_QE, negative_QE = vectors_RE.chunk(3)
    return F.triplet_margin_loss(anchor_QE, positive_QE, negative_QE, margin=margin)


def loss_of(
    kind: str, batch: pa.Table, margin: float, classifier: nn.Linear | None, device: str
) -> Callable[[Tensor], Tensor]:
    """Returns the loss of a batch as a function of its vectors [R, E]."""
    if kind == "scored":
        score_Q = upload(batch["score"].to_numpy().astype(np.float32), device)
        return lambda vectors_RE: cosine_loss(vectors_RE, score_Q)
    if classifier is not None:
        label_Q = to_device(batch["label"].to_numpy(), device)
        return lambda vectors_RE: label_loss(vectors_RE, label_Q, classifier)
    return lambda vectors_RE: triplet_loss(vectors_RE, margin)


def measure(
    kind: str, vectors_RE: Tensor, table_N: pa.Table, classifier: nn.Linear | None
) -> tuple[dict[str, np.ndarray], Metrics]:
    """Returns (columns of predictions.parquet, figures) of a split's vectors, in float64."""
    line_N = table_N["line"].to_numpy()
    if kind == "labelled":
        assert classifier is not None
        with torch.inference_mode():
            logits_NL = classifier(features(vectors_RE.to(classifier.weight.device)))
        predicted_N = logits_NL.argmax(1).cpu().numpy()
        label_N = table_N["label"].to_numpy()
        right = rounded((predicted_N == label_N).mean())
        return {"line": line_N, "label": label_N, "predicted": predicted_N.astype(np.int8)}, {"accuracy": right}
    parts = vectors_RE.double().chunk(len(TEXTS[kind]))
    if kind == "scored":
        cosine_N = F.cosine_similarity(parts[0], parts[1]).numpy()
        score_N = table_N["score"].to_numpy()
        return {"line": line_N, "score": score_N, "cosine": cosine_N}, {**correlations(cosine_N, score_N)}
    anchor_NE, positive_NE, negative_NE = parts
    near_N, far_N = ((anchor_NE - other_NE).norm(dim=1).numpy() for other_NE in (positive_NE, negative_NE))
    right = rounded((near_N < far_N).mean())
    return {"line": line_N, "positive": near_N, "negative": far_N}, {"accuracy": right}


def value_of(figures: Metrics, kind: str) -> float | None:
    value = figures[MEASURE[kind]]
    assert value is None or isinstance(value, float)
    return value
