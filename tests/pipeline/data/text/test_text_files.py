"""A path that is not a file is reported, and nothing blocks on it."""

import os
import socket
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from writing import put

from pipeline.bm25 import bm25
from pipeline.data.ingest import IngestConfig, missing
from pipeline.data.qrels import read_qrels
from pipeline.data.run_files import run_file_rows
from pipeline.data.text import text_files
from pipeline.data.text.delimited import tab_separated
from pipeline.errors import InputError
from pipeline.evaluate import systems
from pipeline.evaluate.fusion import files as fuse_files
from pipeline.evaluate.run_files import evaluate_files
from pipeline.negatives import from_file
from pipeline.negatives.from_file import table_negatives
from pipeline.sentences import tables
from pipeline.sentences.readers import TripletConfig

CONFIG = TypeAdapter(IngestConfig)


def pipe(path):
    os.mkfifo(path)


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's path has at most 107 bytes
        bound.bind(path.name)
        os.chdir(here)


NO_FILES = {
    "a folder": lambda path: path.mkdir(),
    "a pipe (FIFO), which can be read only once": pipe,
    "a socket": unix_socket,
    "a device": lambda path: path.symlink_to(os.devnull),
}


@pytest.fixture(params=NO_FILES)
def no_file(request, tmp_path):
    """(a path, the kind of object at that path)."""
    path = tmp_path / "p.jsonl"
    NO_FILES[request.param](path)
    return path, request.param


def test_the_kind_of_object_is_reported_if_it_is_not_a_file(no_file):
    path, kind = no_file
    assert text_files.fault(path) == f"is {kind}; a file is expected"
    assert text_files.fault(path, folder=True) == (
        "" if kind == "a folder" else f"is {kind}; a file or folder is expected"
    )
    assert text_files.fault(path, pipe=True) == f"is {kind}; a file is expected"


def test_missing_and_unreadable_paths_are_reported(tmp_path, monkeypatch):
    assert text_files.fault(tmp_path / "no") == "does not exist"
    (tmp_path / "link").symlink_to(tmp_path / "no")
    assert text_files.fault(tmp_path / "link") == "is a link whose target does not exist"
    assert text_files.fault(put(tmp_path, "file", "text") / "below") == "cannot be read: Not a directory"
    assert text_files.fault(tmp_path / "file") == ""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert text_files.fault(tmp_path / "file") == "cannot be read: permission denied"


def test_ingest_reports_paths_that_are_not_files(no_file, tmp_path):
    path, kind = no_file
    dpr = {"reader": "dpr", "passages": str(path), "train": None, "dev": None, "test": None}
    assert missing(CONFIG.validate_python(dpr)) == [f"{path} is {kind}; a file is expected"]
    beir = tmp_path / "beir"
    beir.mkdir()
    corpus = path.rename(beir / "corpus.jsonl")
    config = CONFIG.validate_python({"reader": "beir", "folder": str(beir), "document_key": "", "metadata": []})
    assert missing(config) == [f"{corpus} is {kind}; a file is expected"]
    put(beir, "qrels/test.tsv", "query-id\tcorpus-id\tscore", "q\tp\t1")
    corpus.rename(beir / "queries.jsonl")
    put(beir, "corpus.jsonl", "{}")
    assert missing(config) == [f"{beir / 'queries.jsonl'} is {kind}; a file is expected"]
    (beir / "queries.jsonl").rename(beir / "qrels" / "dev.tsv")
    put(beir, "queries.jsonl", "{}")
    assert missing(config) == [f"{beir / 'qrels' / 'dev.tsv'} is {kind}; a file is expected"]


def test_stages_report_paths_that_are_not_files(no_file):
    path, kind = no_file
    message = f"{path} is {kind}; a file is expected"
    assert systems.missing({"other": path}) == [f"evaluate.systems.other: {message}"]
    config = bm25.BM25Config.model_construct(run=path, passages=None, topics=None)
    assert bm25.missing(config) == [f"bm25.run: {message}"]
    config = bm25.BM25Config.model_construct(run=None, passages=None, topics=path)
    assert bm25.missing(config) == [f"bm25.topics: {message}"]
    assert from_file.missing(from_file.NegativesFileConfig(file=path, number=None, seed=1, page_questions=0)) == [
        message
    ]
    assert tables.missing(TripletConfig.model_construct(train=path, dev=path, test=path)) == 3 * [message]


