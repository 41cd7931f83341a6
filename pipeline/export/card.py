"""The model card besides instructions for loading: figures, trainings and lineage."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.data.stored import read_json
from pipeline.evaluate.tables.short_tables import shallow_notes
from pipeline.export.source import Source
from pipeline.formatting import counted
from pipeline.pretrain.config import read_budget
from pipeline.report.results import HEADS, split_measures, system_rows
from pipeline.report.trainings import TRAININGS, training

COUNTS = {"documents": "documents", "passages": "passages", "train_queries": "training questions"}
"""Of ingest.json, as the card calls them."""
TAGS = ("sentence-transformers", "sentence-similarity", "feature-extraction", "dense-retrieval")

BY = {"judged": "", "answers": " with answers"}
"""Kind of measures -> addition to a table's heading."""


def card(source: Source) -> dict[str, Any]:
    """Returns the card's parts by the template's names."""
    return {
        "header": header(source),
        "title": source.settings.get("title") or source.recipe,
        "counts": counts_text(source),
        "trainings": [*trainings(source)],
        "tables": tables(source),
        "command": shlex.join(source.command),
        "artifacts": source.artifacts,
    }


def header(source: Source) -> str:
    """Returns YAML for the Hugging Face hub. No licence: it depends on the collection and the initial model."""
    lines = ["library_name: sentence-transformers", "pipeline_tag: sentence-similarity"]
    initial = source.settings.get("initial", {})
    if initial.get("pretrained") and not initial.get("checkpoint"):
        lines.append(f"base_model: {json.dumps(initial['pretrained'])}")
    return "\n".join(["---", *lines, "tags:", *(f"- {tag}" for tag in TAGS), "---"])


def counts_text(source: Source) -> str:
    """Returns `11,500 documents, 25,000 passages and 3,000 training questions`, with the known counts.

    An index can be exported without its collection, which may be missing.
    """
    path = source.collection / "ingest.json"
    known = read_json(path) if path.exists() else {}
    texts = [f"{known[name]:,} {what}" for name, what in COUNTS.items() if isinstance(known.get(name), int)]
    return " and ".join(part for part in (", ".join(texts[:-1]), *texts[-1:]) if part)


def trainings(source: Source) -> Iterator[dict[str, str]]:
    """Yields the trainings that lead to the model, in order, including those of the models that mined its negatives."""
    for node in source.artifacts:
        if node in TRAININGS or re.fullmatch(r"stage[12](-\d)?", node):
            config = source.settings.get(re.sub(r"-\d$", "", node), {})
            yield {
                "name": training(node),
                "length": length(config),
                "batch": batch_text(config),
                "rate": str(config.get("optimiser", {}).get("learning_rate", "")),
                "digest": source.artifacts[node],
            }
        if node == source.model:
            break


def length(config: Mapping[str, Any]) -> str:
    """Returns the length of a training, in the recipe's unit."""
    if config.get("budget") is not None:
        number, unit = read_budget(config["budget"])
        return counted(int(number) if number == int(number) else number, unit)
    return counted(config["epochs"], "epochs") if "epochs" in config else ""


def batch_text(config: Mapping[str, Any]) -> str:
    names = ("batch_queries", "batch_documents", "batch_blocks", "batch_passages", "batch_tokens")
    field = next((name for name in names if config.get(name) is not None), None)
    return f"{config[field]:,} {'questions' if field == 'batch_queries' else field[6:]}" if field else ""


def tables(source: Source) -> list[dict[str, Any]]:
    """Returns the table of each split; `own` marks the row of the exported model."""
    if not source.metrics.get("splits"):
        return []
    every = []
    for part in split_measures(source.metrics, []):
        shown = system_rows(source.metrics, part)
        every.append(
            {
                "heading": f"{part.split}, {counted(part.questions, 'questions')}{BY[part.kind]}",
                "heads": [HEADS.get(name, name) for name in part.columns],
                "rows": [{**row, "own": row["system"] == source.system} for row in shown],
                "shallow": shallow_notes(source.metrics, part.split, part.columns, part.systems),
            }
        )
    return every


def markdown(text: object) -> str:
    """Returns text escaped for Markdown, in one line and for a table's cell."""
    flat = " ".join(str(text).split())
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
