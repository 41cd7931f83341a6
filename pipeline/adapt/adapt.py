"""Adapts an existing embedding model to a collection without training questions: the stage.

Generated queries, the fusion of BM25 and the model as teacher, one linear map on both sides, merged with the start. The
map becomes the model's projection, so that search, export and ONNX apply it as that of any other model. An adapted
model that does not agree better with the fusion (guard.py) is not used: the artifact is then the model as it was.

Shapes: D dimensions of the backbone, E of a vector.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.adapt.apply_map import MAP
from pipeline.adapt.config import AdaptConfig
from pipeline.errors import InputError
from pipeline.formatting import p_text
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.existing_model import folders
from pipeline.modeling.sentence_transformers_files import (
    DENSE,
    Dense,
    Vector,
    read_dense_settings,
    read_modules,
    read_vector,
    write_vector,
)
from pipeline.notices import noticed
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics, Work

if TYPE_CHECKING:
    from numpy import ndarray

OF_THE_STORE = "manifest.json"
"""A file that the store adds to each artifact."""


def check_start(node: Planned) -> None:
    """A model whose vectors a linear map can follow; an early check."""
    given: Path | None = getattr(node.input("checkpoint").config, "checkpoint", None)
    if given is not None and given.exists():
        for folder in folders(given):
            check_projection(folder)


def check_projection(folder: Path) -> None:
    """Raises InputError if the projection of the model in `folder` has an activation: no one map is equal to both."""
    dense = dict(read_modules(folder)).get("Dense")
    if dense is not None and (activation := read_dense_settings(dense).activation) != "Identity":
        raise InputError(
            f"adapt: the projection of the model in {folder} has the activation {activation}, which no linear map can "
            "follow: set adapt.queries to null"
        )


def adapt(
    config: AdaptConfig,
    encoder: EncoderConfig,
    collection: Path,
    checkpoint: Path,
    index: Path,
    bm25: Path,
    work: Work,
) -> Metrics:
    """Writes the adapted model, and `map.npy`; or the model of `checkpoint` without a change if the guard refuses.

    `index`: of the collection's vectors by `checkpoint`. Metrics: the numbers of queries; `divergence_before` and
    `_after`, the KL divergence from the teacher on the training's queries; `agreement_before` and `_after`, nDCG@10
    with the fusion's first passages as relevant ones on the guard's queries, and `agreement_p`; `used`: yes or no.
    """
    import numpy as np

    from pipeline.runtime.launch import ENCODING, launch

    for folder in folders(checkpoint):
        check_projection(folder)
    path = work.checkpoints / MAP
    arguments = {
        "config": config.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        **{name: str(one) for name, one in (("collection", collection), ("checkpoint", checkpoint))},
        **{name: str(one) for name, one in (("index", index), ("bm25", bm25), ("out", path))},
        "token_budget": work.machine.token_budget,
    }
    path.unlink(missing_ok=True)
    one_process = work.machine.model_copy(update={"ranks": 1, "torchrun": []})
    metrics = launch("pipeline.adapt.fit:fit", arguments, one_process, work.progress, work.checkpoints, ENCODING)
    for source in files(checkpoint):
        target = work.out / source.relative_to(checkpoint)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    if metrics["used"] == "no":
        return {**metrics, **noticed([refusal(config, metrics)])}
    map_EE = np.load(path)
    np.save(work.out / MAP, map_EE)
    for folder in folders(work.out):
        write_mapped(folder, map_EE)
    return metrics


def files(checkpoint: Path) -> Iterator[Path]:
    """Yields the files of a model, without the store's own."""
    own = checkpoint / OF_THE_STORE
    return (path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path != own)


def write_mapped(folder: Path, map_EE: "ndarray") -> None:
    """Puts the map behind the projection of the model in `folder`, or makes it the projection."""
    from pipeline.modeling.model_config import model_config

    vector = read_vector(folder)
    changed = Vector(
        vector.pooling,
        vector.normalise,
        behind(map_EE, vector.projection),
        vector.question_prefix,
        vector.passage_prefix,
    )
    write_vector(folder, model_config(folder)["hidden_size"], changed)
    # The tokenizer's mode follows the umask; safetensors writes 0600.
    (folder / DENSE / "model.safetensors").chmod((folder / "tokenizer.json").stat().st_mode & 0o777)


def behind(map_EE: "ndarray", projection: Dense | None) -> Dense:
    """Returns the projection that is followed by the map, as one projection."""
    import torch

    last_EE = torch.from_numpy(map_EE).double()
    if projection is None:
        return Dense(last_EE.float())
    bias_E = None if projection.bias_E is None else (last_EE @ projection.bias_E.double()).float()
    return Dense((last_EE @ projection.weight_ED.double()).float(), bias_E)


def refusal(config: AdaptConfig, metrics: Metrics) -> str:
    """Returns why the adapted model is not used, in one line."""
    if "agreement_p" not in metrics:
        return "adapted model not used: too few passages or words to generate queries from"
    before, after, p = (float(metrics[f"agreement_{name}"] or 0) for name in ("before", "after", "p"))
    return (
        f"adapted model not used: on {metrics['guard_queries']} generated queries it does not agree better with the "
        f"fusion of BM25 and the model than the model as it is: nDCG@10 {before:.3f} -> {after:.3f}, p {p_text(p)} "
        f"(adapt.guard_p: {config.guard_p:g})"
    )
