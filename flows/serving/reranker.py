"""Which cross-encoder reranks the answers of a run: the run's own, or an existing one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.runs import RunRecord
from artifacts.store import Store
from flows.serving.engine import Engine, check_whole
from flows.serving.question import Reranking
from flows.serving.series import trained_run
from pipeline.errors import InputError
from pipeline.evaluate.reranked import below, rerank_warning
from pipeline.runtime.launch import gpus

MOST = 1000
"""Maximum number of passages that are reranked for a question: the depth of coCondenser's leaderboard run."""


@dataclass(frozen=True)
class RerankerSource:
    """Cross-encoders that are not loaded yet. The mean of their scores counts."""

    folders: tuple[Path, ...]
    name: str
    most: int
    """Maximum number of passages for each question."""
    run: RunRecord | None = None
    """The run that trained them; None for an existing cross-encoder."""
    warning: str = ""
    """A line if the run's evaluation found it worse than the retriever on dev."""


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


def cross_encoders(run: RunRecord) -> dict[str, Path]:
    """{node: folder}."""
    return {node: ref.path for node, ref in run.nodes.items() if ref.stage == "cross_encoder"}


def warning_of(metrics: Mapping[str, Any], labelled: list[dict[str, Any]]) -> str:
    """A line if the cross-encoder is below the retriever on dev: by the evaluation's row, or else by soft labels.

    `labelled`: the metrics of the stages `soft_labels` (pipeline/cross_encoder/teacher_quality.py).
    """
    line = rerank_warning(metrics)
    if line is not None:
        return line
    lines = (below("MRR@10", one["dev_RR@10"], one["student_dev_RR@10"]) for one in labelled if "dev_RR@10" in one)
    return next(filter(None, lines), "")


def open_reranking(source: RerankerSource, often: bool) -> Reranking:
    """Loads the cross-encoders, on a GPU if there is one. `often`: for many questions at once.

    Raises InputError if one is damaged.
    """
    from pipeline.cross_encoder.reranker import open_reranker

    if source.run is not None:
        for node in cross_encoders(source.run):
            check_whole(source.run, node)
    return Reranking(open_reranker(source.folders, "cuda" if gpus() else "cpu", often), source.name, source.most)
