"""Stage `sentence_table`: reads tables of sentences from any CSV and writes Parquet."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.data.parquet import write_parquet
from pipeline.data.stored import read_json, read_table
from pipeline.errors import InputError
from pipeline.runtime.work import Metrics, Progress, Work, silent
from pipeline.sentences.readers import SPLITS, TEXTS, LabelledConfig, ScoredConfig, TripletConfig, fields, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

STSB = "http://ixa2.si.ehu.es/stswiki/images/4/48/Stsbenchmark.tar.gz"
COMMANDS = {
    f"sts-{split}.csv": [f"wget {STSB}", "tar xzf Stsbenchmark.tar.gz --strip-components=1"] for split in SPLITS
}
DESCRIPTION = "table.json"

AnyTable = ScoredConfig | LabelledConfig | TripletConfig


def missing(config: AnyTable) -> list[str]:
    """Returns a line for each missing file, with the commands that download STS-b."""
    from pipeline.data.text import text_files

    return text_files.missing((getattr(config, split, None) for split in SPLITS), COMMANDS, folders=False)


def sentence_table(config: AnyTable, work: Work) -> Metrics:
    """Writes train.parquet, dev.parquet and test.parquet, and `table.json` with kind and counts.

    Columns: line (int32, the row's last line in its file), the sentences (strings), then score (float64, 0 to 1) or
    label (int8, its place in `labels`). Raises InputError as `split_rows` does.
    """
    import pyarrow as pa

    kind = config.kind
    counts: dict[str, Any] = {}
    known: set[tuple[str, ...]] = set()
    for split in SPLITS:
        if getattr(config, split, None) is None:
            continue
        left_out: Counter[str] = Counter()
        rows_of_split = split_rows(config, split, left_out, work.progress)
        texts = [row[1 : 1 + len(TEXTS[kind])] for row in rows_of_split]
        counts[split] = len(rows_of_split)
        if split == "train":
            known = {*texts}
        else:
            counts[f"{split}_in_train"] = sum(text in known for text in texts)
        if left_out:
            counts[f"{split}_left_out"] = left_out.total()
        columns = [list(column) for column in zip(*rows_of_split, strict=True)]
        table = pa.table(dict(zip(schema(kind).names, columns, strict=True)), schema=schema(kind))
        write_parquet(table, work.out / f"{split}.parquet")
    labels = {"labels": config.labels} if isinstance(config, LabelledConfig) else {}
    description = {"kind": kind, **labels, **counts}
    (work.out / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", "utf-8")
    return {"kind": kind, **counts}


def row_counts(config: AnyTable) -> dict[str, int]:
    """Returns the number of rows of each split. Raises InputError as `split_rows` does."""
    splits = [split for split in SPLITS if getattr(config, split, None) is not None]
    return {split: len(split_rows(config, split, Counter(), silent)) for split in splits}


def split_rows(config: AnyTable, split: str, left_out: Counter[str], progress: Progress) -> list[tuple[Any, ...]]:
    """Returns all rows of a split, as the reader yields them.

    Raises InputError as the reader does, for a split without rows, and for dev or test with only equal scores.
    """
    path: Path = getattr(config, split)
    every = []
    for row in read_rows(config, split, left_out):
        every.append(row)
        if len(every) % 10_000 == 0:
            progress(len(every), None, f"rows of {split}")
    if not every:
        raise InputError(f"{path}: no rows")
    if config.kind == "scored" and split != "train" and len({row[-1] for row in every}) < 2:
        raise InputError(f"{path}: all scores are equal, so the correlation is undefined")
    return every


def schema(kind: str) -> "pa.Schema":
    """Returns the columns of a table of `kind`."""
    import pyarrow as pa

    types = {"score": pa.float64(), "label": pa.int8()}
    columns = [(name, types.get(name, pa.string())) for name in fields(kind)]
    return pa.schema([("line", pa.int32()), *columns])


def describe(folder: Path) -> dict[str, Any]:
    """Reads `table.json` of a table's artifact. Raises InputError."""
    return read_json(folder / DESCRIPTION, "kind", "train")


def read_split(folder: Path, split: str) -> "pa.Table":
    """Reads a split's rows. Raises InputError."""
    return read_table(folder / f"{split}.parquet")
