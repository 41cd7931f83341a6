"""An existing bi-encoder, used without training: to search with, or to mine negatives (the papers' BERT row)."""

from pathlib import Path
from typing import Literal

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.modeling.model_files.existing_model import folders, read_model, unnamed_pooling
from pipeline.notices import noticed
from pipeline.runtime.work import Metrics, Work


class AdoptConfig(Config):
    checkpoint: Path
    """A fine-tuned checkpoint, such as `cocondenser artifacts path stage1` prints, or a Hugging Face or
    sentence-transformers folder (docs/encoders.md) with CLS or mean pooling."""
    pooling: Literal["cls", "mean"]
    """Used if the folder does not specify its pooling: a transformers folder without sentence-transformers' files."""
    normalise: bool
    """Used if the folder specifies neither how vectors are compared nor that they have length 1."""


def missing(config: AdoptConfig) -> list[str]:
    """Returns a line if the folder does not fit; another check reports a path that does not exist."""
    if not config.checkpoint.exists():
        return []
    try:
        dimension(config.checkpoint)
    except InputError as error:
        return [f"adopt.checkpoint: {error}"]
    return []


def dimension(checkpoint: Path) -> int:
    """Returns the dimension of the vectors, without loading weights. Raises InputError if the two encoders differ."""
    from pipeline.modeling.model_files.model_config import model_config

    models = [read_model(folder) for folder in folders(checkpoint)]
    sizes = [one.projection or int(model_config(one.folder)["hidden_size"]) for one in models]
    if len({*sizes}) > 1:
        raise InputError(f"{checkpoint}: `query` has vectors of {sizes[0]} dimensions, `passage` of {sizes[1]}")
    return sizes[0]


def adopt(config: AdoptConfig, tokenizer: Path, work: Work) -> Metrics:
    """Writes the checkpoint's one or two encoders, with their pooling, projection, normalisation and prefixes.

    Raises InputError if one cannot be loaded or has another vocabulary than `tokenizer`.
    """
    from pipeline.modeling.checkpoint import load_encoder, save_checkpoint
    from pipeline.modeling.initial import check_vocabulary
    from pipeline.modeling.model_files.model_config import model_config, slower
    from pipeline.modeling.model_files.sentence_transformers_files import Vector, read_vector

    for folder in folders(config.checkpoint):
        existing = read_model(folder)
        model = load_encoder(existing.folder)
        check_vocabulary(f"existing model {folder}", existing.folder, model.config.vocab_size, tokenizer)
        vector = Vector(
            existing.pooling or config.pooling,
            config.normalise if existing.normalise is None else existing.normalise,
            read_vector(folder).projection if existing.projection else None,
            existing.question_prefix,
            existing.passage_prefix,
        )
        out = work.out if folder == config.checkpoint else work.out / folder.name
        save_checkpoint(out, model, tokenizer, vector=vector)
    notices = noticed([slower(model_config(existing.folder)), unnamed_pooling(existing.pooling, config.pooling)])
    return {"parameters": model.num_parameters(), "encoders": len(folders(config.checkpoint)), **notices}
