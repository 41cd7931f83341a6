"""The settings of the bi-encoder, shared by every stage that trains or uses it."""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, field_validator

from pipeline.config import Config, Whole
from pipeline.modeling.model_files.model_config import LONGEST


class EncoderConfig(Config):
    pooling: Literal["cls", "mean"]
    """How the last layer becomes the vector. CLS in the papers; existing embedding models often use the mean."""
    normalise: bool
    """Vectors of length 1, so that the inner product is the cosine. False in the papers."""
    projection: int | None = Field(ge=1)
    """Dimensions of a linear map from the pooled state to the vector, trained in fine-tuning. null: none (papers)."""
    tied: bool
    """One encoder for questions and passages (MARCO), or two that start equal (DPR's set-up)."""
    question_tokens: int = Field(ge=4, le=LONGEST)
    """Tokens of a question's input, prefix and special tokens included. 32."""
    title_tokens: int = Field(ge=0, le=LONGEST)
    """Tokens of the title that are kept. 0: passages without titles."""
    title_separator: Literal["sep", "space"]
    """Between title and text: a separator token (the papers), or no token, as if they were joined by a space."""
    question_prefix: str
    """Text before each question, such as `query: `. Empty in the papers."""
    passage_prefix: str
    """Text before each passage, such as `passage: `."""
    dimensions: tuple[Annotated[Whole, Field(ge=1)], ...] | None = Field(default=None, min_length=1)
    """Matryoshka representation learning (Kusupati et al. 2022): the losses of stages 1 and 2 are means over prefixes
    of the vector of these lengths, from the whole vector down; at the end the vectors are rotated to principal
    components. null: the whole vector alone (papers)."""

    @field_validator("dimensions")
    @classmethod
    def _fall(cls, dimensions: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if any(after >= before for before, after in pairwise(dimensions or [])):
            raise ValueError("each dimension must be smaller than the one before it, such as [384, 256, 128, 64]")
        return dimensions

    @field_validator("question_prefix", "passage_prefix")
    @classmethod
    def _text(cls, prefix: str) -> str:
        if any("\ud800" <= letter <= "\udfff" for letter in prefix):
            raise ValueError("half of a surrogate pair is not text")
        return prefix
