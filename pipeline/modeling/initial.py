"""The model before any pre-training: an existing one, or one from scratch."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.config import Config, Seed
from pipeline.errors import InputError
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.model_files.existing_model import read_model
from pipeline.modeling.model_files.model_config import check_padding, model_config, own_name, slower
from pipeline.modeling.model_files.weight_shapes import check_weights
from pipeline.notices import noticed, one_line
from pipeline.runtime import hub
from pipeline.runtime.work import Metrics, Work
from pipeline.tokenization.token_files import Specials, Tokens
from pipeline.tokenization.tokenizer import HUB_FILES as TOKENIZER_HUB_FILES
from pipeline.tokenization.tokenizer import has_tokenizer, read_tokenizer, special_tokens

if TYPE_CHECKING:
    from numpy import ndarray
    from transformers import PreTrainedModel

    from pipeline.modeling.model_files.sentence_transformers_files import Vector

FILES = ("model.safetensors", "model.safetensors.index.json")
HUB_FILES = ("model*.safetensors", "model.safetensors.index.json", "adapter_config.json", *TOKENIZER_HUB_FILES)


class InitialConfig(Config):
    """An existing model from `pretrained` or `checkpoint`; with neither, one from scratch."""

    pretrained: str | None = Field(pattern=hub.HUB_NAME)
    """Name of a Hugging Face model of a supported type (docs/encoders.md), such as `bert-base-uncased` (Condenser,
    section 4.1)."""
    revision: str
    """Branch, tag or commit of `pretrained`. Only a commit pins the content."""
    checkpoint: Path | None
    """A local folder with such a model; a `head.safetensors` in it is kept. An embedding model without a head for
    masked language modelling is enough if no pre-training follows."""
    new_mlm_head: bool
    """Adds a random head for masked language modelling to an existing model without one, for pre-training."""
    architecture: Literal["bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "modernbert"]
    """Type of a model from scratch; MPNet's code fixes ids of its own tokenizer. This and all fields below apply only
    to a model from scratch."""
    layers: int = Field(ge=1)
    """Transformer layers of the backbone, early and late together."""
    hidden_size: int = Field(ge=1)
    """Dimensions of a token's state, and of a text's vector."""
    heads: int = Field(ge=1)
    """Attention heads; the number must divide `hidden_size`."""
    intermediate_size: int = Field(ge=1)
    """Dimensions of the feed-forward layer."""
    max_position: int = Field(ge=8)
    """Longest input in tokens, special tokens included."""
    dropout: float = Field(ge=0, lt=1)
    """Dropout probability of hidden states and attention weights."""
    seed: Seed
    """Seed of the random weights."""
    linear_range: float = Field(gt=0)
    """Standard deviation of the linear layers' random weights. 0.02 in BERT, with 768 inputs per layer; D ** -0.5 keeps
    the length of D inputs. Random embeddings have BERT's 0.02."""
    embeddings: Literal["random", "ppmi_svd"]
    """Token embeddings: random, or a truncated SVD of the PPMI matrix of the recipe's general text, or of the
    collection if there is none (pipeline/modeling/ppmi.py)."""
    ppmi_window: int = Field(ge=1)
    """Tokens on each side that count as context."""
    ppmi_context_exponent: float = Field(gt=0, le=1)
    """Exponent that smooths the context distribution (Levy, Goldberg and Dagan 2015, section 3.1: 0.75)."""
    ppmi_range: float = Field(gt=0)
    """Root mean square of each PPMI row's entries. Above 0.02, that of the positions, tokens outweigh positions."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.pretrained is not None and self.checkpoint is not None:
            raise ValueError(
                "pretrained and checkpoint are both set: set one of them, or neither to start from scratch"
            )
        if self.hidden_size % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide hidden_size ({self.hidden_size})")
        return self

    @property
    def from_scratch(self) -> bool:
        return self.pretrained is None and self.checkpoint is None

    @property
    def reads_passages(self) -> bool:
        """Whether the stage reads texts; random embeddings need only the vocabulary."""
        return self.from_scratch and self.embeddings == "ppmi_svd"


def missing(config: InitialConfig) -> list[str]:
    """Returns a line if the model's folder does not fit, or if the model must be downloaded and cannot be."""
    folders = {"checkpoint": config.checkpoint}
    if config.pretrained is not None:
        folders["pretrained"] = hub.cached(config.pretrained, config.revision, FILES)
    for field, folder in folders.items():
        if folder is not None and folder.exists():
            try:
                check_weights(folder, model_config(folder))
                if (folder / "modules.json").is_file():
                    read_model(folder)
            except InputError as error:
                return [f"initial.{field}: {error}"]
    return hub.missing(config.pretrained, config.revision, FILES, "initial.checkpoint")


