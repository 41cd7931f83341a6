"""How a model's last layer becomes a vector, in the files of sentence-transformers, next to the model's own files.

Shapes: D dimensions of the model, E of a vector.
"""

import json
import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pipeline.errors import InputError, reason

if TYPE_CHECKING:  # the flow's process also reads these files, and loads no torch
    from torch import Tensor

KINDS = ("Transformer", "Pooling", "Dense", "Normalize")
"""sentence-transformers' modules in their order; the last two are optional."""
POOLING, DENSE, NORMALISE = "1_Pooling", "2_Dense", "3_Normalize"
"""Folders of sentence-transformers' modules after the model itself."""
MODULES = "sentence_transformers.models."
"""Package of their classes."""

ACTIVATIONS = {
    "Identity": "torch.nn.modules.linear.Identity",
    **{name: f"torch.nn.modules.activation.{name}" for name in ("Tanh", "ReLU", "GELU", "Sigmoid")},
}
"""Activations of a projection: name in torch.nn -> its full name."""
Pooling = Literal["cls", "mean"]


class Dense(NamedTuple):
    """A projection: activation(linear map of the pooled state)."""

    weight_ED: "Tensor"
    bias_E: "Tensor | None" = None
    activation: str = "Identity"
    """One of ACTIVATIONS."""


class DenseSettings(NamedTuple):
    """The description of a projection, without its weights."""

    inputs: object
    """D, if the file is not damaged."""
    outputs: object
    """E, likewise."""
    has_bias: bool
    activation: str


@dataclass(frozen=True)
class Vector:
    """How the last layer of a text becomes a vector."""

    pooling: Pooling
    normalise: bool = False
    """To length 1."""
    projection: Dense | None = None
    question_prefix: str = ""
    passage_prefix: str = ""


CLS = Vector("cls")


def side(checkpoint: Path, name: Literal["query", "passage"]) -> Path:
    """Returns the folder of one encoder: the checkpoint itself if both encoders are the same."""
    return checkpoint if is_tied(checkpoint) else checkpoint / name


def is_tied(checkpoint: Path) -> bool:
    """Whether questions and passages share an encoder."""
    return not (checkpoint / "query").is_dir()


def write_vector(folder: Path, hidden_size: int, vector: Vector) -> None:
    """Writes the module files; without them sentence-transformers uses the mean of the tokens, and the cosine."""
    parts = [("", "Transformer"), (POOLING, "Pooling")]
    (folder / POOLING).mkdir(exist_ok=True)
    write_json(
        folder / POOLING / "config.json",
        {
            "word_embedding_dimension": hidden_size,
            "pooling_mode_cls_token": vector.pooling == "cls",
            "pooling_mode_mean_tokens": vector.pooling == "mean",
        },
    )
    if vector.projection is not None:
        parts.append((DENSE, "Dense"))
        _write_dense(folder / DENSE, vector.projection)
    if vector.normalise:
        parts.append((NORMALISE, "Normalize"))
        (folder / NORMALISE).mkdir(exist_ok=True)
        write_json(folder / NORMALISE / "config.json", {})
    modules = [{"idx": i, "name": str(i), "path": path, "type": MODULES + name} for i, (path, name) in enumerate(parts)]
    write_json(folder / "modules.json", modules)
    write_prompts(folder, vector.question_prefix, vector.passage_prefix)


def write_prompts(folder: Path, question: str, passage: str) -> None:
    """Writes the prefixes of questions and passages, and the inner product as similarity."""
    prompts = {"query": question, "document": passage}
    named = {"prompts": prompts} if any(prompts.values()) else {}
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "dot", **named})


def _write_dense(folder: Path, dense: Dense) -> None:
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    weights = {"linear.weight": dense.weight_ED} | ({} if dense.bias_E is None else {"linear.bias": dense.bias_E})
    save_file({name: x.detach().cpu().contiguous() for name, x in weights.items()}, folder / "model.safetensors")
    write_json(
        folder / "config.json",
        {
            "in_features": dense.weight_ED.shape[1],
            "out_features": dense.weight_ED.shape[0],
            "bias": dense.bias_E is not None,
            "activation_function": ACTIVATIONS[dense.activation],
        },
    )


