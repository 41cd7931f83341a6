"""The cross-encoders that rerank the answers of a run."""

from dataclasses import dataclass
from pathlib import Path

from artifacts.runs import RunRecord
from flows.serving.engine import check_whole
from flows.serving.question import Reranking
from pipeline.runtime.launch import gpus


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


def cross_encoders(run: RunRecord) -> dict[str, Path]:
    """{node: folder}."""
    return {node: ref.path for node, ref in run.nodes.items() if ref.stage == "cross_encoder"}


def open_reranking(source: RerankerSource, often: bool) -> Reranking:
    """Loads the cross-encoders, on a GPU if there is one. `often`: for many questions at once.

    Raises InputError if one is damaged.
    """
    from pipeline.cross_encoder.reranker import open_reranker

    if source.run is not None:
        for node in cross_encoders(source.run):
            check_whole(source.run, node)
    return Reranking(open_reranker(source.folders, "cuda" if gpus() else "cpu", often), source.name, source.most)
