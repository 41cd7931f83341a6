"""report.html: one page with the table, the pictures, examples and what it all was made from."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, JsonValue

from pipeline.config import Config, Seed
from pipeline.report.histories import entropies
from pipeline.report.hits import first_column, further_part, is_right, main_part, where_found
from pipeline.stored import read_json, read_table
from pipeline.tables import HITS, TABLE, estimate_text, label, shown_split
from pipeline.templates import environment, styles
from pipeline.work import Metrics, Work

TRAININGS = {"condenser": "Condenser", "cocondenser": "coCondenser", "ict": "Inverse Cloze Task"}
ATTENTION = "Entropy of [CLS]'s attention"
CHARACTERS = 280
"""What is shown of a passage."""
DIGEST = re.compile(r"[0-9a-f]{64}")


class ReportConfig(Config):
    title: str = Field(min_length=1)
    """The page's heading, such as the recipe's name."""
    examples: int = Field(ge=0)
    """Questions shown with the answers of BM25 and of the dense retriever."""
    answers: int = Field(ge=1)
    """Answers shown for each example and system, as far as the evaluation kept them (`evaluate.answers`)."""
    seed: Seed
    """Seed that picks the examples."""
    configuration: dict[str, JsonValue]
    """What the recipe computes, without paths, shown at the page's end. `{}` in recipes: the flow fills it."""


def report(
    config: ReportConfig,
    collection: Path,
    evaluate: Path,
    work: Work,
    *,
    attention: Path | None = None,
    **checkpoints: Path | None,
) -> Metrics:
    """Write `report.html` from an evaluation and the histories of the checkpoints. Equal inputs give equal bytes.

    The page needs no other file and no network. Text of the collection is escaped by the template. Folders that are
    named by a digest are shown as the page's lineage.
    """
    from pipeline.report import figures, panels

    metrics = read_json(evaluate / "metrics.json")
    split = shown_split(metrics)
    found, columns = main_part(metrics["splits"][split])
    further = further_part(metrics["splits"][split])
    histories = {name: history(folder) for name, folder in checkpoints.items()}
    folders = {"collection": collection, "evaluate": evaluate, "attention": attention, **checkpoints}
    examples = chosen_examples(config, metrics, split, collection, evaluate, columns)
    page = render(
        title=config.title,
        split=split,
        metrics=metrics,
        found=found,
        columns=columns,
        headline_measure=columns[first_column(columns)],
        headline=headline(metrics, found, first_column(columns)),
        rows=table_rows(metrics, found, columns),
        hits=further and {**further, "columns": HITS, "rows": table_rows(metrics, further, HITS)},
        differences=difference_rows(metrics, found, columns),
        ladders=[
            figures.ladder({s: f[measure] for s, f in found["systems"].items()}, metrics["labels"], name)
            for measure, name in columns.items()
        ],
        curves=[figures.curves(h, training(name)) for name, h in histories.items() if h],
        attention=panels.entropy_panels({"": entropies(attention)}, ATTENTION) if attention else "",
        counts=shown_counts(read_json(collection / "ingest.json")),
        models={training(n): shape for n, folder in checkpoints.items() if (shape := architecture(folder))},
        examples=examples,
        lineage={name: f.name for name, f in folders.items() if f and DIGEST.fullmatch(f.name)},
        configuration=as_yaml(config.configuration),
    )
    (work.out / "report.html").write_text(page, encoding="utf-8", newline="\n")
    work.progress(1, 1, "pages")
    return {"examples": len(examples), "bytes": len(page.encode())}


def render(**values: Any) -> str:
    from markupsafe import Markup

    from pipeline.report.figures import colour_of

    pages = environment()
    pages.filters["svg"] = Markup  # of pictures alone, which hold no text of the collection
    pages.filters["colour"] = colour_of
    pages.filters["estimate"] = estimate_text
    return pages.get_template("report.html").render(css=styles("palette.css", "report.css"), **values)


def headline(metrics: Mapping[str, Any], found: Mapping[str, Any], measure: str) -> list[tuple[str, str, str]]:
    """The page's first line: (system, label, mean) of BM25, the last dense retriever and their fusion."""
    systems = [name for name in ("bm25", metrics["dense"], "fusion") if name in found["systems"]]
    return [(s, metrics["labels"][s], estimate_text(found["systems"][s][measure]).split()[0]) for s in systems]


def table_rows(
    metrics: Mapping[str, Any], found: Mapping[str, Any], columns: Mapping[str, str] = TABLE
) -> list[dict[str, Any]]:
    """Rows of the short table; `best` marks the highest mean of each measure."""
    top = {m: max(f[m]["mean"] for f in found["systems"].values()) for m in columns}
    return [
        {
            "system": name,
            "label": metrics["labels"][name],
            "cells": [{"best": f[m]["mean"] == top[m], **cell(f[m])} for m in columns],
            "without_results": found["questions_without_results"][name],
        }
        for name, f in found["systems"].items()
    ]


def cell(figure: Mapping[str, float]) -> dict[str, str]:
    """Mean and interval as text."""
    mean, interval = estimate_text(figure).split(" ", 1)
    return {"mean": mean, "interval": interval}


