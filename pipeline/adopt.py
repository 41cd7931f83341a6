"""A ready bi-encoder, taken as it is: to search with, or to mine negatives (the papers' BERT row, by Condenser's)."""

from pathlib import Path

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.work import Metrics, Work


class AdoptConfig(Config):
    checkpoint: Path
    """A fine-tuned checkpoint, such as `cocondenser artifacts path stage1` tells, or a sentence-transformers folder of
    BERT type with CLS or mean pooling."""


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
    from pipeline.starts import model_config
    from pipeline.vector_files import projected

    found = [projected(folder) or int(model_config(folder)["hidden_size"]) for folder in folders(checkpoint)]
    if len({*found}) > 1:
        raise InputError(f"{checkpoint}: vectors of {found[0]} numbers from `query`, of {found[1]} from `passage`")
    return found[0]


def adopt(config: AdoptConfig, tokenizer: Path, work: Work) -> Metrics:
    """Write the checkpoint's model, or both, with their pooling, projection and norm.

    Raises InputError where it cannot be loaded or has another vocabulary than `tokenizer`.
    """
    from pipeline.checkpoint import load_encoder, save_checkpoint
    from pipeline.initial import check_vocabulary
    from pipeline.vector_files import read_vector

    for folder in folders(config.checkpoint):
        model = load_encoder(folder)
        check_vocabulary(f"ready model {folder}", folder, model.config.vocab_size, tokenizer)
        out = work.out if folder == config.checkpoint else work.out / folder.name
        save_checkpoint(out, model, tokenizer, vector=read_vector(folder))
    return {"parameters": model.num_parameters(), "encoders": len(folders(config.checkpoint))}


def folders(checkpoint: Path) -> list[Path]:
    """The one model folder of a tied checkpoint, or `query` and `passage`."""
    untied = [checkpoint / "query", checkpoint / "passage"]
    return untied if untied[0].is_dir() else [checkpoint]
