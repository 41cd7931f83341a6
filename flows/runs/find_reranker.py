"""The cross-encoder that `--rerank` and `--reranker` of `search` and `serve-search` name, checked but not loaded."""

from pathlib import Path

from flows.runs.find_model import HUB_MODEL, hub_folder
from flows.serving.engine import Engine
from flows.serving.reranker import RerankerSource, check_number, own_reranker
from pipeline import paths
from pipeline.cross_encoder.cross_encoder import check_is_cross_encoder
from pipeline.errors import InputError
from pipeline.modeling.model_files.existing_model import check_own_tokenizer
from pipeline.modeling.model_files.weight_shapes import has_weights
from pipeline.tokenization.tokenizer import has_tokenizer


def find_reranker(engine: Engine, number: int | None, source: str | None) -> RerankerSource | None:
    """The run's own cross-encoders, or that of `source`: a folder, or a name on the hub. None: nothing is reranked.

    `number`: of passages. Raises InputError for another model, or an unusable number.
    """
    if number is None:
        if source is not None:
            raise InputError("--reranker: needs --rerank N, the number of passages that it scores again")
        return None
    check_number(number)
    if source is None:
        return own_reranker(engine, number)
    folder = reranker_folder(source)
    try:
        check_is_cross_encoder(folder)
        check_own_tokenizer(folder)
    except InputError as error:
        advice = "name a cross-encoder, as sentence-transformers stores one"
        raise InputError(f"--reranker: {error}; {advice}") from None
    return RerankerSource((folder,), source, number)


def reranker_folder(source: str) -> Path:
    """The folder, or that of a model of the hub, which is downloaded if it is not on this machine."""
    path = paths.expand_home(source, "--reranker").absolute()
    if path.is_dir():
        return path
    if HUB_MODEL.fullmatch(source) and not path.exists() and not source.startswith("."):
        return hub_folder(source, ("config.json",), lambda folder: has_weights(folder) and has_tokenizer(folder))
    raise InputError(f"--reranker {source}: no such folder; a name on the Hugging Face hub is OWNER/NAME")