def signed(cell: Mapping[str, str]) -> dict[str, str]:
    """The cell of a difference: a gain has a plus."""
    return {**cell, "mean": cell["mean"] if cell["mean"].startswith("−") else f"+{cell['mean']}"}


def training(name: str) -> str:
    """What the page calls a training: `Stage 1`, `Cross-encoder 2`."""
    return TRAININGS.get(name) or re.sub(r"-(?=\d+$)", " ", label(name).capitalize())


def difference_rows(
    metrics: Mapping[str, Any], found: Mapping[str, Any], columns: Mapping[str, str] = TABLE
) -> list[dict[str, Any]]:
    """Rows of the table of differences; `sure` marks intervals without zero."""
    return [
        {
            "label": " − ".join(metrics["labels"][name] for name in pair.split(" - ")),
            "cells": [{"sure": sure(figures[m]), **signed(cell(figures[m]))} for m in columns],
        }
        for pair, figures in found["differences"].items()
    ]


def sure(figure: Mapping[str, float]) -> bool:
    return figure["low"] > 0 or figure["high"] < 0


def history(folder: Path | None) -> dict[str, list[float]] | None:
    """Columns of a training's history; of an untied model that of its question encoder, which both share."""
    if folder is None:
        return None
    places = (folder / "history.parquet", folder / "query" / "history.parquet")
    return next((read_table(path).to_pydict() for path in places if path.exists()), None)


def architecture(folder: Path | None) -> str | None:
    """A line on the model in a checkpoint."""
    if folder is None:
        return None
    path = next((p for p in (folder / "config.json", folder / "query" / "config.json") if p.exists()), None)
    if path is None:
        return None
    c = read_json(path)
    untied = ", one encoder for questions and one for passages" if path.parent != folder else ""
    return (
        f"{c['model_type']}, {c['num_hidden_layers']} layers of {c['hidden_size']}, {c['num_attention_heads']} heads, "
        f"{c['vocab_size']:,} tokens in the vocabulary{untied}"
    )


def shown_counts(counts: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Counts of ingest.json, nested ones with their path, zeros left out."""
    shown: dict[str, str] = {}
    for name, value in counts.items():
        label = f"{prefix}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            shown |= shown_counts(value, f"{label}: ")
        elif value:
            shown[label] = f"{value:,}" if isinstance(value, int | float) else str(value)
    return shown


def chosen_examples(
    config: ReportConfig,
    metrics: Mapping[str, Any],
    split: str,
    collection: Path,
    evaluate: Path,
    columns: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Questions picked at random, with the first answers of BM25 and the dense retriever beside each other."""
    from pipeline.collection import read_queries

    part, _ = main_part(metrics["splits"][split])
    systems = [name for name in ("bm25", metrics["dense"]) if name in part["systems"]]
    least = metrics["config"]["relevance"]
    filters: list[tuple[str, str, Any]] = [("split", "=", split), ("system", "in", systems)]
    ranks = {
        (row["query_id"], row["system"]): where_found(row)
        for row in read_table(evaluate / "per_query.parquet", filters=filters).to_pylist()
        if row[first_column(columns)] is not None
    }
    query_ids = sorted({query_id for query_id, _ in ranks})
    count = min(config.examples, len(query_ids))
    picked = [query_ids[i] for i in sorted(np.random.default_rng(config.seed).choice(len(query_ids), count, False))]
    texts = {query.query_id: query.text for query in read_queries(collection, [split])}
    filters += [("query_id", "in", picked), ("rank", "<=", config.answers)]
    answers = read_table(evaluate / "answers.parquet", filters=filters).to_pylist() if picked else []
    passages = read_passages(collection, {a["passage_id"] for a in answers})
    return [
        {
            "question": texts[query_id],
            "systems": [
                {
                    "label": metrics["labels"][system],
                    "found": ranks[query_id, system],
                    "answers": [
                        {
                            **passages[a["passage_id"]],
                            "relevant": is_right(a, least, columns),
                        }
                        for a in answers
                        if a["query_id"] == query_id and a["system"] == system
                    ],
                }
                for system in systems
            ],
        }
        for query_id in picked
    ]


def read_passages(collection: Path, passage_ids: set[str]) -> dict[str, dict[str, str]]:
    """{passage_id: {title, text}}, texts cut for showing."""
    if not passage_ids:
        return {}
    columns = ["passage_id", "title", "text"]
    filters = [("passage_id", "in", sorted(passage_ids))]
    rows = read_table(collection / "passages.parquet", columns=columns, filters=filters).to_pylist()
    return {row["passage_id"]: {"title": row["title"], "text": shortened(row["text"])} for row in rows}


def shortened(text: str) -> str:
    return text if len(text) <= CHARACTERS else text[:CHARACTERS].rsplit(" ", 1)[0] + " …"


def as_yaml(configuration: Mapping[str, JsonValue]) -> Sequence[tuple[str, str]]:
    """(stage, its fields as YAML), in the recipe's order; what is no stage comes first, as `recipe`."""
    import yaml

    stages = {name: value for name, value in configuration.items() if isinstance(value, dict)}
    rest = {name: value for name, value in configuration.items() if name not in stages}
    return [
        (name, yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100).strip())
        for name, value in ({"recipe": rest} | stages).items()
        if value
    ]
