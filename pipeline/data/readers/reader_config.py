"""The fields that every reader of a single source has."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipeline.config import Config

Similarity = Annotated[float, Field(strict=True, ge=0.5, le=1)] | None


class ReaderConfig(Config):
    """At their defaults, documents stay whole, and no passages are compared."""

    passage_words: int | None = Field(default=None, ge=1)
    """Documents are cut into passages of about this many words, with ids `D#0`, `D#1`, ... for document D. Judgements
    then refer to the documents, and a document's score is that of its best passage. null: a document is a passage."""
    passage_overlap: int = Field(default=0, ge=0)
    """Last words of a passage that the next passage of its document repeats; they count in `passage_words`."""

    near_duplicates: Similarity = None
    """Passages with at least this Jaccard similarity of their sets of three consecutive words almost equal each other:
    they are counted, are no negatives of each other, and a search shows the best one of them. 0.8: of 80 words
    three may differ. null: passages are not compared."""

    @model_validator(mode="after")
    def _overlap_is_shorter(self) -> Self:
        if self.passage_overlap and self.passage_words is None:
            raise ValueError("passage_overlap needs passage_words: whole documents have no next passage")
        if self.passage_words is not None and self.passage_overlap >= self.passage_words:
            raise ValueError(
                f"passage_overlap ({self.passage_overlap}) must be smaller than passage_words ({self.passage_words})"
            )
        return self
