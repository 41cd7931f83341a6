"""Passage vectors of a collection, in shards that are finished one by one."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from pipeline import shards
from pipeline.config import Config
from pipeline.encoder import EncoderConfig
from pipeline.errors import InputError
from pipeline.shards import Tick
from pipeline.work import Metrics, Progress, Work

if TYPE_CHECKING:
    import numpy as np


class EncodeConfig(Config):
    passage_tokens: int = Field(ge=8, le=512)
    """Tokens of a passage's input, title and special tokens included. 128 (MARCO), 256 (NQ): coCondenser, section 4."""
    shard_passages: int = Field(ge=1)
    """Passages in a shard, the unit that a kill can lose."""


def encode(config: EncodeConfig, encoder: EncoderConfig, tokens: Path, checkpoint: Path, work: Work) -> Metrics:
    """Write `shard-00000.npy` (float16, [rows, dimension]) ... and `embeddings.json`, in passage order.

    Shards grow in `work.checkpoints`, so that a killed run keeps those it finished.
    """
    from pipeline.launch import device_of, launch
    from pipeline.processes import workers

    folder = work.checkpoints / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    arguments = {
        "config": config.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "tokens": str(tokens),
        "checkpoint": str(checkpoint),
        "folder": str(folder),
        "workers": workers(work.machine),
        "token_budget": work.machine.token_budget,
    }
    # On the CPU one child loads the model and forks; on GPUs there is a rank for each.
    ranks = 0 if device_of(work.machine) == "cuda" else 1
    machine = work.machine.model_copy(update={"ranks": ranks, "threads": 1, "torchrun": []})
    result = launch("pipeline.encode:run", arguments, machine, work.progress, work.checkpoints)
    for number in range(len(result["rows"])):
        (folder / shards.name(number)).rename(work.out / shards.name(number))
    (work.out / "embeddings.json").write_text(json.dumps(result) + "\n")
    return {"passages": sum(result["rows"]), "dimension": result["dim"], "shards": len(result["rows"])}


def run(
    *,
    progress: Progress,
    device: str,
    config: dict,
    encoder: dict,
    tokens: str,
    checkpoint: str,
    folder: str,
    workers: int,
    token_budget: int,
) -> dict:
    """Encode what `folder` still lacks. On CPU `workers` single-threaded forks share the model; on GPUs a rank each.

    Returns the content of embeddings.json.
    """
    from pipeline.biencoder import check_fits, encode_rows, load_encoders
    from pipeline.inputs import passage_rows, read_form
    from pipeline.ragged import Tokens

    settings = EncodeConfig(**config)
    artifact = Tokens.open(Path(tokens))
    form = read_form(EncoderConfig(**encoder), Path(checkpoint), artifact.specials)
    model = load_encoders(Path(checkpoint))[1]
    check_fits(model, artifact.specials, Path(checkpoint), "passage_tokens", settings.passage_tokens)
    model.to(device)

    def make(start: int, stop: int, tick: Tick) -> "np.ndarray":
        rows = passage_rows(artifact, range(start, stop), form, settings.passage_tokens)
        return _halves(encode_rows(model, rows, token_budget, tick))

    spans = shards.spans(len(artifact.passages), settings.shard_passages)
    shards.build(Path(folder), spans, make, device, workers, "passages", progress)
    return {"dim": model.dimension, "rows": [b - a for a, b in spans], "pooling": model.pooling}


def _halves(vectors_NE):
    import numpy as np

    halves_NE = vectors_NE.astype(np.float16)
    if not np.isfinite(halves_NE).all():
        raise InputError("vectors beyond float16: the encoder diverged in training (try a lower learning_rate)")
    return halves_NE
