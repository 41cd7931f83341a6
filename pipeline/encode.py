"""Passage vectors of a collection, in shards that are finished one by one and made but once."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from pipeline import reuse, shards
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
    """Most passages in a shard, 3/8 of it in the mean: what a kill can lose, and a changed passage makes anew."""


def encode(config: EncodeConfig, encoder: EncoderConfig, tokens: Path, checkpoint: Path, work: Work) -> Metrics:
    """Write `shard-00000.npy` (float16, [rows, dimension]) ... and `embeddings.json`, in passage order.

    Shards grow in `work.checkpoints`, so that a killed run keeps those it finished. Those that the artifacts in
    `work.earlier` have made of the same passages with the same model are taken over, to the same bytes.
    """
    from pipeline.launch import device_of, launch
    from pipeline.processes import workers
    from pipeline.ragged import Tokens

    folder = work.checkpoints / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    artifact = Tokens.open(tokens)
    spans = reuse.cuts(artifact, config.shard_passages)
    settings = {"passage_tokens": config.passage_tokens, "encoder": encoder.model_dump(), **asdict(artifact.specials)}
    keys = reuse.keys(artifact, spans, checkpoint, settings)
    reused = reuse.take_over(work.earlier, keys, folder)
    bounds = work.checkpoints / "spans.json"
    bounds.write_text(json.dumps(spans))
    arguments = {
        "config": config.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "tokens": str(tokens),
        "checkpoint": str(checkpoint),
        "folder": str(folder),
        "spans": str(bounds),
        "workers": workers(work.machine),
        "token_budget": work.machine.token_budget,
    }
    # On the CPU one child loads the model and forks; on GPUs there is a rank for each.
    ranks = 0 if device_of(work.machine) == "cuda" else 1
    machine = work.machine.model_copy(update={"ranks": ranks, "threads": 1, "torchrun": []})
    result = launch("pipeline.encode:run", arguments, machine, work.progress, work.checkpoints)
    listed = []
    for number, ((start, stop), key) in enumerate(zip(spans, keys, strict=True)):
        path = (folder / shards.name(number)).rename(work.out / shards.name(number))
        listed.append({"rows": stop - start, "key": key, "sha256": reuse.sha256(path)})
    (work.out / "embeddings.json").write_text(json.dumps({**result, "shards": listed}, indent=1) + "\n")
    counts = {"shards": len(spans), "shards_reused": reused}
    return {"passages": len(artifact.passages), "dimension": result["dim"], **counts}


def run(
    *,
    progress: Progress,
    device: str,
    config: dict,
    encoder: dict,
    tokens: str,
    checkpoint: str,
    folder: str,
    spans: str,
    workers: int,
    token_budget: int,
) -> dict:
    """Encode what `folder` still lacks of the shards in the file `spans`.

    On CPU `workers` single-threaded forks share the model; on GPUs a rank each.
    Returns dimension and pooling, for embeddings.json.
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

    bounds = json.loads(Path(spans).read_text())
    shards.build(Path(folder), bounds, make, device, workers, "passages", progress)
    return {"dim": model.dimension, "pooling": model.pooling}


def _halves(vectors_NE: "np.ndarray") -> "np.ndarray":
    """Raises InputError where a number does not fit."""
    import numpy as np

    halves_NE = vectors_NE.astype(np.float16)
    if not np.isfinite(halves_NE).all():
        raise InputError("vectors beyond float16: the encoder diverged in training (try a lower learning_rate)")
    return halves_NE
