"""Checkpoint folders that transformers and sentence-transformers load, with the Condenser head in its own file."""

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)
from transformers.utils import logging

from pipeline.data.parquet import write_parquet
from pipeline.errors import InputError, reason
from pipeline.modeling import padded
from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.model_files.model_config import (
    MLM_HEADS,
    SPARE,
    has_token_types,
    input_limit_of,
    is_packed,
    model_config,
)
from pipeline.modeling.model_files.sentence_transformers_files import CLS, Vector, write_json, write_vector
from pipeline.modeling.transformer import LanguageModel, new_head


def save_checkpoint(
    folder: Path,
    model: PreTrainedModel,
    tokenizer_folder: Path,
    head_state: Mapping[str, torch.Tensor] | None = None,
    history: list[dict[str, Any]] | None = None,
    objective: str = "condenser",
    vector: Vector = CLS,
) -> None:
    """Writes a checkpoint folder (format: docs/architecture.md). Creates `folder` if it does not exist.

    `model`: for masked LM, or a bare encoder. `tokenizer_folder`: a folder with the
    tokenizer's files, for example a checkpoint. `head_state`: the head that was trained for `objective`. `history`: one
    row per update, `step` and one number per figure, the same keys in each; if None or empty, no file is written.
    `vector`: how the last layer becomes a vector.
    """
    _save(folder, model, history)
    if head_state is not None:
        head = {name: x.detach().cpu().contiguous() for name, x in head_state.items()}
        save_file(head, folder / "head.safetensors", metadata={"objective": objective})
    write_vector(folder, model.config.hidden_size, vector)
    _write_tokenizer(folder, tokenizer_folder, longest_input(model))
    _open_to_readers(folder)


def load_backbone_for_mlm(folder: Path) -> PreTrainedModel:
    """Loads a model for masked LM, such as `BertForMaskedLM`, in float32, on the CPU, in evaluation mode.

    Raises InputError if the folder holds another architecture or lacks a weight, also one of the MLM head.
    """
    return _load(folder, AutoModelForMaskedLM, SPARE)


def load_encoder(folder: Path) -> PreTrainedModel:
    """Loads an encoder, such as `BertModel`, without pooler or MLM head, in float32, on the CPU, in evaluation mode.

    Raises InputError if the folder holds another architecture or lacks a weight.
    """
    return _load(folder, AutoModel, (*SPARE, *MLM_HEADS), **encoder_options(folder))


