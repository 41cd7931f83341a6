"""The configuration of questions that a language model writes. Imports nothing that computes."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.config import Config, Seed, Whole
from pipeline.language_model.config import Count, ServerConfig
from pipeline.runtime import hub

Kind = Literal["question", "keywords", "claim", "title"]
SOURCES = ("checkpoint", "pretrained", "endpoint")
"""Fields that name a language model."""


class Price(Config):
    """In any currency."""

    input: float = Field(ge=0)
    """Of a million tokens that the model reads."""
    output: float = Field(ge=0)
    """Of a million tokens that the model writes."""

    def cost(self, input_tokens: float, output_tokens: float) -> float:
        """Returns the price of these tokens."""
        return (self.input * input_tokens + self.output * output_tokens) / 1e6


class GenerateConfig(ServerConfig):
    """Training questions that a language model writes. Without a model there is no such stage."""

    checkpoint: Path | None
    """A folder with a Hugging Face model: seq2seq (T5) or causal, with its chat template if it has one."""
    pretrained: str | None = Field(pattern=hub.HUB_NAME)
    """Name of such a model on the hub."""
    revision: str
    """Branch, tag or commit of `pretrained`. Only a commit pins the content."""
    prompt: Literal["instructions", "passage"]
    """`instructions`: what to write, with examples. `passage`: the text alone, for models that were trained to write a
    question for a passage (doc2query)."""
    kinds: Annotated[tuple[Kind, ...], Field(min_length=1)]
    """What is written. Each kind is a request for each passage."""
    questions: Whole = Field(ge=1, le=20)
    """Questions of a request."""
    examples: Path | None
    """The user's own examples, JSONL with `passage`, `question` and optionally `kind`, or TSV with these columns."""
    max_examples: Whole = Field(ge=0, le=50)
    """Most examples of a request: the first ones of its kind."""
    passages: Count | None
    """Passages that questions are written for, chosen at random by their text, so that new files change no other
    choice. null: all."""
    min_words: Whole = Field(ge=0)
    """Fewest words of a passage that questions are written for."""
    passage_words: Count
    """Most words of a passage, and of an example's passage, that the model reads."""
    keep_questions: bool
    """Whether the training questions of the collection are used too."""
    round_trip: Literal["auto", "fusion", "bm25"] | None
    """A question is used only if this search finds its passage. `fusion`: of BM25 and the model that fine-tuning starts
    from. `auto`: the fusion for an existing embedding model, BM25 for one that is pre-trained here. null: all are."""
    round_trip_depth: Whole = Field(ge=1, le=1000)
    """The passage must be among this many first ones."""
    seed: Seed
    """Seed of the choice of passages, and of sampling by a local model."""
    batch: Count
    """Prompts of a local model at the same time; one if `temperature` is above 0, so that it changes no answer."""
    price_per_million_tokens: Price | None
    """null: no cost is known."""
    max_requests: Whole | None = Field(ge=0)
    """If a run needs more requests, it is refused before the first. null: no limit."""
    max_cost: float | None = Field(ge=0)
    """A run stops once its requests have cost this much; answers are kept. null: no limit."""

    @property
    def is_on(self) -> bool:
        """Whether the recipe has this stage."""
        return any(self._sources.values())

    @property
    def _sources(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SOURCES}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        named = [name for name, value in self._sources.items() if value is not None]
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} are set: set one of them")
        if (self.endpoint is None) != (self.model is None):
            raise ValueError("endpoint and model belong together: a server's address, and the name of its model")
        if len({*self.kinds}) < len(self.kinds):
            raise ValueError("kinds: names a kind twice")
        if self.max_cost is not None and self.price_per_million_tokens is None:
            raise ValueError("max_cost needs price_per_million_tokens")
        if self.prompt == "passage" and self.endpoint is not None:
            raise ValueError("prompt: a server's model needs instructions")
        if self.prompt == "passage" and self.questions > 1 and not self.temperature:
            raise ValueError(
                "prompt: several questions of a passage alone are sampled: set temperature above 0, or 1 question"
            )
        return self


UNREAD = (
    *("key_variable", "concurrent", "batch", "timeout_seconds", "attempts"),
    *("price_per_million_tokens", "max_requests", "max_cost"),
)
"""Fields that change no question."""
