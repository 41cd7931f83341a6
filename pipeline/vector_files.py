"""What is made of a model's last layer, in the files of sentence-transformers: they stand beside the model's own.

Shapes: D dimensions of the model, E of a vector.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file

from pipeline.errors import InputError

POOLING, DENSE, NORMALISE = "1_Pooling", "2_Dense", "3_Normalize"
"""Folders of sentence-transformers' modules behind the model itself."""

Pooling = Literal["cls", "mean"]


@dataclass(frozen=True)
class Vector:
    """What is made of a text's last layer."""

    pooling: Pooling
    normalise: bool = False
    """To length 1."""
    projection_ED: torch.Tensor | None = None
    """Linear map of the pooled state, without bias."""
    question_prefix: str = ""
    passage_prefix: str = ""


CLS = Vector("cls")


def write_vector(folder: Path, hidden_size: int, vector: Vector) -> None:
    """Without these files sentence-transformers takes the mean of the tokens, and compares by cosine."""
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
    if vector.projection_ED is not None:
        parts.append((DENSE, "Dense"))
        _write_dense(folder / DENSE, vector.projection_ED)
    if vector.normalise:
        parts.append((NORMALISE, "Normalize"))
        (folder / NORMALISE).mkdir(exist_ok=True)
        write_json(folder / NORMALISE / "config.json", {})
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(parts)
    ]
    write_json(folder / "modules.json", modules)
    prompts = {"query": vector.question_prefix, "document": vector.passage_prefix}
    said = {"prompts": prompts} if any(prompts.values()) else {}
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "dot", **said})


def _write_dense(folder: Path, weight_ED: torch.Tensor) -> None:
    folder.mkdir(exist_ok=True)
    save_file({"linear.weight": weight_ED.detach().cpu().contiguous()}, folder / "model.safetensors")
    write_json(
        folder / "config.json",
        {
            "in_features": weight_ED.shape[1],
            "out_features": weight_ED.shape[0],
            "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity",
        },
    )


def read_vector(folder: Path) -> Vector:
    """What a checkpoint, or a sentence-transformers folder, says of its vectors.

    InputError where its pooling is neither CLS nor mean, or other modules than a linear map without bias and a norm
    follow.
    """
    path = folder / "modules.json"
    modules = _read_json(path) if path.is_file() else [{"path": POOLING, "type": "Pooling"}]
    kinds = {str(module["type"]).rpartition(".")[2]: folder / module["path"] for module in modules}
    unknown = kinds.keys() - {"Transformer", "Pooling", "Dense", "Normalize"}
    if unknown:
        raise InputError(f"{path}: a module {min(unknown)}, which is not known here")
    settings = _read_json(kinds.get("Pooling", folder / POOLING) / "config.json")
    flags: dict[Pooling, str] = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    chosen = [name for name, flag in flags.items() if settings.get(flag) or settings.get("pooling_mode") == name]
    if len(chosen) != 1:
        raise InputError(f"{folder / POOLING}: neither pooling by the CLS token alone nor by the mean alone")
    projection_ED = _read_dense(kinds["Dense"]) if "Dense" in kinds else None
    path = folder / "config_sentence_transformers.json"
    prompts = _read_json(path).get("prompts", {}) if path.is_file() else {}
    prefixes = {
        f"{side}_prefix": prompts.get(name, "") for side, name in (("question", "query"), ("passage", "document"))
    }
    return Vector(chosen[0], "Normalize" in kinds, projection_ED, **prefixes)


def _read_dense(folder: Path) -> torch.Tensor:
    settings = _read_json(folder / "config.json")
    if settings.get("bias", True) or not str(settings.get("activation_function")).endswith("Identity"):
        raise InputError(f"{folder}: a projection with bias or activation, but only a linear map is known here")
    return load_file(folder / "model.safetensors")["linear.weight"]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read, so that the model's vectors are not known: {error}") from error


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