def initial(
    config: InitialConfig, tokenizer: Path, tokens: Path, work: Work, encoder: EncoderConfig | None = None
) -> Metrics:
    """Writes the checkpoint that pre-training starts from: a model for masked LM, without pooler.

    `encoder`: how its vectors are computed; None: no stage uses vectors, as of a cross-encoder's start.

    An existing model keeps its Condenser head (`head.safetensors`) if it has one. Raises InputError if it is of another
    type, lacks a weight, or has another vocabulary than `tokenizer`. The metric `notice` reports where an embedding
    model's folder differs from `encoder`.
    """
    from pipeline.modeling import checkpoint
    from pipeline.modeling.checkpoint import head_objective, load_head, save_checkpoint
    from pipeline.modeling.model_files.sentence_transformers_files import CLS, Vector

    head = own = None
    if config.pretrained is not None or config.checkpoint is not None:
        if config.pretrained is not None:
            place = f"initial.pretrained {config.pretrained}"
            folder = hub.fetch(config.pretrained, config.revision, HUB_FILES, FILES)
        else:
            assert config.checkpoint is not None
            place, folder = f"initial.checkpoint {config.checkpoint}", config.checkpoint
        own = _own_vector(place, folder, encoder) if encoder else None
        kept = checkpoint.has_mlm_head(folder)
        model = checkpoint.load_backbone_for_mlm(folder) if kept else checkpoint.load_encoder(folder)
        if not kept and config.new_mlm_head:
            model = checkpoint.with_new_mlm_head(model, config.seed)
        check_vocabulary(place, folder, model.config.vocab_size, tokenizer)
        head = load_head(folder) if (folder / "head.safetensors").is_file() else None
        checkpoint.check_finite(folder, head or {})
        objective = head_objective(folder)
    else:
        model, objective = _from_scratch(config, Tokens.open(tokens), work), "condenser"
    vector = Vector(encoder.pooling, encoder.normalise, own.projection if own else None) if encoder else CLS
    save_checkpoint(work.out, model, tokenizer, head, objective=objective, vector=vector)
    return {
        "parameters": model.num_parameters(),
        "architecture": model.config.model_type,
        "layers": model.config.num_hidden_layers,
        "hidden_size": model.config.hidden_size,
        "head": "kept" if head else "none",
        "mlm_head": "none" if model.get_output_embeddings() is None else "yes",
        **noticed([slower(model_config(work.out)), *(_differing(own, encoder) if own and encoder else [])]),
    }


def _from_scratch(config: InitialConfig, tokens: Tokens, work: Work) -> "PreTrainedModel":
    """Returns a model with random weights, a function of the seed; with `ppmi_svd`, token embeddings from `tokens`."""
    import torch

    model: Any = _random_model(config, tokens.specials)
    scale = config.linear_range / model.config.initializer_range
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings():
                module.weight.mul_(scale)
    if config.embeddings == "ppmi_svd":
        embeddings_VD = torch.from_numpy(_ppmi_embeddings(config, tokens, work))
        known_V = embeddings_VD.any(dim=1)
        with torch.no_grad():
            model.get_input_embeddings().weight[known_V] = embeddings_VD[known_V].float()
    return model


