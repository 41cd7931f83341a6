"""Names and values that configurations had in older code, as today's: so that older artifacts are found
(tasks/equivalent_code.py). Every conversion leaves a configuration of today as it is.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from pipeline.pretrain.config import Budget

STAGES = {"scores": "soft_labels", "pseudo": "pseudo_labels", "given": "negatives_file"}
"""Older name of a stage -> its name."""
INPUTS = {"scores": "soft_labels", "pseudo": "pseudo_labels"}
"""Older name of a stage's parameter for an input -> its name."""
NODES = {"scores": "soft-labels", "pseudo": "pseudo-labels", "given": "negatives-file"}
"""Older name of a node, without its number -> its name."""

EXAMPLES = {
    "mix": "mix_negatives",
    "max_queries": "train_subset.queries",
    "subset_seed": "train_subset.seed",
}
APPROXIMATE = {"approximate.hnsw_effort": "approximate.ef_search", "approximate.ivf_probes": "approximate.nprobe"}
FIELDS: dict[str, dict[str, str]] = {
    "index": {
        "hnsw_neighbours": "hnsw_m",
        "hnsw_construction": "ef_construction",
        "ivf_lists": "nlist",
        "pq_bytes": "pq_m",
    },
    "search": {"unjudged": "unjudged_train_questions", **APPROXIMATE},
    "finetune": {
        **EXAMPLES,
        "order": "batch_order",
        "abs": "batch_scheduling",
        "validation.select": "validation.keep",
    },
    "cross_encoder": EXAMPLES,
    "ict": {"optimiser.seed": "seed"},
    "condenser": {"optimiser.seed": "seed"},
    "cocondenser": {"optimiser.seed": "seed"},
    "evaluate": {"neighbours": "nb_recall"},
}
"""{stage: {older dotted name of a field: its name}}."""
ENCODER = {"encoder.title_join": "encoder.title_separator"}
"""The same, of every stage that reads the section `encoder`."""

ZERO_TO_NULL = dict.fromkeys(
    (
        *("negative_depth", "positives_considered", "share_negatives", "train_subset.queries", "batch_scheduling.pool"),
        *("positives", "negatives", "number", "limit", "encoder.projection", "passage_words", "max_tokens"),
    ),
    (0, None),
)
VALUES: dict[str, tuple[Any, Any]] = {
    **ZERO_TO_NULL,
    "nlist": (0, "auto"),
    "mix_negatives": ("twice", "separate_epochs"),
    "dropout": (None, "checkpoint"),
}
"""{field: (older value, the value)}, under the field's name of today."""
TRAININGS = ("finetune", "cross_encoder")
PRETRAININGS = ("ict", "condenser", "cocondenser")


def todays_config(stage: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the configuration of a stage (its name of today) as today's code has it; None if today has no equal."""
    result = renamed(config, FIELDS.get(stage, {}) | ENCODER)
    if stage in PRETRAININGS and "steps" in result:
        result = _with_budget(result)
    if stage in TRAININGS and "seed" in result.get("optimiser", {}):  # one seed is left
        result["optimiser"] = dict(result["optimiser"])
        if result["optimiser"].pop("seed") != result.get("seed"):
            return None
        if stage == "cross_encoder":  # special tokens are counted
            result |= {name: result[name] + 2 for name in ("question_tokens", "passage_tokens") if name in result}
    if stage == "ingest" and "parts" in result:
        result["parts"] = [_with_values(part) for part in result["parts"]]
    if stage == "sentence_summary":  # 0 rows now mean the untrained model; all rows are null
        result["trainings"] = [
            one | {"size": one["size"] or None} if one["epochs"] else one for one in result["trainings"]
        ]
    return _with_values(result)


def todays_inputs(inputs: Mapping[str, str]) -> dict[str, str]:
    """Returns the inputs under today's names of the parameters."""
    return {INPUTS.get(name, name): identity for name, identity in inputs.items()}


def todays_node(node: str) -> str:
    """Returns the node's name of today: `soft-labels-2` for scores-2."""
    name, dash, number = node.partition("-")
    return f"{NODES.get(name, name)}{dash}{number}"


def _with_budget(config: dict[str, Any]) -> dict[str, Any]:
    """One field for steps, epochs and tokens, of which one was set."""
    known = {unit: config.get(unit) for unit in ("steps", "epochs", "tokens")}
    rest = {name: value for name, value in config.items() if name not in known}
    text = next((f"{number} {unit}" for unit, number in known.items() if number), None)
    return rest | {"budget": None if text is None else TypeAdapter(Budget).validate_python(text)}


def _with_values(config: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(config)
    for field, (older, value) in VALUES.items():
        section, dot, name = field.rpartition(".")
        place = result.get(section) if dot else result
        if isinstance(place, Mapping) and name in place and _same(place[name], older):
            changed = {**place, name: value}
            result = result | {section: changed} if dot else changed
    return result


def _same(value: Any, older: Any) -> bool:
    return type(value) is type(older) and bool(value == older)


def renamed(values: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values under current names: `fields` maps old dotted names to current ones."""
    moved = {name: _at(values, name.split(".")) for name in fields}
    result = _without(values, [name.split(".") for name in fields])
    for name, value in moved.items():
        if value is not ABSENT:
            *sections, last = fields[name].split(".")
            place = result
            for section in sections:
                place = place.setdefault(section, {})
            place[last] = value
    return result


ABSENT: Any = object()


def _at(values: Any, keys: list[str]) -> Any:
    for key in keys:
        if not isinstance(values, Mapping) or key not in values:
            return ABSENT
        values = values[key]
    return values


def _without(values: Mapping[str, Any], removed: list[list[str]]) -> dict[str, Any]:
    result = {name: value for name, value in values.items() if [name] not in removed}
    for name, value in result.items():
        if isinstance(value, Mapping):
            result[name] = _without(value, [keys[1:] for keys in removed if keys[0] == name and keys[1:]])
    return result
