"""Copies a run's files, and writes two that no artifact contains: qrels and the fused run."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from pipeline.data.collection import passage_id_array, read_qrels, read_queries
from pipeline.data.documents import read_documents
from pipeline.data.runs import read_run, trec_ids, writer
from pipeline.dense.index_files import read_description
from pipeline.evaluate.config import SPLITS
from pipeline.evaluate.document_ranking import fuse_documents
from pipeline.evaluate.fusion.fuse import Choice
from pipeline.export.source import Source
from pipeline.runtime.work import Progress

ENDS = (".trec", ".parquet")
CHUNK = 1 << 24
"""Bytes read at a time."""


def copy(files: Iterable[tuple[Path, Path]], progress: Progress) -> None:
    """Copies files (from, to). Never links: the user may change the copies, but not the store's files."""
    pairs = [*files]
    total, done = sum(source.stat().st_size for source, _ in pairs), 0
    for source, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as file_in, target.open("wb") as file_out:
            while chunk := file_in.read(CHUNK):
                file_out.write(chunk)
                done += len(chunk)
                progress(done, total, "bytes")


def write_index(source: Source, folder: Path, progress: Progress) -> None:
    if source.served is not None:
        served = source.served
        copy(((served / name, folder / name) for name in index_files(served)), progress)


def index_files(served: Path) -> list[str]:
    """Returns the names of an index's own files, without the store's files. Raises InputError if one is missing."""
    return ["index.json", *read_description(served).files]


def write_runs(source: Source, folder: Path, progress: Progress) -> None:
    """Writes each run, including the fused one, as NAME.trec and NAME.parquet, and qrels.SPLIT.trec."""
    runs = ((path / f"run{end}", folder / f"{name}{end}") for name, path in source.runs.items() for end in ENDS)
    copy((pair for pair in runs if pair[0].is_file()), progress)
    for split in SPLITS:
        write_qrels(source.collection, split, folder / f"qrels.{split}.trec")
    if source.fusion is not None:
        write_fusion(source, folder, source.fusion)


def write_qrels(collection: Path, split: str, path: Path) -> None:
    """Writes TREC's four columns, with ids as in the runs' TREC files; no file for a split without judgements."""
    judged = [(q, p, grade) for q, grades in read_qrels(collection, [split]).items() for p, grade in grades.items()]
    if judged:
        queries, passages = (trec_ids(pa.chunked_array([[row[n] for row in judged]], pa.string())) for n in (0, 1))
        grades = [str(grade) for *_, grade in judged]
        lines = zip(queries.to_pylist(), ["0"] * len(judged), passages.to_pylist(), grades, strict=True)
        path.write_text("".join(" ".join(line) + "\n" for line in lines), "utf-8", newline="\n")


def write_fusion(source: Source, folder: Path, choice: Choice) -> None:
    """Writes the fusion of BM25 and the model's run, as in the evaluation."""
    passage_ids = passage_id_array(source.collection)
    documents = read_documents(source.collection, passage_ids)
    own = folder / "fusion"
    own.mkdir()
    with writer(own, documents.are_cut) as write:
        for split in SPLITS:
            query_ids = pa.array([q.query_id for q in read_queries(source.collection, [split])], pa.string())
            both = [read_run(source.runs[name], split, query_ids, passage_ids) for name in ("bm25", "run")]
            parts = [run for run in both if run is not None]
            if len(parts) == 2:
                numbers = [documents.of_P[part.passage_R] for part in parts]
                run = fuse_documents(parts, numbers, source.best_three_share, choice, source.reciprocal_k)
                query_R = query_ids.take(pa.array(run.question_R)).to_pylist()
                write(split, query_R, passage_ids.take(pa.array(run.passage_R)).to_pylist(), run.score_R)
    for end in ENDS:
        (own / f"run{end}").rename(folder / f"fusion{end}")
    own.rmdir()