def read_vector(folder: Path) -> Vector:
    """Reads how a checkpoint, or a sentence-transformers folder, computes its vectors.

    Raises InputError if its pooling is neither CLS nor mean, or if any other module follows than a projection and a
    normalisation.
    """
    kinds = _known_modules(folder)
    settings = read_model_json(kinds.get("Pooling", folder / POOLING) / "config.json", dict)
    flags: dict[Pooling, str] = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    chosen = [name for name, flag in flags.items() if settings.get(flag) or settings.get("pooling_mode") == name]
    if len(chosen) != 1:
        raise InputError(f"{folder / POOLING}: only cls or mean pooling is supported")
    projection = _read_dense(kinds["Dense"]) if "Dense" in kinds else None
    path = folder / "config_sentence_transformers.json"
    prompts = read_model_json(path, dict).get("prompts", {}) if path.is_file() else {}
    prefixes = {
        f"{text}_prefix": prompts.get(name, "") for text, name in (("question", "query"), ("passage", "document"))
    }
    return Vector(chosen[0], "Normalize" in kinds, projection, **prefixes)


def projected(folder: Path) -> int | None:
    """Returns E of a folder's projection, without loading weights; None if it has none.

    Raises InputError for a description that cannot be read.
    """
    dense = _known_modules(folder).get("Dense")
    if dense is None:
        return None
    size = read_dense_settings(dense).outputs
    if not isinstance(size, int) or isinstance(size, bool):
        raise InputError(f"{dense / 'config.json'}: out_features must be an integer: {size!r}")
    return size


def read_modules(folder: Path) -> list[tuple[str, Path]]:
    """Returns (kind, folder) of each module of modules.json, in order; none if the file is missing."""
    path = folder / "modules.json"
    if not path.is_file():
        return []
    try:
        modules = [
            (_kind(str(module["type"])), os.path.normpath(module["path"])) for module in read_model_json(path, list)
        ]
    except (LookupError, TypeError) as error:
        raise InputError(f"{path}: not a list of modules with type and path") from error
    for _, inside in modules:
        if os.path.isabs(inside) or ".." in Path(inside).parts:
            raise InputError(f"{path}: the path {inside!r} leads out of the model's folder")
    return [(kind, folder / inside) for kind, inside in modules]


def _kind(name: str) -> str:
    """Returns the class of sentence-transformers; the whole name of a class of other code, which is never run."""
    return name.rpartition(".")[2] if name.startswith("sentence_transformers.") else name


def check_kinds(folder: Path, kinds: Sequence[str]) -> None:
    """Raises InputError for a kind of module that is not in KINDS."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise InputError(f"{folder / 'modules.json'}: a module {unknown[0]} is not supported")


def _known_modules(folder: Path) -> dict[str, Path]:
    """Returns {kind of module: its folder}. Raises InputError for an unsupported kind."""
    modules = dict(read_modules(folder))
    check_kinds(folder, [*modules])
    return modules


def read_dense_settings(folder: Path) -> DenseSettings:
    """Reads the description of a projection. Raises InputError for an unreadable one, or an unsupported setting."""
    settings = read_model_json(folder / "config.json", dict)
    name = str(settings.get("activation_function", "Tanh")).rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise InputError(f"{folder}: the activation {name} is not supported: only {', '.join(ACTIVATIONS)}")
    for field in ("module_input_name", "module_output_name"):
        if settings.get(field) not in (None, "sentence_embedding"):
            raise InputError(f"{folder}: {field} {settings[field]!r} is not supported: only 'sentence_embedding'")
    has_bias = read_flag(folder / "config.json", settings, "bias", True)
    return DenseSettings(settings.get("in_features"), settings.get("out_features"), has_bias, name)


def _read_dense(folder: Path) -> Dense:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    settings, path = read_dense_settings(folder), folder / "model.safetensors"
    expected: dict[str, tuple[Any, ...]] = {"linear.weight": (settings.outputs, settings.inputs)}
    if settings.has_bias:
        expected["linear.bias"] = (settings.outputs,)
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: the projection cannot be loaded: {reason(error)}") from error
    if {name: tuple(x.shape) for name, x in weights.items()} != expected:
        raise InputError(f"{path}: the projection's weights differ from its config.json")
    for name, x in weights.items():
        if not x.isfinite().all():
            raise InputError(f"{path}: the projection is damaged: {name} has NaN or infinite numbers")
    return Dense(weights["linear.weight"], weights.get("linear.bias"), settings.activation)


def read_model_json(path: Path, kind: type) -> Any:
    """Reads a JSON file of type `kind`. Raises InputError if it cannot be read or has another type."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read, so the model's vectors are unknown: {error}") from error
    if not isinstance(value, kind):
        raise InputError(f"{path}: must be a JSON {kind.__name__}, not a {type(value).__name__}")
    return value


def read_flag(path: Path, settings: Mapping[str, Any], name: str, default: bool) -> bool:
    """Returns a setting that is true or false, read from `path`; `default` if it is missing. Raises InputError."""
    value = settings.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InputError(f"{path}: {name} must be true or false: {value!r}")
    return value


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
