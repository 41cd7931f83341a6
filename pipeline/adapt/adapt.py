"""Adapts an existing embedding model to a collection without training questions: the stage.

Generated queries, the fusion of BM25 and the model as teacher, and a student, merged with the start. The student is one
linear map on both sides, which becomes the model's projection, so that search, export and ONNX apply it as that of any
other model; or the whole question encoder, while passages keep their vectors; or both encoders, after which passages
are encoded again. An adapted model that does not agree better with the fusion (guard.py) is not used: the artifact is
then the model as it was.

Shapes: D dimensions of the backbone, E of a vector.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.adapt.apply_map import MAP
from pipeline.adapt.config import AdaptConfig
from pipeline.errors import InputError
from pipeline.formatting import p_text
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.model_files.existing_model import copy_folder, folders
from pipeline.modeling.model_files.sentence_transformers_files import (
    read_dense_settings,
    read_modules,
    read_vector,
    side,
)
from pipeline.notices import noticed
from pipeline.runtime.host import cores
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics, Work

if TYPE_CHECKING:
    from numpy import ndarray


def check_start(node: Planned) -> None:
    """A model whose vectors a linear map can follow, if a map is trained; an early check."""
    given: Path | None = getattr(node.input("checkpoint").config, "checkpoint", None)
    trains_map = isinstance(node.config, AdaptConfig) and node.config.trains == "map"
    if trains_map and given is not None and given.exists():
        for folder in folders(given):
            check_projection(folder)


def check_projection(folder: Path) -> None:
    """Raises InputError if the projection of the model in `folder` has an activation: no one map is equal to both."""
    dense = dict(read_modules(folder)).get("Dense")
    if dense is not None and (activation := read_dense_settings(dense).activation) != "Identity":
        raise InputError(
            f"adapt: the projection of the model in {folder} has the activation {activation}, which no linear map can "
            "follow: set adapt.trains to query_encoder or both_encoders, or adapt.queries to null"
        )


def adapt(
    config: AdaptConfig,
    encoder: EncoderConfig,
    collection: Path,
    checkpoint: Path,
    index: Path,
    bm25: Path,
    work: Work,
    passage_tokens: int | None = None,
    tokens: Path | None = None,
) -> Metrics:
    """Writes the adapted model, and `map.npy` if a map was trained; or the model of `checkpoint` if the guard refuses.

    A model whose question encoder was trained has two encoders, `query` and `passage`; the latter is that of
    `checkpoint`. `index`: of the collection's vectors by `checkpoint`. `tokens`, `passage_tokens`: of the passages, and
    how many of each are read, if both encoders are trained. Metrics: the numbers of queries; `divergence_before` and
    `_after`, the KL divergence from the teacher on the training's queries; `agreement_before` and `_after`, nDCG@10
    with the fusion's first passages as relevant ones on the guard's queries, and `agreement_p`; `used`: yes or no.
    """
    import numpy as np

    from pipeline.runtime.launch import ENCODING, TRAINING, launch, one_process

    trains_map = config.trains == "map"
    if trains_map:
        for folder in folders(checkpoint):
            check_projection(folder)
    # An encoder's products are large, a map's are small.
    machine = one_process(work.machine, threads=None if trains_map else cores())
    arguments = {
        "config": config.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "collection": str(collection),
        "checkpoint": str(checkpoint),
        "index": str(index),
        "bm25": str(bm25),
        "passages": {"tokens": str(tokens), "limit": passage_tokens} if tokens else None,
        "out": str(work.out),
        "checkpoints": str(work.checkpoints),
        "machine": machine.model_dump(mode="json"),
    }
    kept = ENCODING if trains_map else TRAINING
    metrics = launch("pipeline.adapt.fit:fit", arguments, machine, work.progress, work.checkpoints, kept)
    is_used = metrics["used"] == "yes"
    if is_used and config.trains == "query_encoder":
        write_model(side(checkpoint, "passage"), None, work.out / "passage")
    elif not is_used or trains_map:
        map_EE = np.load(work.out / MAP) if is_used else None
        for folder in folders(checkpoint):
            write_model(folder, map_EE, copy_folder(folder, checkpoint, work.out))
    return {**metrics, **noticed([decision(config, metrics)])}


def write_model(folder: Path, map_EE: "ndarray | None", out: Path) -> None:
    """Writes the model in `folder` to the folder `out`, with the map after its projection if there is one."""
    from pipeline.modeling.biencoder import compose
    from pipeline.modeling.checkpoint import load_encoder, save_checkpoint

    vector = read_vector(folder)
    if map_EE is not None:
        vector = replace(vector, projection=compose(map_EE, vector.projection))
    save_checkpoint(out, load_encoder(folder), folder, vector=vector)


def decision(config: AdaptConfig, metrics: Metrics) -> str:
    """Returns whether the adapted model is used, and why, in one line."""
    if "agreement_p" not in metrics:
        return "adapted model not used: too few passages or words to generate queries from"
    before, after, p = (float(metrics[f"agreement_{name}"] or 0) for name in ("before", "after", "p"))
    used, how = ("used", "agrees better") if metrics["used"] == "yes" else ("not used", "does not agree better")
    return (
        f"adapted model {used}: on {metrics['guard_queries']} generated queries it {how} with the fusion of BM25 and "
        f"the model than the model as it is: nDCG@10 {before:.3f} -> {after:.3f}, p {p_text(p)} "
        f"(adapt.guard_p: {config.guard_p:g})"
    )
