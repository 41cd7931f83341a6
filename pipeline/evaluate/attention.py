"""Entropy of [CLS] attention in each layer, before and after fine-tuning (Condenser, section 5 and figure 2).

Shapes: N sections, L layers, H heads.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from pipeline.config import Config, CountOrAuto, Seed
from pipeline.data.parquet import write_parquet
from pipeline.data.stored import read_json
from pipeline.errors import InputError
from pipeline.modeling.model_files.model_config import LONGEST, input_limit, model_config
from pipeline.modeling.model_files.sentence_transformers_files import side
from pipeline.runtime import shards
from pipeline.runtime.spans import Span, shard_spans
from pipeline.runtime.work import Job, Metrics, Progress, Work

SHARD = 250
"""Sections in a shard."""
TABLE = "attention.parquet"


class AttentionConfig(Config):
    sections: int = Field(ge=0)
    """Passages over which the entropy is averaged (all if there are fewer). 0: the stage is left out. 1,000 in
    Condenser, section 5."""
    corpus: Literal["pretraining", "collection"]
    """`pretraining`: passages of the general text for pre-training (Wikipedia in Condenser, section 5), if the recipe
    has some and reads it, which a finished model does not need. `collection`: always the collection's passages, so
    that recipes with and without general text read the same ones."""
    length: int = Field(ge=3, le=LONGEST)
    """First tokens of a section to read, including special tokens; never more than the models' positions. 128 in Clark
    et al. 2019, section 2, whose method Condenser follows."""
    seed: Seed
    """Seed that picks the sections."""


def attention(config: AttentionConfig, tokens: Path, work: Work, **checkpoints: Path) -> Metrics:
    """Writes `attention.parquet`: model, layer (from 1), entropy in nats, and lowest and highest of a layer's heads.

    It is the entropy of [CLS]'s attention weights over all tokens of `[CLS] section [SEP]`, averaged over heads and
    sections; all models read the same sections. An untied model is read by its passage encoder. The metrics have each
    model's last layer. Raises InputError if a model does not fit the tokens, or no passage has a token.
    """
    from pipeline.runtime.launch import of_shards
    from pipeline.runtime.processes import workers
    from pipeline.tokenization.token_files import Tokens

    models = {name: side(folder, "passage") for name, folder in checkpoints.items()}
    length = min(config.length, *(room(folder, tokens) for folder in models.values()))
    data = Tokens.open(tokens)
    row_N = draw_sections(data.passages.offsets, config.sections, config.seed)
    folder = work.checkpoints / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    sections_file = work.checkpoints / "sections.json"
    sections_file.write_text(json.dumps({"rows": row_N.tolist(), "models": [str(path) for path in models.values()]}))
    arguments = {
        "tokens": str(tokens),
        "sections_file": str(sections_file),
        "length": length,
        "folder": str(folder),
        "token_budget": work.machine.token_budget,
    }
    spans = of_models(len(models), len(row_N))
    job = Job("pipeline.evaluate.attention:entropy_shards", arguments, folder, spans, "sections")
    shards.finish(job, work, of_shards(work.machine), workers(work.machine))
    entropies = np.concatenate([np.load(folder / shards.name(i)) for i in range(len(spans))])
    mean_LH = dict(zip(models, [part.mean(0, np.float64) for part in np.split(entropies, len(models))], strict=True))
    _write(work.out / TABLE, mean_LH)
    last = {f"{name}/layer {len(entropy)}": float(entropy[-1].mean()) for name, entropy in mean_LH.items()}
    tokens_read = np.minimum(data.passages.lengths[row_N] + 2, length)
    return {"sections": len(row_N), "tokens": int(tokens_read.sum()), **last}


def room(model: Path, tokens: Path) -> int:
    """Returns the longest input of the model in a folder. Raises InputError if the tokens do not fit the model."""
    shape = model_config(model)
    entries = read_json(tokens / "specials.json", "vocab_size")["vocab_size"]
    if entries > shape["vocab_size"]:
        raise InputError(f"{model}: a model of {shape['vocab_size']} tokens, but the tokenizer has {entries}")
    return input_limit(shape)


def draw_sections(offsets: np.ndarray, sections: int, seed: int) -> np.ndarray:
    """Returns rows of `sections` random passages that have a token, in order, [N]; all if there are fewer."""
    filled = np.flatnonzero(np.diff(offsets))
    if not len(filled):
        raise InputError("attention: no passage has a token to attend to")
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(filled, min(sections, len(filled)), replace=False))


def of_models(models: int, sections: int) -> list[Span]:
    """Returns shards of all models' sections, model after model; none spans two models."""
    own = shard_spans(sections, SHARD)
    return [(first + start, first + stop) for first in range(0, models * sections, sections) for start, stop in own]


def entropy_shards(
    *,
    progress: Progress,
    device: str,
    tokens: str,
    sections_file: str,
    length: int,
    folder: str,
    token_budget: CountOrAuto,
    workers: int,
    numbers: list[int] | None,
) -> dict:
    """Child process of `attention`: writes the missing shards of entropies, float32 [N, L, H], to `folder`."""
    from pipeline.evaluate.attention_entropy import entropy_rows
    from pipeline.modeling.frozen import load_frozen
    from pipeline.tokenization.token_files import Tokens
    from pipeline.training.memory import encoding_budget

    data, job = Tokens.open(Path(tokens)), json.loads(Path(sections_file).read_text())
    rows, models = job["rows"], job["models"]

    @lru_cache(1)
    def model(number: int) -> tuple[Any, int]:
        """Returns the model and the tokens of a forward pass."""
        loaded = load_frozen(Path(models[number])).to(device)
        return loaded, encoding_budget(token_budget, device, loaded.config)

    def make(start: int, stop: int, tick: shards.Tick) -> np.ndarray:
        number, first = divmod(start, len(rows))
        texts = [data.passages[row][: length - 2] for row in rows[first : first + stop - start]]
        ids = [np.concatenate(([data.specials.cls], text, [data.specials.sep])).astype(np.int64) for text in texts]
        own, budget = model(number)
        return entropy_rows(own, ids, budget, tick)

    spans = of_models(len(models), len(rows))
    shards.build_shards(
        Path(folder), spans, make, device=device, unit="sections", progress=progress, workers=workers, numbers=numbers
    )
    return {}


def _write(path: Path, mean_LH: dict[str, np.ndarray]) -> None:
    import pyarrow as pa

    types = [
        ("model", pa.string()),
        ("layer", pa.int32()),
        *((name, pa.float64()) for name in ("entropy", "low", "high")),
    ]
    rows = [
        {"model": name, "layer": layer, "entropy": heads.mean(), "low": heads.min(), "high": heads.max()}
        for name, entropies in mean_LH.items()
        for layer, heads in enumerate(entropies, 1)
    ]
    write_parquet(pa.Table.from_pylist(rows, pa.schema(types)), path)
