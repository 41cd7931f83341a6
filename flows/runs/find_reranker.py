"""The cross-encoder that `--rerank` and `--reranker` of `search` and `serve-search` name, checked but not loaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from artifacts.store import Store
from flows.runs.find_model import HUB_MODEL, hub_folder
from flows.runs.series import trained_run
from flows.serving.engine import Engine
from flows.serving.reranker import RerankerSource, cross_encoders
from pipeline import paths
from pipeline.cross_encoder.cross_encoder import check_is_cross_encoder
from pipeline.errors import InputError
from pipeline.evaluate.reranked import below, rerank_warning
from pipeline.modeling.model_files.existing_model import check_own_tokenizer
from pipeline.modeling.model_files.weight_shapes import has_weights
from pipeline.tokenization.tokenizer import has_tokenizer

MOST = 1000
"""Maximum number of passages that are reranked for a question: the depth of coCondenser's leaderboard run."""


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


def check_number(number: int) -> None:
    """Raises InputError unless so many passages can be reranked."""
    if not 1 <= number <= MOST:
        raise InputError(f"--rerank {number:,}: must be from 1 to {MOST:,} passages")


def own_reranker(engine: Engine, number: int) -> RerankerSource:
    """The run's cross-encoders; those of the run that trained the model, if the run is an update.

    Raises InputError if there is none, or if the store has lost one.
    """
    if not cross_encoders(engine.run):  # an update trains nothing
        engine = trained_run(Store.of(engine.run.nodes["evaluate"]), engine)
    run, found = engine.run, cross_encoders(engine.run)
    if not found:
        trains = f"`cocondenser run {run.name} --set rerank.depth=100 --set 'rerank.splits=[dev]'` trains one"
        existing = (run.details.get("recipe") or {}).get("model") is not None
        other = "" if existing else f", and {trains}"  # an existing model is only evaluated
        raise InputError(
            f"--rerank: the run of {run.name} has no cross-encoder; --reranker DIR takes an existing one{other}"
        )
    lost = [node for node, path in found.items() if not path.exists()]
    if lost:
        raise InputError(
            f"--rerank: the run of {run.name} has lost {', '.join(lost)}; `cocondenser run {run.name}` builds it again"
        )
    warning = warning_of(engine.metrics, [ref.metrics for ref in run.nodes.values() if ref.stage == "soft_labels"])
    return RerankerSource(tuple(found.values()), ", ".join(found), number, run, warning)


def warning_of(metrics: Mapping[str, Any], labelled: list[dict[str, Any]]) -> str:
    """A line if the cross-encoder is below the retriever on dev: by the evaluation's row, or else by soft labels.

    `labelled`: the metrics of the stages `soft_labels` (pipeline/cross_encoder/teacher_quality.py).
    """
    line = rerank_warning(metrics)
    if line is not None:
        return line
    lines = (below("MRR@10", one["dev_RR@10"], one["student_dev_RR@10"]) for one in labelled if "dev_RR@10" in one)
    return next(filter(None, lines), "")