def check_finite(folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Raises InputError if one of the weights of the model in `folder` has a number that is NaN or infinite."""
    faulty = [name for name, x in weights.items() if x.is_floating_point() and not torch.isfinite(x).all()]
    if faulty:
        more = f" and {len(faulty) - 1} more" if len(faulty) > 1 else ""
        raise InputError(f"{folder}: the model is damaged: weight {faulty[0]}{more} has NaN or infinite numbers")


def encoder_options(folder: Path) -> dict[str, bool]:
    """Returns the options with which `AutoModel` loads the model in `folder` without a pooler. Raises InputError."""
    model_config(folder)
    classes: Any = MODEL_MAPPING[type(AutoConfig.from_pretrained(folder, local_files_only=True))]
    name = "add_pooling_layer"
    parameters = inspect.signature(classes[0] if isinstance(classes, tuple) else classes).parameters
    return {name: False} if name in parameters else {}


def new_classifier(start: Path, seed: int) -> PreTrainedModel:
    """Returns the backbone of checkpoint `start` with a random head of one logit, on the CPU, in evaluation mode."""
    encoder = load_encoder(start)
    labels = {"id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    config = type(encoder.config).from_dict({**encoder.config.to_dict(), **labels})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(config)
    backbone = model.base_model
    backbone.load_state_dict({**backbone.state_dict(), **encoder.state_dict()})  # a pooler stays random
    return model.eval()


def load_classifier(folder: Path) -> PreTrainedModel:
    """Loads a model for sequence classification of one logit, as `load_encoder`.

    Raises InputError if the folder holds anything else.
    """
    model = _load(folder, AutoModelForSequenceClassification, ("position_ids",))
    if model.config.num_labels != 1:
        raise InputError(f"{folder}: a classifier of {model.config.num_labels} labels; a cross-encoder has one logit")
    return model


def save_classifier(
    folder: Path, model: PreTrainedModel, tokenizer_folder: Path, history: list[dict[str, Any]] | None = None
) -> None:
    """Writes a folder that `AutoModelForSequenceClassification` and sentence-transformers' `CrossEncoder` load.

    Parameters as in `save_checkpoint`.
    """
    model.config.architectures = [type(model).__name__]
    # Otherwise sentence-transformers returns the logit's sigmoid.
    model.config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    _save(folder, model, history)
    types = ["token_type_ids"] if has_token_types(model.config) else []
    _write_tokenizer(folder, tokenizer_folder, longest_input(model), ["input_ids", *types, "attention_mask"])
    _open_to_readers(folder)


def has_mlm_head(folder: Path) -> bool:
    """Whether the weights in `folder` hold a head for masked language modelling.

    Names of its weights are not known for a model without packed layers: its config.json tells.
    """
    config = model_config(folder)
    if not is_packed(config):
        return any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in config.get("architectures") or ())
    return any(name.startswith(MLM_HEADS) for name in _weight_names(folder))


def _weight_names(folder: Path) -> list[str]:
    names: list[str] = []
    for path in folder.glob("*.safetensors"):
        if path.name != "head.safetensors":
            with safe_open(path, "pt") as file:
                names += file.keys()
    return names


def with_new_mlm_head(encoder: PreTrainedModel, seed: int) -> PreTrainedModel:
    """Returns the encoder with a random head for masked language modelling, a function of the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForMaskedLM.from_config(encoder.config)
    model.base_model.load_state_dict(encoder.state_dict())
    model.tie_weights()
    return model.eval()


def load_head(folder: Path) -> dict[str, torch.Tensor]:
    """Reads the Condenser head's weights. Raises InputError if `head.safetensors` is missing or damaged.

    A new head is no substitute: training with it would corrupt the backbone.
    """
    path = folder / "head.safetensors"
    if not path.is_file():
        raise InputError(f"{path}: missing; the Condenser head is part of the checkpoint, a new one would spoil it")
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: {reason(error)}") from error


def head_objective(folder: Path) -> str:
    """Returns the objective of the head in `folder`; `condenser` if its file names none, or if there is no head."""
    if not (folder / "head.safetensors").is_file():
        return "condenser"
    with safe_open(folder / "head.safetensors", "pt") as file:
        return (file.metadata() or {}).get("objective", "condenser")


def with_new_head(start: Path, layers: int, seed: int) -> nn.ModuleDict:
    """Returns {"lm", "head"}: the model of checkpoint `start`, and a random head."""
    lm: LanguageModel = load_backbone_for_mlm(start)
    torch.manual_seed(seed)
    return nn.ModuleDict({"lm": lm, "head": new_head(lm, layers)})


def with_own_head(start: Path, objective: str | None, layers: int | None = None) -> nn.ModuleDict:
    """Returns {"lm", "head"}: the model of checkpoint `start` and its head.

    Raises InputError unless the head has `layers` layers and was trained for `objective`. None: any head; if the
    checkpoint has none, a head of no layers.
    """
    lm: LanguageModel = load_backbone_for_mlm(start)
    path = start / "head.safetensors"
    if objective is None and not path.is_file():
        return nn.ModuleDict({"lm": lm, "head": nn.ModuleList()})
    state = load_head(start)
    if objective is not None and head_objective(start) != objective:
        raise InputError(f"{path}: a head trained for {head_objective(start)}, but one for {objective} is needed")
    head_layers = len({name.split(".")[0] for name in state})
    if layers is not None and layers != head_layers:
        raise InputError(f"{path}: a head of {head_layers} layers, but condenser.head_layers is {layers}")
    head = new_head(lm, head_layers)
    check_head(head, state, path)
    head.load_state_dict(state)
    return nn.ModuleDict({"lm": lm, "head": head})


def check_head(head: nn.ModuleList, state: Mapping[str, Tensor], path: Path) -> None:
    """Raises InputError unless `state`, read from `path`, has the names and shapes of the head's parameters."""
    expected = {name: x.shape for name, x in head.state_dict().items()}
    if expected != {name: x.shape for name, x in state.items()}:
        raise InputError(f"{path}: not a head for a model of this type and size")


def longest_input(model: PreTrainedModel) -> int:
    """Returns the tokens of the longest input that the position table allows, special tokens included."""
    return input_limit_of(model.config)


def _load(folder: Path, model_class: Any, ignored: tuple[str, ...], **options: Any) -> PreTrainedModel:
    """Loads a model strictly: the folder has each weight in its shape, all finite, and only `ignored` ones besides."""
    model_config(folder)
    logging.disable_progress_bar()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # its warnings report what is checked below
    try:
        model, info = model_class.from_pretrained(
            folder,
            config=AutoConfig.from_pretrained(folder, local_files_only=True),
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **options,
        )
    except Exception as error:  # transformers raises OSError, safetensors its own error
        raise InputError(f"{folder}: no model could be loaded: {reason(error)}") from error
    finally:
        logging.set_verbosity(verbosity)
    missing = sorted(info["missing_keys"])
    unequal = sorted(str(mismatch[0]) for mismatch in info["mismatched_keys"])
    unknown = sorted(key for key in info["unexpected_keys"] if not any(part in key for part in ignored))
    if not architecture(model).is_packed:
        unknown = [key for key in unknown if not _is_of_a_head(key, model, folder)]
    for fault, names in (("lacks", missing), ("has the wrong shape of", unequal), ("has an unknown", unknown)):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise InputError(f"{folder}: the model {fault} weight {names[0]}{more}")
    check_finite(folder, model.state_dict())
    _align(model)
    if not architecture(model).is_packed:
        padded.check(model.eval(), str(folder))
    return model.eval()


def _align(model: PreTrainedModel) -> None:
    """Copies the weights out of the file, where their places depend on its header: on some processors, products with
    weights that are not aligned to 64 bytes are rounded in another way."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def _is_of_a_head(key: str, model: PreTrainedModel, folder: Path) -> bool:
    """Whether a weight of the folder is outside its backbone, all of whose weights then have a prefix."""
    prefix = f"{model.base_model_prefix}."
    return not key.startswith(prefix) and any(name.startswith(prefix) for name in _weight_names(folder))


def _save(folder: Path, model: PreTrainedModel, history: list[dict[str, Any]] | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable_progress_bar()
    model.config._name_or_path = ""  # with a path, equal models would differ in bytes
    model.save_pretrained(folder, max_shard_size="1TB")
    if history:
        _write_history(folder / "history.parquet", history)


def _open_to_readers(folder: Path) -> None:
    """Gives weights the mode of tokenizer.json, which follows the umask: safetensors writes mode 0600."""
    mode = (folder / "tokenizer.json").stat().st_mode & 0o777
    for path in folder.rglob("*.safetensors"):
        path.chmod(mode)


def _write_history(path: Path, history: list[dict[str, Any]]) -> None:
    import pyarrow as pa

    types = {name: pa.int64() if name == "step" else pa.float64() for name in history[0]}
    write_parquet(pa.Table.from_pylist(history, pa.schema(list(types.items()))), path)


def _write_tokenizer(folder: Path, source: Path, longest: int, inputs: Sequence[str] | None = None) -> None:
    """Copies the tokenizer's files. `inputs`: names of the model's inputs; None: those of `source`."""
    (folder / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    description = json.loads((source / "tokenizer_config.json").read_text("utf-8"))
    if inputs is not None:
        description["model_input_names"] = list(inputs)
    write_json(folder / "tokenizer_config.json", {**description, "model_max_length": longest})
