"""The configuration of the evaluation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline.config import Config, Seed
from pipeline.evaluate import systems
from pipeline.evaluate.significance import Test

if TYPE_CHECKING:
    pass


SPLITS = ("dev", "test")


class EvaluateConfig(Config):
    relevance: int = Field(ge=1)
    """Least judgement that is relevant in binary measures (1; TREC Deep Learning: 2). nDCG takes the grades."""
    systems: dict[systems.Name, Path]
    """Other systems as rows of every table, by name: run files, plain or compressed, of TREC's six columns or MS
    MARCO's three, with questions of dev, test or both. Passages stand by score, equal scores as the file has them."""
    fusions: list[Annotated[list[str], Field(min_length=2)]]
    """Runs to be joined beside BM25 and the last dense one: two or more of `bm25`, `pretrained`, `stage1`, `stage2`
    (`stage2-2`, ... of further rounds), `rerank` and the names of `systems`."""
    fusion_methods: list[Literal["reciprocal_rank", "weighted_sum", "z_score_sum"]] = Field(min_length=1)
    """How lists may be joined; for each fusion the best by MRR@10 on dev is taken (where dev has answers alone, a
    passage that holds one is relevant). Where dev cannot tell (no dev questions, one of the runs has none, nothing
    relevant is found) and several are named, scores are z-normalised and added."""
    fusion_weights: list[Annotated[float, Field(gt=0, lt=1)]] = Field(min_length=1)
    """Shares of the first run (BM25) that are tried on dev; the others have equal parts of the rest. Where dev cannot
    tell and several are named, all runs weigh alike."""
    reciprocal_k: float = Field(gt=0)
    """k in weight / (k + rank): 60 in Cormack, Clarke and Buettcher (2009)."""
    bootstrap_samples: int = Field(ge=100)
    """Resamples of the questions for each 95 % interval."""
    test: Test
    """Of differences, two-sided and paired by question: `randomisation` of signs (Smucker, Allan and Carterette, 2007)
    or Student's `t`. p is corrected for the number of pairs by Holm's method."""
    permutations: int = Field(ge=100)
    """Draws of signs of the randomisation test."""
    seed: Seed
    """Seed of the resamples and of the signs."""
    neighbours: list[Annotated[int, Field(ge=1)]]
    """n of nb-recall n@k, passages: how many of a dense run's first n the one before has in its first k (50 and 100 in
    the Condenser paper's analysis). `[]`: not measured."""
    answers: int = Field(ge=1, le=100)
    """Passages of each question and system that are kept beside the measures, for the report."""

    @field_validator("neighbours")
    @classmethod
    def _each_once(cls, neighbours: list[int]) -> list[int]:
        if len({*neighbours}) < len(neighbours):
            raise ValueError("names a number twice")
        return neighbours

    @model_validator(mode="after")
    def _names_are_told_apart(self) -> Self:
        systems.check_names([*self.systems], self.fusions)
        return self
