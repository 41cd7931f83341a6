"""The folder of judgements: a collection in BEIR's layout, and the folder judging/ with all that led to it.

corpus.jsonl.zst, queries.jsonl, qrels/test.tsv    the collection, for `evaluate-model`, `run` and `evaluate`
judging/settings.json     what is compared, and how
judging/record.jsonl      every key press (record.py)
judging/notes.jsonl       notes on passages
judging/runs/SYSTEM.trec  the judged ranking of each system
judging/comparison.json   figures, tests and looks
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from artifacts.files import provisional, storage_errors, write_file
from artifacts.locks import try_hold
from artifacts.outside import check_outside
from flows.judging.comparison import Comparison, Rules
from flows.judging.record import Judgements
from pipeline.data.collection import PASSAGE_COLUMNS, passage_batches
from pipeline.data.runs import trec_lines
from pipeline.errors import InputError

CORPUS = "corpus.jsonl.zst"
QRELS = "qrels/test.tsv"


@dataclass(frozen=True)
class Settings:
    """What must stay the same when a folder is continued."""

    collection: str
    """Digest of the artifact that holds the passages."""
    systems: Mapping[str, str]
    """{name: the run's evaluation and the search method}."""
    depth: int
    """Number of first passages of each system that are judged."""
    rules: Rules
    judge: str = ""
    """Name of the language model that judges; empty: a person."""

    def as_json(self) -> dict[str, Any]:
        named = {"collection": self.collection, "systems": {**self.systems}, "judge": self.judge}
        return {**named, "depth": self.depth, **asdict(self.rules)}


OPTIONS = {"collection": "RUN", "systems": "RUN or --systems", "planned": "--questions-planned", "judge": "--model"}
"""{field of the settings: the option that sets it} where the names differ."""


class JudgingFolder:
    """The paths of a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.judging = root / "judging"
        self.settings = self.judging / "settings.json"
        self.record = self.judging / "record.jsonl"

    def check(self, settings: Settings) -> None:
        """Raises InputError if the folder holds anything else, or judgements with other settings."""
        check_outside(self.root, f"--out {self.root}")
        if not self.settings.exists():
            known = {"judging", CORPUS, unfinished(self.root / CORPUS).name}  # of a start that was killed
            if self.root.exists() and (
                not self.root.is_dir() or any(path.name not in known for path in self.root.iterdir())
            ):
                raise InputError(f"--out {self.root}: exists, and holds no judgements; choose another folder")
            return
        earlier = self._known_settings()
        if (self.root / QRELS).exists() and not (self.record.exists() and self.record.stat().st_size):
            raise InputError(
                f"{self.record}: is missing or empty, but there are judgements; restore it from a copy, or choose "
                "another folder"
            )
        for name, value in settings.as_json().items():
            before = earlier.get(name)
            if before != value:
                what = {
                    "collection": "another collection",
                    "systems": "other systems",
                    "judge": f"the judgements of {before or 'a person'}",
                }.get(name, f"{name} {before}")
                advice = f"repeat {OPTIONS.get(name, f'--{name}')}, or choose another folder"
                raise InputError(f"--out {self.root}: was started with {what}; {advice}")

    def _known_settings(self) -> dict[str, Any]:
        try:
            known = json.loads(self.settings.read_bytes())
            if not isinstance(known, dict):
                raise ValueError
        except OSError as error:
            raise InputError(f"{self.settings}: {str(error.strerror).lower()}") from None
        except (ValueError, RecursionError):
            raise InputError(
                f"{self.settings}: holds no settings; restore it from a copy, or choose another folder"
            ) from None
        return known

    @contextmanager
    def held(self) -> Iterator[None]:
        """Creates the folder and keeps other processes out. Nothing stays of it if `start` fails.

        Raises InputError if another process judges in it, and StoreError if it cannot be created.
        """
        with provisional(self.judging) as created:
            lock = self.judging / ".lock"
            with try_hold(lock) as free:
                if not free:
                    raise InputError(f"--out {self.root}: another process judges in this folder")
                try:
                    yield
                finally:
                    if self.settings.exists():
                        created.pop_all()
                    else:
                        lock.unlink(missing_ok=True)

    def start(self, settings: Settings, collection: Path) -> None:
        """Writes the corpus and the settings, unless an earlier start has written them."""
        if self.settings.exists():
            return
        with storage_errors(self.judging):
            write_corpus(collection, self.root / CORPUS)
            write_file(self.settings, json_bytes(settings.as_json()))

    def publish(self, judgements: Judgements, comparison: Comparison) -> None:
        """Writes all files that follow from the record: of completely judged questions only, because a question's
        unjudged passages would count as not relevant."""
        complete = judgements.complete
        graded = [(q, p, grade) for q in complete for p, grade in judgements.grades[q].items()]
        texts = [{"_id": q, "text": judgements.questions[q].text} for q in complete]
        notes = [{"query_id": q, "passage_id": p, "note": text} for (q, p), text in judgements.notes.items()]
        contents = {
            self.root / "queries.jsonl": json_lines_bytes(texts),
            self.root / QRELS: qrels_bytes(graded) if graded else b"",
            self.judging / "notes.jsonl": json_lines_bytes(notes),
            self.judging / "comparison.json": json_bytes(comparison.as_json()),
        }
        for system in comparison.systems:
            ranked = [(q, judgements.questions[q].rankings[system]) for q in complete]
            contents[self.judging / f"runs/{system}.trec"] = trec_bytes(ranked)
        for path, content in contents.items():
            if not content:
                path.unlink(missing_ok=True)
            elif not path.exists() or path.read_bytes() != content:
                path.parent.mkdir(exist_ok=True)
                write_file(path, content)


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def json_lines_bytes(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def qrels_bytes(graded: list[tuple[str, str, int]]) -> bytes:
    """Returns judgements (question, passage, grade) as BEIR's tsv."""
    return "".join(f"{q}\t{p}\t{grade}\n" for q, p, grade in [("query-id", "corpus-id", "score"), *graded]).encode()


def trec_bytes(ranked: list[tuple[str, list[str]]]) -> bytes:
    """Returns lists of passages, best first, as a TREC run; a score is minus the rank."""
    rows = [(q, p, rank, -float(rank)) for q, passages in ranked for rank, p in enumerate(passages, 1)]
    if not rows:
        return b""
    columns = zip(("query_id", "passage_id", "rank", "score"), zip(*rows, strict=True), strict=True)
    return trec_lines(pa.table({name: pa.chunked_array([pa.array(values)]) for name, values in columns})).encode()


def write_corpus(collection: Path, path: Path) -> None:
    """Writes a collection's passages as BEIR's corpus.jsonl, compressed; the file appears complete or not at all.

    Its further key `doc_id` names the document of a passage, for `ingest.document_key`.
    """
    partial = unfinished(path)
    keys = ("_id", *PASSAGE_COLUMNS[1:])
    try:
        with pa.CompressedOutputStream(pa.OSFile(str(partial), "wb"), "zstd") as stream:
            for batch in passage_batches(collection, PASSAGE_COLUMNS):
                rows = zip(*(batch[name] for name in PASSAGE_COLUMNS), strict=True)
                stream.write(json_lines_bytes([dict(zip(keys, row, strict=True)) for row in rows]))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def unfinished(path: Path) -> Path:
    """The file that becomes `path` once it is complete."""
    return path.with_name(f".{path.name}")
