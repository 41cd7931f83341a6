"""A ready bi-encoder, taken as it is: to search with, or to mine negatives (the papers' BERT row, by Condenser's)."""

from pathlib import Path
from typing import Literal

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.modeling.existing_model import folders, read
from pipeline.runtime.work import Metrics, Work


class AdoptConfig(Config):
    checkpoint: Path
    """A fine-tuned checkpoint, such as `cocondenser artifacts path stage1` tells, or a Hugging Face or
    sentence-transformers folder of BERT or RoBERTa type with CLS or mean pooling."""
    pooling: Literal["cls", "mean"]
    """Of a folder that says nothing of its pooling: one of transformers alone, without sentence-transformers' files."""
    normalise: bool
    """Of a folder that says neither how its vectors are compared nor that they have length 1."""


def missing(config: AdoptConfig) -> list[str]:
    """What is wrong with the folder, in a line; a path that does not exist is told elsewhere."""
    if not config.checkpoint.exists():
        return []
    try:
        dimension(config.checkpoint)
    except InputError as error:
        return [f"adopt.checkpoint: {error}"]
    return []


def dimension(checkpoint: Path) -> int:
    """Numbers of a vector, by the folder's descriptions alone. Raises InputError where its two encoders differ."""
    from pipeline.modeling.model_config import model_config

    ready = [read(folder) for folder in folders(checkpoint)]
    found = [one.projection or int(model_config(one.folder)["hidden_size"]) for one in ready]
    if len({*found}) > 1:
        raise InputError(f"{checkpoint}: vectors of {found[0]} numbers from `query`, of {found[1]} from `passage`")
    return found[0]


def adopt(config: AdoptConfig, tokenizer: Path, work: Work) -> Metrics:
    """Write the checkpoint's model, or both, with their pooling, projection, norm and prefixes.

    Raises InputError where it cannot be loaded or has another vocabulary than `tokenizer`.
    """
    from pipeline.modeling.checkpoint import load_encoder, save_checkpoint
    from pipeline.modeling.initial import check_vocabulary
    from pipeline.modeling.sentence_transformers_files import Vector, read_vector

    for folder in folders(config.checkpoint):
        ready = read(folder)
        model = load_encoder(ready.folder)
        check_vocabulary(f"ready model {folder}", ready.folder, model.config.vocab_size, tokenizer)
        vector = Vector(
            ready.pooling or config.pooling,
            config.normalise if ready.normalise is None else ready.normalise,
            read_vector(folder).projection_ED if ready.projection else None,
            ready.question_prefix,
            ready.passage_prefix,
        )
        out = work.out if folder == config.checkpoint else work.out / folder.name
        save_checkpoint(out, model, tokenizer, vector=vector)
    return {"parameters": model.num_parameters(), "encoders": len(folders(config.checkpoint))}
