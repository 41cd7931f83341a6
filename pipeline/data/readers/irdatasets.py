"""Reads any dataset of the ir_datasets catalogue."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from pipeline.data.collection import SPLITS, Judgement, Negative, Passage, Query, Source
from pipeline.data.ids import first_distinct
from pipeline.data.metadata import Names, demand
from pipeline.data.qrels import grade, require_rows
from pipeline.data.readers.cut_documents import cut_documents
from pipeline.data.readers.reader_config import ReaderConfig
from pipeline.errors import InputError
from pipeline.notices import Examples, keep
from pipeline.paths import expand_home
from pipeline.runtime.network import answers
from pipeline.runtime.work import Progress


class IrDatasetsConfig(ReaderConfig):
    """Ids of the ir_datasets catalogue (MacAvaney et al. 2021), such as `beir/scifact` and `beir/scifact/train`."""

    reader: Literal["ir_datasets"]
    """Selects this reader."""
    collection: str
    """Id whose documents are the passages."""
    metadata: Names
    """Further fields of these documents to keep and filter by, such as `url`. Empty: none."""
    train: str | None
    """Id whose queries and qrels are the training split."""
    dev: str | None
    """Id of the dev split."""
    test: str | None
    """Id of the test split."""
    negatives: str | None
    """Id whose docpairs (query, positive, negative) provide negatives."""
    negatives_per_query: int = Field(ge=1)
    """Number of negatives kept per query: the first distinct ones."""


def missing(config: IrDatasetsConfig) -> list[str]:
    """Returns a line for each id that is not on this machine and whose host does not answer quickly."""
    home = expand_home(os.environ.get("IR_DATASETS_HOME", "~/.ir_datasets"), "IR_DATASETS_HOME")
    names = (config.collection, config.train, config.dev, config.test, config.negatives)
    roots = sorted({name.split("/")[0] for name in names if name})
    return [
        f"ir_datasets {root} is not on this machine and {host} does not answer: on a machine that reaches it run "
        f"`ir_datasets export {config.collection} docs > /dev/null`, then copy its {home.name}/{root} to {home / root}"
        for root in roots
        if not (home / root).exists() and (host := _host(root)) and not answers(f"https://{host}", 0.5)
    ]


def _host(root: str) -> str | None:
    """Returns the host of the first download in the catalogue for `root`; None for a user's own dataset."""
    package = find_spec("ir_datasets")
    if package is None or package.origin is None:
        return None
    catalogue = Path(package.origin).parent / "etc" / "downloads.json"
    entries = [json.loads(catalogue.read_text(encoding="utf-8")).get(root, {})]
    while entries:
        entry = entries.pop()
        if isinstance(entry, dict) and isinstance(entry.get("url"), str):
            return urlsplit(entry["url"]).hostname
        entries.extend(reversed(list(entry.values())) if isinstance(entry, dict) else ())
    return None


def read(config: IrDatasetsConfig, progress: Progress) -> Source:
    """Reads the dataset's rows. A query without a judgement is left out and counted."""
    datasets = {split: name for split in SPLITS if (name := getattr(config, split))}
    counts: Counter[str] = Counter()
    examples: Examples = {}
    negatives = config.negatives
    source = Source(
        passages=lambda: _passages(config.collection, config.metadata),
        queries=lambda: _queries(datasets, counts, examples),
        qrels=lambda: (row for split, name in datasets.items() for row in _qrels(split, name)),
        negatives=(lambda: _negatives(negatives, config.negatives_per_query)) if negatives else None,
        counts=counts,
        examples=examples,
    )
    return cut_documents(source, config, judged=bool(datasets))


def _rows(name: str, kind: Literal["docs", "queries", "qrels", "docpairs"]) -> Iterator[tuple[str, Any]]:
    """Yields (place, row) of a dataset's docs, queries, qrels or docpairs. Raises InputError if they cannot be read."""
    import ir_datasets

    try:
        dataset = ir_datasets.load(name)
    except KeyError:
        raise InputError(f"ir_datasets has no dataset '{name}'") from None
    try:
        if not getattr(dataset, f"has_{kind}")():
            raise InputError(f"ir_datasets {name} has no {kind}")
        for number, row in enumerate(getattr(dataset, f"{kind}_iter")(), 1):
            yield f"{name}: {kind} {number}", row
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"ir_datasets {name}: {' '.join(str(error).split())}") from error


def _passages(name: str, metadata: tuple[str, ...]) -> Iterator[tuple[str, Passage]]:
    for place, row in _rows(name, "docs"):
        demand(place, metadata, row._fields)
        further = {field: getattr(row, field) for field in metadata}
        yield place, Passage(row.doc_id, "", *_title_and_text(row), further)


def _title_and_text(row: Any) -> tuple[str, str]:
    """Returns (title, text); without a text field, the text is ir_datasets' default text."""
    title = getattr(row, "title", "")
    for field in ("text", "body", "abstract"):
        if isinstance(text := getattr(row, field, None), str):
            return title if isinstance(title, str) else "", text
    return "", row.default_text()


def _queries(datasets: dict[str, str], counts: Counter[str], examples: Examples) -> Iterator[tuple[str, Query]]:
    """Yields the judged queries. Memory grows with their number."""
    counts["unjudged_queries"] = 0
    examples.pop("unjudged_queries", None)
    for split, name in datasets.items():
        judged = {row.query_id for _, row in _qrels(split, name)}
        for place, row in _rows(name, "queries"):
            if row.query_id in judged:
                yield place, Query(row.query_id, split, row.default_text(), [])
            else:
                counts["unjudged_queries"] += 1
                keep(examples, "unjudged_queries", row.query_id)


def _qrels(split: str, name: str) -> Iterator[tuple[str, Judgement]]:
    for place, row in require_rows(name, _rows(name, "qrels")):
        yield place, Judgement(split, row.query_id, row.doc_id, grade(place, row.relevance))


def _negatives(name: str, most: int) -> Iterator[tuple[str, Negative]]:
    pairs = ((place, row.query_id, row.doc_id_b) for place, row in _rows(name, "docpairs"))
    for place, query_id, negative in first_distinct(pairs, most):
        yield place, Negative(query_id, negative)
