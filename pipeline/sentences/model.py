"""Stage `sentence_model`: converts any model into a checkpoint with fixed pooling, prefix and tokenizer."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.modeling.model_files.model_config import LONGEST
from pipeline.notices import noticed
from pipeline.runtime import hub
from pipeline.runtime.work import Metrics, Work

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from pipeline.modeling.model_files.existing_model import ExistingModel


PADDING = 128
"""A vocabulary may be padded to at most a multiple of this number of embeddings."""


class SentenceEncoder(Config):
    """How a sentence becomes a vector, in all stages of the sentence tasks."""

    pooling: Literal["own", "cls", "mean"]
    """Pooling of the last layer. `own`: the pooling of the model's folder, or CLS if it has none."""
    prefix: str | None
    """Text before each sentence, such as E5's `query: `. null: the question prefix of the model's folder."""
    tokens: int = Field(ge=3, le=LONGEST)
    """Tokens of a sentence's input, including prefix and special tokens; the rest is cut."""


class SentenceModelConfig(Config):
    """Either a local folder or a model of the Hugging Face hub (docs/encoders.md)."""

    checkpoint: Path | None
    """A checkpoint of the store, or a folder of transformers or sentence-transformers."""
    pretrained: str | None = Field(pattern=hub.HUB_NAME)
    """Name of a Hugging Face model."""
    revision: str
    """Branch, tag or commit of `pretrained`. Only a commit pins the content."""
    tokenizer: Path | None
    """A folder with a tokenizer, or an uncased WordPiece `vocab.txt` as BERT's, for a model without a tokenizer."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.checkpoint is None) == (self.pretrained is None):
            raise ValueError("set one of checkpoint and pretrained, and null for the other")
        return self


def missing(config: SentenceModelConfig) -> list[str]:
    """Returns lines about faults of the folder, or how to get files that the stage cannot download."""
    from pipeline.modeling.initial import FILES

    if config.checkpoint is not None and config.checkpoint.exists():
        try:
            existing = _read(config, one_encoder(config.checkpoint))
            if not existing.own_tokenizer:
                _tokenizer(config, existing)
        except InputError as error:
            return [f"models: {error}"]
    return hub.missing(config.pretrained, config.revision, FILES, "models.LABEL")


def one_encoder(folder: Path) -> Path:
    """Returns the folder. Raises InputError if it has separate encoders for questions and passages."""
    from pipeline.modeling.model_files.sentence_transformers_files import is_tied

    if not is_tied(folder):
        raise InputError(f"{folder}: holds two encoders; choose {folder.name}/query or {folder.name}/passage")
    return folder


def sentence_model(config: SentenceModelConfig, encoder: SentenceEncoder, work: Work) -> Metrics:
    """Writes the encoder as a checkpoint with its own tokenizer, or with `config.tokenizer` if it has none.

    Raises InputError as modeling/model_files/existing_model.py does, and if the model cannot be loaded, has no known
    tokenizer or fewer embeddings than it, or has fewer positions than `encoder.tokens`.
    """
    import json

    from pipeline.modeling.biencoder import Encoder, check_fits
    from pipeline.modeling.checkpoint import load_encoder, save_checkpoint
    from pipeline.modeling.initial import FILES, HUB_FILES
    from pipeline.modeling.model_files.model_config import check_padding, model_config, slower
    from pipeline.modeling.model_files.sentence_transformers_files import CLS, read_vector
    from pipeline.tokenization.tokenizer import kind, special_tokens

    if config.checkpoint is not None:
        folder = one_encoder(config.checkpoint)
    else:
        assert config.pretrained is not None
        patterns = [*HUB_FILES, "*.json", "*_Pooling/*", "*_Dense/*"]
        folder = hub.fetch(config.pretrained, config.revision, patterns, FILES)
    existing = _read(config, folder)
    model = load_encoder(existing.folder)
    tokenizer = _tokenizer(config, existing)
    specials, names = special_tokens(tokenizer)
    config_json = model_config(existing.folder)
    check_padding(str(folder), config_json, specials.pad)
    vector = replace(
        CLS if existing.pooling is None else read_vector(folder),
        pooling=encoder.pooling if encoder.pooling != "own" else existing.pooling or "cls",
        question_prefix=existing.question_prefix if encoder.prefix is None else encoder.prefix,
        passage_prefix=existing.passage_prefix,
    )
    check_fits(Encoder(model, vector.pooling), specials, folder, "encoder.tokens", encoder.tokens)
    files = work.checkpoints / "tokenizer"
    files.mkdir(parents=True, exist_ok=True)
    (files / "tokenizer.json").write_text(tokenizer.to_str(pretty=True) + "\n", "utf-8")
    description = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # it uses tokenizer.json unchanged
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
        **noticed([slower(config_json)]),
    }


def _read(config: SentenceModelConfig, folder: Path) -> "ExistingModel":
    """Reads the folder's settings. Raises InputError if neither it nor the config has a tokenizer."""
    from pipeline.modeling.model_files.existing_model import read_model, read_whole_model

    return read_whole_model(folder) if config.tokenizer is None else read_model(folder)


def _tokenizer(config: SentenceModelConfig, existing: "ExistingModel") -> "Tokenizer":
    """Returns the model's tokenizer, or the config's if it has none. Raises InputError if that has another size."""
    from pipeline.modeling.model_files.model_config import model_config
    from pipeline.tokenization.tokenizer import read_tokenizer, read_tokenizer_or_vocabulary
    from pipeline.tokenization.wordpiece import Normal

    if config.tokenizer is None or existing.own_tokenizer:
        return read_tokenizer(existing.folder)
    tokenizer = read_tokenizer_or_vocabulary(
        config.tokenizer, Normal(lowercase=True, split_identifiers=False, drop_rules=False)
    )
    entries, embeddings = tokenizer.get_vocab_size(), model_config(existing.folder)["vocab_size"]
    if not embeddings - PADDING < entries <= embeddings:
        both = f"{entries:,} entries, but the model {existing.folder} has {embeddings:,} token embeddings"
        raise InputError(f"tokenizer {config.tokenizer}: {both}")
    return tokenizer
