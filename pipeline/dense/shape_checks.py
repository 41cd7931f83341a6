"""Early checks of bi-encoders and indexes against models and collections: see pipeline/runtime/planned.py.

No stage imports them: what they read is in no key of an index or of its vectors.
"""

from pathlib import Path

from pipeline.dense.index_kinds import check_dimension, check_passages
from pipeline.errors import InputError
from pipeline.modeling.adopt import dimension
from pipeline.modeling.encoder_config import EncoderConfig
from pipeline.modeling.inputs import Form, check_room, read_form
from pipeline.modeling.model_files.model_config import input_limit, model_config
from pipeline.runtime.planned import Planned, first_model
from pipeline.tokenization.token_files import Tokens


def check_prefixes(node: Planned) -> None:
    """Room for texts behind the prefixes of a bi-encoder that reads passages."""
    tokens, encoder = node.input("tokens"), node.shared["encoder"]
    if tokens.artifact is not None:
        form = tokens.read(_form, tokens.input("tokenizer").path, encoder)
        field = f"{node.section}.passage_tokens"
        check_room("encoder.passage_prefix", form.before_passage, field, node.config.passage_tokens)


def _form(tokens: Path, tokenizer: Path, encoder: EncoderConfig) -> Form:
    return read_form(encoder, tokenizer, Tokens.open(tokens).specials)


def check_lengths(node: Planned) -> None:
    """Positions enough for what a bi-encoder reads."""
    start, encoder = first_model(node), node.shared["encoder"]
    if start is None:
        return
    room = input_limit(model_config(start))
    limits = {f"{node.section}.passage_tokens": node.config.passage_tokens}
    limits |= {"encoder.question_tokens": encoder.question_tokens}
    for field, limit in limits.items():
        if limit > room:
            raise InputError(f"{field}: {limit} tokens, but the model in {start} has {room} positions")


def check_training(node: Planned) -> None:
    """Positions for what a training reads, and prefixes of the vectors that it trains."""
    check_lengths(node)
    start, encoder = first_model(node), node.shared["encoder"]
    if start is None or encoder.dimensions is None:
        return
    whole = encoder.projection or int(model_config(start)["hidden_size"])
    if encoder.dimensions[0] != whole:
        first = f"encoder.dimensions: the first ({encoder.dimensions[0]})"
        raise InputError(f"{first} must be the whole vector, of {whole} numbers with the model in {start}")


def check_existing_dimension(node: Planned) -> None:
    """An index of the vectors of an existing bi-encoder."""
    model = node.input("embeddings").input("checkpoint")
    if model.stage == "adopt" and model.config.checkpoint.exists():  # of the store's own artifacts one may be gone
        check_dimension(node.config, dimension(model.config.checkpoint))


def check_index_passages(node: Planned) -> None:
    """Passages enough to train an index."""
    collection = node.input("collection")
    if collection.artifact is not None:
        check_passages(node.config, int(collection.metrics["passages"] or 0))


def check_index_dimension(node: Planned) -> None:
    """An index of the vectors before and after fine-tuning."""
    start = first_model(node)
    if start is not None:
        hidden = int(model_config(start)["hidden_size"])
        encoder = node.input("embeddings").shared.get("encoder")  # not of vectors that are mapped, not encoded
        projection = encoder.projection if encoder else None
        check_dimension(node.config, *sorted({hidden, projection or hidden}))
