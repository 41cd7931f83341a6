"""The fields by which a reader cuts its documents into passages."""

from typing import Self

from pydantic import Field, model_validator

from pipeline.config import Config


class CutConfig(Config):
    """Fields of every reader. At their defaults, documents stay whole."""

    passage_words: int | None = Field(default=None, ge=1)
    """Documents are cut into passages of about this many words, with ids `D#0`, `D#1`, ... for document D. Judgements
    then refer to the documents, and a document's score is that of its best passage. null: a document is a passage."""
    passage_overlap: int = Field(default=0, ge=0)
    """Last words of a passage that the next passage of its document repeats; they count in `passage_words`."""

    @model_validator(mode="after")
    def _overlap_is_shorter(self) -> Self:
        if self.passage_overlap and self.passage_words is None:
            raise ValueError("passage_overlap needs passage_words: whole documents have no next passage")
        if self.passage_words is not None and self.passage_overlap >= self.passage_words:
            raise ValueError(
                f"passage_overlap ({self.passage_overlap}) must be smaller than passage_words ({self.passage_words})"
            )
        return self
