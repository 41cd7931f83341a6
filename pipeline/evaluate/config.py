"""The configuration of the evaluation. Imports no library that computes measures."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from pipeline.config import Config, Seed
from pipeline.evaluate import systems
from pipeline.evaluate.significance.paired import Test

SPLITS = ("dev", "test")
UNNAMED = re.compile(r"[^\w.-]+")
"""Characters that a node's name must not have."""


def _known(name: str) -> str:
    from pipeline.evaluate.measures import measure_name

    return measure_name(name)


Measure = Annotated[str, AfterValidator(_known)]
"""An unknown name is an error; `MRR@10` becomes `RR@10`."""


class EvaluateConfig(Config):
    relevance: int = Field(ge=1)
    """Smallest relevant judgement in binary measures (1; TREC Deep Learning: 2). nDCG uses the grades."""
    systems: dict[systems.Name, Path]
    """Other systems as rows of every table, by name: run files, plain or compressed, with TREC's six columns or MS
    MARCO's three, of dev, test or both. Passages (documents, if these are cut) are sorted by score, equal scores in
    the file's order."""
    fusions: list[Annotated[list[str], Field(min_length=2)]]
    """Fusions besides that of BM25 and the last dense run: two or more of `bm25`, `pretrained`, `stage1`, `stage2`
    (`stage2-2`, ... of further rounds), `rerank` and the names of `systems`."""
    fusion_methods: list[Literal["z_score_sum", "weighted_sum", "reciprocal_rank"]] = Field(min_length=1)
    """Fusion methods. A single one is used. Of several, z-normalised scores are added, unless at least 50 dev questions
    prove another method or weight better by MRR@10 (p < .05, paired by `test`, corrected by Holm's method for the
    number of methods and weights). If dev has only answers, a passage that holds one is relevant."""
    fusion_weights: list[Annotated[float, Field(gt=0, lt=1)]] = Field(min_length=1)
    """Weights of the first run (BM25); the other runs share the rest equally. A single one is used. Of several, all
    runs have equal weights, unless dev proves another one better."""
    best_three_share: float = Field(0.0, ge=0, le=1)
    """Share of a document's score that is the mean of its best three passages' in the list; the rest is its best
    passage's. 0: MaxP (Dai and Callan 2019). For documents of several passages: search, and where judgements name them
    the evaluation too."""
    reciprocal_k: float = Field(gt=0)
    """k in weight / (k + rank): 60 in Cormack, Clarke and Buettcher (2009)."""
    bootstrap_samples: int = Field(ge=100)
    """Resamples of the questions for each 95 % interval."""
    test: Test
    """Test of differences, two-sided and paired by question: `randomisation` of signs (Smucker, Allan and Carterette,
    2007) or Student's `t`. p is corrected for the number of pairs by Holm's method."""
    permutations: int = Field(ge=100)
    """Draws of signs of the randomisation test."""
    seed: Seed
    """Seed of the resamples and of the signs."""
    nb_recall: list[Annotated[int, Field(ge=1)]]
    """n of nb-recall n@k, in passages: share of a dense run's first n in the first k of the dense run before it (50 and
    100 in the Condenser paper's analysis). `[]`: not measured."""
    answers: int = Field(ge=1, le=100)
    """Passages per question and system that are stored with the measures, for the report."""
    others: list[Path] = Field(default=[])
    """Further folders in BEIR's layout, not trained on. An existing model is measured on them before and after its
    training or adaptation, by nDCG@10 over test questions (dev, if there are none). `[]`: not measured."""

    @field_validator("nb_recall")
    @classmethod
    def _each_once(cls, cutoffs: list[int]) -> list[int]:
        if len({*cutoffs}) < len(cutoffs):
            raise ValueError("contains a duplicate number")
        return cutoffs

    @model_validator(mode="after")
    def _names_are_distinct(self) -> Self:
        systems.check_names([*self.systems], self.fusions)
        return self

    @field_validator("others")
    @classmethod
    def _others_have_names(cls, folders: list[Path]) -> list[Path]:
        names = [collection_name(folder) for folder in folders]
        for folder, name in zip(folders, names, strict=True):
            if not name:
                raise ValueError(f"{folder}: has no name; give the path of the folder itself")
            if names.count(name) > 1:
                raise ValueError(f"two collections are called {name}: rename a folder")
        return folders

    @property
    def other_folders(self) -> dict[str, Path]:
        """`others` by name."""
        return {collection_name(folder): folder for folder in self.others}


def collection_name(folder: Path) -> str:
    """Returns the folder's name in tables and nodes; empty for `.` and `..`."""
    return UNNAMED.sub("-", folder.name).strip("-.")
