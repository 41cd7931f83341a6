"""Encodes the passages of a collection, in shards that are finished one by one and built only once."""

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from pipeline.config import Config, CountOrAuto
from pipeline.data.collection import at_rows
from pipeline.dense import shard_reuse
from pipeline.dense.float16 import to_float16
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.model_files.model_config import LONGEST
from pipeline.modeling.model_files.sentence_transformers_files import read_vector, side
from pipeline.notices import noticed
from pipeline.runtime import shards
from pipeline.runtime.shards import Tick
from pipeline.runtime.work import Job, Metrics, Progress, Work

if TYPE_CHECKING:
    from pipeline.modeling.inputs import Form
    from pipeline.tokenization.token_files import Tokens


class EncodeConfig(Config):
    passage_tokens: int = Field(ge=8, le=LONGEST)
    """Tokens of a passage's input, including title and special tokens; no more than in fine-tuning. 128 (MARCO), 256
    (NQ): coCondenser, section 4."""
    shard_passages: int = Field(ge=1)
    """Most passages in a shard (the mean is 3/8 of it): a kill loses one shard, a changed passage rebuilds one."""


def encode(
    config: EncodeConfig, encoder: EncoderConfig, collection: Path, tokens: Path, checkpoint: Path, work: Work
) -> Metrics:
    """Writes `shard-00000.npy` (float16, [rows, dimension]) ... and `embeddings.json`, in passage order.

    Shards are built in `work.checkpoints`, so that a killed run keeps the finished ones. Shards of the same passages
    and the same model are copied from the artifacts in `work.earlier`; their bytes are equal. Of `collection`, which no
    key counts, only the ids in notices are read.
    """
    from pipeline.modeling.inputs import read_form
    from pipeline.runtime.launch import non_default_precision, of_shards
    from pipeline.runtime.processes import workers
    from pipeline.tokenization.token_files import Tokens

    folder = shards.folder_of_model(work, "shards")
    artifact = Tokens.open(tokens)
    spans = shard_reuse.cuts(artifact, config.shard_passages)
    of_passages = {  # these names are in the keys of all shards: other names would encode everything again
        "pooling": encoder.pooling,
        "normalise": encoder.normalise,
        "projection": encoder.projection or 0,
        "title_tokens": encoder.title_tokens,
        "title_join": encoder.title_separator,
        "passage_prefix": encoder.passage_prefix,
    }
    settings = {"passage_tokens": config.passage_tokens, "encoder": of_passages, **asdict(artifact.specials)}
    if precision := non_default_precision(work.machine):  # shards of equal keys have equal bytes
        settings["precision"] = precision
    keys = shard_reuse.shard_keys(artifact, spans, checkpoint, settings)
    reused = shard_reuse.take_over(work.earlier, keys, folder)
    bounds = work.checkpoints / "spans.json"
    bounds.write_text(json.dumps(spans))
    arguments = {
        "config": config.model_dump(mode="json"),
        "encoder": encoder.model_dump(mode="json"),
        "tokens": str(tokens),
        "checkpoint": str(checkpoint),
        "folder": str(folder),
        "spans": str(bounds),
        "token_budget": work.machine.token_budget,
    }
    job = Job("pipeline.dense.encode:encode_shards", arguments, folder, spans, "passages")
    shards.finish(job, work, of_shards(work.machine), workers(work.machine))
    entries = []
    for number, ((start, stop), key) in enumerate(zip(spans, keys, strict=True)):
        path = work.out / shards.name(number)
        _put(folder / shards.name(number), path)
        entries.append({"rows": stop - start, "key": key, "sha256": shard_reuse.sha256(path)})
    dimension = np.load(work.out / shards.name(0), mmap_mode="r").shape[1]
    pooling = read_vector(side(checkpoint, "passage")).pooling
    description = {"dim": dimension, "pooling": pooling, "model": shard_reuse.model(checkpoint), "shards": entries}
    (work.out / "embeddings.json").write_text(json.dumps(description, indent=1) + "\n")
    counts = {"shards": len(spans), "shards_reused": reused}
    metrics: Metrics = {"passages": len(artifact.passages), "dimension": dimension, **counts}
    form = read_form(encoder, checkpoint, artifact.specials)
    return {**metrics, **_cut(collection, artifact, form, config, checkpoint)}


def _cut(collection: Path, tokens: "Tokens", form: "Form", config: EncodeConfig, checkpoint: Path) -> Metrics:
    """Returns metrics and notices of texts that are longer than the model's input."""
    from pipeline.modeling.inputs import cut_notice, to_change, unread, unread_metrics

    title_N, text_N = unread(tokens, form, config.passage_tokens)
    metrics = unread_metrics("passages", text_N, tokens.passages.lengths)

    def name(row: int) -> str:
        return str(at_rows(collection / "passages.parquet", [row], ["passage_id"]).column(0)[0])

    model = side(checkpoint, "passage")
    shorter = "shorten the passages: ingest.passage_words"
    # Beyond the length of the trainings, vectors may be useless, and a recipe that trains is refused.
    trained = "passage_tokens of any stage that trains the model"
    field = to_change("encode.passage_tokens", config.passage_tokens, model, shorter, trained)
    lines = cut_notice("passages", metrics, text_N, name, field)
    if form.title_tokens:
        metrics |= unread_metrics("titles", title_N, tokens.titles.lengths)
        lines += cut_notice("titles", metrics, title_N, name, "encoder.title_tokens")
    return {**metrics, **noticed(lines)}


def _put(source: Path, target: Path) -> None:
    """Links the file under a second name, so that a kill before the artifact is stored loses nothing."""
    try:
        os.link(source, target)
    except OSError:  # some file systems have no hard links
        shutil.copyfile(source, target)


def encode_shards(
    *,
    progress: Progress,
    device: str,
    config: dict,
    encoder: dict,
    tokens: str,
    checkpoint: str,
    folder: str,
    spans: str,
    token_budget: CountOrAuto,
    workers: int,
    numbers: list[int] | None,
) -> dict:
    """Encodes the shards `numbers` (None: all) of the file `spans` that are missing in `folder`.

    On CPU `workers` single-threaded forks share the model; on GPUs there is one rank per GPU.
    """
    from pipeline.modeling.biencoder import check_fits, encode_rows, frozen_encoders
    from pipeline.modeling.inputs import passage_rows, read_form
    from pipeline.tokenization.token_files import Tokens
    from pipeline.training.memory import encoding_budget

    settings = EncodeConfig(**config)
    artifact = Tokens.open(Path(tokens))
    form = read_form(EncoderConfig(**encoder), Path(checkpoint), artifact.specials)
    model = frozen_encoders(Path(checkpoint))[1]
    check_fits(model, artifact.specials, Path(checkpoint), "passage_tokens", settings.passage_tokens)
    model.to(device)
    budget = encoding_budget(token_budget, device, model.model.config)

    def make(start: int, stop: int, tick: Tick) -> np.ndarray:
        rows = passage_rows(artifact, range(start, stop), form, settings.passage_tokens)
        return to_float16(encode_rows(model, rows, budget, tick), "learning_rate")

    bounds = json.loads(Path(spans).read_text())
    shards.build_shards(
        Path(folder), bounds, make, device=device, unit="passages", progress=progress, workers=workers, numbers=numbers
    )
    return {}