def test_folders_are_refused_as_run_files(tmp_path):
    run, qrels = put(tmp_path, "run", "q Q0 p 1 1 x"), put(tmp_path, "qrels", "q 0 p 1")
    for paths, judged in (([tmp_path], qrels), ([run], tmp_path)):
        with pytest.raises(InputError, match=r": is a folder; a file is expected$"):
            evaluate_files(paths, judged, 1, "t", 100, 1)
    with pytest.raises(InputError, match=r": is a folder; a file is expected$"):
        fuse_files.fuse_files(
            [run, tmp_path], tmp_path / "out", qrels=None, method=None, weight=None, relevance=1, depth=10
        )
    text_files.check_file(put(tmp_path, "file", "x"))


def test_a_pipe_that_is_open_is_read(tmp_path):
    """For example the pipe of `<(zcat run.gz)`."""
    reads, writes = os.pipe()
    os.write(writes, b"q 0 p 1\n")
    os.close(writes)
    assert read_qrels(Path(f"/dev/fd/{reads}")) == {"q": {"p": 1}}
    os.close(reads)


@pytest.mark.parametrize(
    "read",
    [
        run_file_rows,
        read_qrels,
        text_files.json_rows,
        text_files.json_list,
        text_files.lines,
        tab_separated,
        table_negatives,
    ],
)
def test_no_reader_blocks_on_a_named_pipe(read, tmp_path):
    pipe(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe: is a pipe \(FIFO\), which can be read only once; a file is expected$"):
        next(iter(read(tmp_path / "pipe")))


@pytest.fixture
def beir(tmp_path):
    put(tmp_path, "beir/corpus.jsonl", '{"_id": "p", "text": "words"}')
    put(tmp_path, "beir/queries.jsonl", '{"_id": "q", "text": "words?"}')
    return {"reader": "beir", "folder": tmp_path / "beir", "document_key": "", "metadata": []}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda qrels: qrels.write_text("q p 1"),
            r"qrels: a folder with train\.tsv, .*cannot be read: Not a directory",
        ),
        (pipe, r"qrels: a folder with train\.tsv, .*cannot be read: Not a directory"),
        (lambda qrels: qrels.symlink_to("nowhere"), r"qrels: a folder .*cannot be read: No such file or directory"),
        (
            lambda qrels: put(qrels, "validation.tsv", "q\tp\t1"),
            r"qrels: holds none of train\.tsv, dev\.tsv, test\.tsv",
        ),
    ],
)
def test_qrels_must_be_a_folder_of_judgements(beir, ingested, make, message):
    make(beir["folder"] / "qrels")
    with pytest.raises(InputError, match=message):
        ingested(**beir)
    (line,) = missing(CONFIG.validate_python(beir))
    with pytest.raises(InputError, match=message):
        raise InputError(line)


def test_qrels_without_read_permission_are_refused(beir, ingested, monkeypatch):
    put(beir["folder"], "qrels/test.tsv", "query-id\tcorpus-id\tscore", "q\tp\t1")

    def denied(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pipeline.data.readers.beir.os.listdir", denied)
    with pytest.raises(InputError, match=r"qrels: a folder with .* but it cannot be read: Permission denied"):
        ingested(**beir)
    assert len(missing(CONFIG.validate_python(beir))) == 1


@pytest.mark.parametrize("rows", [[], ["query-id\tcorpus-id\tscore"], ["query-id\tcorpus-id\tscore", ""]])
def test_a_file_without_a_judgement_is_refused(beir, ingested, rows):
    put(beir["folder"], "qrels/test.tsv", *rows)
    with pytest.raises(InputError, match=r"qrels/test\.tsv: (empty file|no judgement)"):
        ingested(**beir)
