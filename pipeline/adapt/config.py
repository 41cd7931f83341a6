"""The configuration of the adaptation. Imports nothing that computes."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.config import Config, Seed, Whole
from pipeline.training.loop import Optimiser

Positive = Annotated[Whole, Field(ge=1)]


class QueryEncoderConfig(Config):
    """How the whole question encoder is trained."""

    steps: Positive
    """Updates."""
    optimiser: Optimiser


class BothEncodersConfig(Config):
    """How all weights of the model are trained, for queries and passages."""

    steps: Positive
    """Updates."""
    batch_queries: Positive
    """Queries of an update."""
    candidates: int = Field(ge=2)
    """Passages of each query in an update, drawn from `adapt.candidates`; all of them if those are fewer."""
    optimiser: Optimiser


class AdaptConfig(Config):
    """How an existing embedding model is adapted to a collection without training questions."""

    queries: Whole | None = Field(ge=2)
    """Generated queries to train on: one half titles and first sentences, one half keywords. null: no adaptation."""
    lead_words: Positive
    """Most words of a title or first sentence."""
    keyword_words: tuple[Positive, Positive]
    """Fewest and most words of a query of keywords."""
    depth: int = Field(ge=1, le=10_000)
    """Passages of each of the teacher's two lists, BM25's and the model's own. Scores are z-normalised over the union
    of both lists."""
    candidates: int = Field(ge=2)
    """Passages that a query is trained on: the first of the fused list."""
    trains: Literal["map", "query_encoder", "both_encoders"]
    """What is trained. `map`: one linear map of the vectors of questions and passages. `query_encoder`: all weights of
    the question encoder, at a multiple of the cost; passages keep the vectors of the model as it is. `both_encoders`:
    all weights; all passages are encoded again."""
    temperature: float = Field(gt=0)
    """Divides the model's cosines. For longer vectors, whose inner products are larger, it is multiplied by the mean
    squared length of candidates."""
    batch_queries: Positive
    """Queries of an update, of the map and of the question encoder; the passages of so many scale `temperature`."""
    steps: Positive
    """Updates of the map."""
    learning_rate: float = Field(gt=0)
    """Of the map: Adam's rate of the first update; it falls linearly to 0."""
    l2: float = Field(ge=0)
    """Of the map: weight of the sum of its change's squared entries."""
    query_encoder: QueryEncoderConfig
    both_encoders: BothEncodersConfig
    merge: float = Field(gt=0, le=1)
    """Share of the trained change that is kept; the rest is the model as it was."""
    guard_queries: int = Field(ge=2)
    """Generated queries of another kind (spans of words), which decide whether the adapted model is used."""
    guard_words: tuple[Positive, Positive]
    """Fewest and most words of such a query."""
    guard_p: float = Field(gt=0, lt=1)
    """The adapted model is used if it agrees better with the fusion, with a smaller p (paired randomisation)."""
    seed: Seed
    """Seed of the generated queries, of their order in training, of drawn candidates, and of the test's signs."""

    @property
    def encodes_again(self) -> bool:
        """Whether the adapted model's vectors of passages do not follow from those of the model as it was."""
        return self.trains == "both_encoders"

    @model_validator(mode="after")
    def _fewest_words_first(self) -> Self:
        for name in ("keyword_words", "guard_words"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name}: the first number must not be above the second")
        if self.candidates > self.depth:
            raise ValueError(f"candidates ({self.candidates}) is more than depth ({self.depth})")
        return self