def _random_model(config: InitialConfig, specials: Specials) -> "PreTrainedModel":
    import torch
    from transformers import AutoConfig, AutoModelForMaskedLM

    from pipeline.modeling.architectures.registry import ARCHITECTURES

    shape: dict[str, Any] = {
        "vocab_size": specials.vocab_size,
        "num_hidden_layers": config.layers,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate_size,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        "pad_token_id": specials.pad,
        "max_position_embeddings": config.max_position,
    }
    shape |= ARCHITECTURES[config.architecture].fields(shape, specials)
    fields = {own_name(config.architecture, name): value for name, value in shape.items()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return AutoModelForMaskedLM.from_config(AutoConfig.for_model(config.architecture, **fields))


def _ppmi_embeddings(config: InitialConfig, tokens: Tokens, work: Work) -> "ndarray":
    """Returns PPMI embeddings, [V, D]; zero for an entry without a neighbour, which stays random (all special tokens).

    Every row gets the length ppmi_range * sqrt(D), so that only directions come from the collection: position and type
    embeddings, added before the first layer norm, have the same weight relative to each token, and the logits of
    frequent tokens, whose PPMI rows are short, do not start smaller than those of rare ones in the tied output layer.
    """
    from pipeline.modeling import ppmi

    passages = tokens.passages
    total = len(passages.tokens)

    def progress(done: int) -> None:
        work.progress(done, total, "tokens")

    size, window = tokens.specials.vocab_size, config.ppmi_window
    counts = ppmi.cooccurrences(passages.tokens, passages.offsets, size, window, progress)
    work.progress(0, 1, "singular value decompositions")  # half of the time
    embeddings_VD = ppmi.svd_embeddings(ppmi.ppmi(counts, config.ppmi_context_exponent), config.hidden_size)
    work.progress(1, 1, "singular value decompositions")
    return ppmi.rescale(embeddings_VD, config.ppmi_range * config.hidden_size**0.5)


def _own_vector(place: str, folder: Path, encoder: EncoderConfig) -> "Vector | None":
    """Returns an embedding model's settings for vectors; None for another model.

    Raises InputError if the model has a projection and the recipe's `encoder` has none of the same dimensions.
    """
    from pipeline.modeling.model_files.sentence_transformers_files import read_vector

    if not (folder / "modules.json").is_file():
        return None
    own = read_vector(folder)
    if own.projection is not None and len(own.projection.weight_ED) != encoder.projection:
        raise InputError(
            f"{place}: projects to {len(own.projection.weight_ED)} dimensions, "
            f"but encoder.projection is {encoder.projection or 'null'}"
        )
    return own


def _differing(own: "Vector", encoder: EncoderConfig) -> list[str]:
    """Returns notices of settings where `encoder` differs from the model's folder; each may be intended."""
    fields = ["pooling", "normalise"]
    fields += [name for name in ("question_prefix", "passage_prefix") if getattr(own, name)]  # many folders name none
    settings = [(name, getattr(encoder, name), getattr(own, name)) for name in fields]
    return [
        f"encoder.{name} is {here!r}, but {there!r} in the model's folder"
        for name, here, there in settings
        if here != there
    ]


def check_vocabulary(place: str, folder: Path, vocab_size: int, tokenizer: Path) -> None:
    """Raises InputError unless the model in `folder` has the vocabulary of `tokenizer`. `place`: for the message.

    A model may have more embeddings than its own tokenizer has entries: some are padded to a round number.
    """
    fitting = read_tokenizer(tokenizer)
    expected, config = fitting.get_vocab(), model_config(folder)
    check_padding(place, config, special_tokens(fitting)[0].pad)
    own = read_tokenizer(folder).get_vocab() if has_tokenizer(folder) else None
    if vocab_size < len(expected) or (vocab_size > len(expected) and own != expected):
        raise InputError(f"{place}: its vocabulary has {vocab_size} entries, the tokenizer's {len(expected)}")
    if own is None:
        return
    differing = sorted((i, token) for token, i in expected.items() if own.get(token) != i)
    if differing:
        i, token = differing[0]
        raise InputError(
            f"{place}: its vocabulary differs from the tokenizer's, first at entry {i}, '{one_line(token)}'"
        )
