"""The passages' vectors by an adapted model: those of the model as it was, mapped. Nothing is encoded again."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.adapt.apply_map import MAP, apply_map
from pipeline.config import Config
from pipeline.data.stored import input_error_on_read, read_json
from pipeline.dense import shard_reuse
from pipeline.dense.float16 import to_float16
from pipeline.modeling.model_files.sentence_transformers_files import read_vector, side
from pipeline.runtime import shards
from pipeline.runtime.work import Metrics, Work


class MapVectorsConfig(Config):
    """Nothing to choose: the adapted model says it all."""


def map_vectors(config: MapVectorsConfig, checkpoint: Path, embeddings: Path, work: Work) -> Metrics:
    """Writes shards and `embeddings.json`, as the stage `encode` does (float16, passage order).

    `checkpoint`: the adapted model. `embeddings`: of the model as it was; copied if the adapted model is not used.
    """
    path = embeddings / "embeddings.json"
    description = read_json(path, "dim", "pooling", "shards")
    map_path = checkpoint / MAP
    map_EE = np.load(map_path) if map_path.is_file() else None
    digest = shard_reuse.sha256(map_path) if map_path.is_file() else ""
    normalise = read_vector(side(checkpoint, "passage")).normalise
    entries: list[dict[str, Any]] = []
    for number, entry in enumerate(description["shards"]):
        source, target = embeddings / shards.name(number), work.out / shards.name(number)
        if map_EE is None:
            target.write_bytes(source.read_bytes())
            entries.append(entry)
            continue
        with input_error_on_read(source):
            vectors_NE = np.load(source)
        np.save(target, to_float16(apply_map(map_EE, vectors_NE, normalise), "adapt.learning_rate"))
        key = hashlib.sha256(f"{entry['key']} {digest}".encode()).hexdigest()
        entries.append({"rows": entry["rows"], "key": key, "sha256": shard_reuse.sha256(target)})
        work.progress(number + 1, len(description["shards"]), "shards")
    own = {**description, "model": shard_reuse.model(checkpoint), "shards": entries}
    (work.out / "embeddings.json").write_text(json.dumps(own, indent=1) + "\n")
    rows = sum(entry["rows"] for entry in entries)
    return {"passages": rows, "dimension": description["dim"], "shards": len(entries)}
