"""A stage: a model of any origin, as a checkpoint whose pooling, prefix and tokenizer are settled."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.runtime import hub
from pipeline.runtime.work import Metrics, Work

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from pipeline.modeling.existing_model import Ready


PADDING = 128
"""Embeddings are filled up to a multiple of it at most."""


class SentenceEncoder(Config):
    """How a sentence becomes a vector, for every stage of the sentence tasks."""

    pooling: Literal["own", "cls", "mean"]
    """What of the last layer is the vector. `own`: as the model's folder says; CLS where it says nothing."""
    prefix: str | None
    """Text before each sentence, such as E5's `query: `. null: what the model's folder names for questions."""
    tokens: int = Field(ge=3, le=512)
    """Tokens of a sentence's input, prefix and special tokens included; the rest is cut."""


class SentenceModelConfig(Config):
    """Either a local folder or a model of the Hugging Face hub, of BERT or RoBERTa type."""

    checkpoint: Path | None
    """A checkpoint of the store, or a folder of transformers or sentence-transformers."""
    pretrained: str | None = Field(pattern=hub.HUB_NAME)
    """Name of a Hugging Face model."""
    revision: str
    """Branch, tag or commit of `pretrained`. Only a commit pins the content."""
    tokenizer: Path | None
    """A folder with a tokenizer, or a WordPiece `vocab.txt` of BERT's uncased kind, for a model that came without."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.checkpoint is None) == (self.pretrained is None):
            raise ValueError("set one of checkpoint and pretrained, and null for the other")
        return self


def missing(config: SentenceModelConfig) -> list[str]:
    """Lines that say how to bring what the stage would download and cannot, or what is wrong with the folder."""
    from pipeline.modeling.initial import FILES

    if config.checkpoint is not None and config.checkpoint.exists():
        try:
            ready = _read(config, one_encoder(config.checkpoint))
            if not ready.own_tokenizer:
                _tokenizer(config, ready)
        except InputError as error:
            return [f"models: {error}"]
    return hub.missing(config.pretrained, config.revision, FILES, "models.LABEL")


def one_encoder(folder: Path) -> Path:
    """The folder. Raises InputError where it holds an encoder of questions and another one of passages."""
    from pipeline.modeling.sentence_transformers_files import is_tied

    if not is_tied(folder):
        raise InputError(f"{folder}: holds two encoders; name one, {folder.name}/query or {folder.name}/passage")
    return folder


def sentence_model(config: SentenceModelConfig, encoder: SentenceEncoder, work: Work) -> Metrics:
    """Write the encoder as a checkpoint with its own tokenizer, or where it has none with `config.tokenizer`.

    Raises InputError where modeling/existing_model.py does, where it cannot be loaded, has no tokenizer that is known
    here or fewer entries than that, or has fewer positions than `encoder.tokens`.
    """
    import json

    from pipeline.modeling.biencoder import Encoder, check_fits
    from pipeline.modeling.checkpoint import load_encoder, save_checkpoint
    from pipeline.modeling.initial import FILES, HUB_FILES
    from pipeline.modeling.sentence_transformers_files import CLS, read_vector
    from pipeline.tokenization.tokenizer import kind, special_tokens

    if config.checkpoint is not None:
        folder = one_encoder(config.checkpoint)
    else:
        assert config.pretrained is not None
        wanted = [*HUB_FILES, "*.json", "*_Pooling/*", "*_Dense/*"]
        folder = hub.fetch(config.pretrained, config.revision, wanted, FILES)
    ready = _read(config, folder)
    model = load_encoder(ready.folder)
    tokenizer = _tokenizer(config, ready)
    specials, names = special_tokens(tokenizer)
    vector = replace(
        CLS if ready.pooling is None else read_vector(folder),
        pooling=encoder.pooling if encoder.pooling != "own" else ready.pooling or "cls",
        question_prefix=ready.question_prefix if encoder.prefix is None else encoder.prefix,
        passage_prefix=ready.passage_prefix,
    )
    check_fits(Encoder(model, vector.pooling), specials, folder, "encoder.tokens", encoder.tokens)
    files = work.checkpoints / "tokenizer"
    files.mkdir(parents=True, exist_ok=True)
    (files / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n", "utf-8")
    description = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # it takes tokenizer.json as it is
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **names,
    }
    (files / "tokenizer_config.json").write_text(json.dumps(description, indent=2) + "\n", "utf-8")
    save_checkpoint(work.out, model, files, vector=vector)
    return {
        "parameters": model.num_parameters(),
        "layers": model.config.num_hidden_layers,
        "hidden_size": model.config.hidden_size,
        "pooling": vector.pooling,
        "prefix": vector.question_prefix,
        "tokenizer": kind(tokenizer),
    }


def _read(config: SentenceModelConfig, folder: Path) -> "Ready":
    """What the folder says of itself. Raises InputError where neither it nor the config has a tokenizer."""
    from pipeline.modeling.existing_model import read, read_whole

    return read_whole(folder) if config.tokenizer is None else read(folder)


def _tokenizer(config: SentenceModelConfig, ready: "Ready") -> "Tokenizer":
    """The model's own; the config's where it has none. Raises InputError where that one has another size."""
    from pipeline.modeling.model_config import model_config
    from pipeline.tokenization.tokenizer import read_tokenizer, read_tokenizer_or_vocabulary
    from pipeline.tokenization.wordpiece import Normal

    if config.tokenizer is None or ready.own_tokenizer:
        return read_tokenizer(ready.folder)
    given = read_tokenizer_or_vocabulary(
        config.tokenizer, Normal(lowercase=True, split_identifiers=False, drop_rules=False)
    )
    entries, embeddings = given.get_vocab_size(), model_config(ready.folder)["vocab_size"]
    if not embeddings - PADDING < entries <= embeddings:
        both = f"{entries:,} entries, but the model {ready.folder} has {embeddings:,} token embeddings"
        raise InputError(f"tokenizer {config.tokenizer}: {both}")
    return given
