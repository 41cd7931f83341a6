"""Several sources are read as one."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError
from writing import put

from pipeline.data.ingest import IngestConfig, missing, sources
from pipeline.errors import InputError

CONFIG = TypeAdapter(IngestConfig)
DOCS = {
    "reader": "pydocs",
    "distributions": ["packaging"],
    "docstring_characters": 200,
    "passage_words": 80,
    "remaining_words": 20,
    "limit": None,
    "metadata": [],
}


@pytest.fixture
def parts(tmp_path) -> list[dict]:
    """Two BEIR folders whose passages have the same ids. The second has documents and a question."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second/qrels").mkdir(parents=True)
    put(tmp_path / "first", "corpus.jsonl", *(json.dumps({"_id": i, "text": f"first {i}"}) for i in "ab"))
    rows = [{"_id": i, "title": "T", "text": f"second {i}", "doc": "D"} for i in "ab"]
    put(tmp_path / "second", "corpus.jsonl", *map(json.dumps, rows))
    put(tmp_path / "second", "queries.jsonl", json.dumps({"_id": "q", "text": "where"}))
    put(tmp_path / "second/qrels", "test.tsv", "query-id\tcorpus-id\tscore", "q\ta\t1")
    return [
        {"reader": "beir", "folder": tmp_path / name, "document_key": key, "metadata": []}
        for name, key in (("first", ""), ("second", "doc"))
    ]


def test_the_passages_of_all_parts_are_read_without_their_questions(parts, ingested) -> None:
    result = ingested(reader="several", parts=parts)
    assert result.passages == [
        ("0/a", "0/a", "", "first a"),
        ("0/b", "0/b", "", "first b"),
        ("1/a", "1/D", "T", "second a"),
        ("1/b", "1/D", "T", "second b"),
    ]
    assert not result.queries
    assert not result.qrels
    assert result.counts["documents"] == 3


def test_counts_of_a_single_reader_are_summed_over_the_parts(parts, ingested, monkeypatch) -> None:
    monkeypatch.setattr("pipeline.data.readers.pydocs._standard_files", lambda library: iter(()))  # 5 s of parsing
    alone = ingested(**DOCS).counts
    both = ingested(reader="several", parts=[DOCS, DOCS]).counts
    names = {name for name in alone if name not in ingested(reader="several", parts=parts).counts}
    assert names
    assert {name: both[name] for name in names} == {name: 2 * alone[name] for name in names}


def test_missing_files_are_reported_with_the_part(parts, tmp_path) -> None:
    parts[1]["folder"] = tmp_path / "gone"
    (line,) = missing(CONFIG.validate_python({"reader": "several", "parts": parts}))
    assert line == f"ingest.parts.1.folder: {tmp_path / 'gone'} is not a folder"


def test_a_path_that_looks_like_a_field_is_unchanged_in_the_message(parts, tmp_path) -> None:
    (tmp_path / "ingest.folder").mkdir()
    parts[1]["folder"] = tmp_path / "ingest.folder"
    (line,) = missing(CONFIG.validate_python({"reader": "several", "parts": parts}))
    assert line.count(f"{tmp_path}/ingest.folder") == line.count("ingest.") == 1


def test_parts_are_not_compared(parts) -> None:
    parts[1]["near_duplicates"] = 0.8
    with pytest.raises(ValidationError, match=r"parts\.1\.near_duplicates: .* set it to null"):
        CONFIG.validate_python({"reader": "several", "parts": parts})


def test_metadata_that_would_be_dropped_is_refused(parts) -> None:
    parts[1]["metadata"] = ["source"]
    with pytest.raises(ValidationError, match=r"parts\.1\.metadata: .* set it to \[\]"):
        CONFIG.validate_python({"reader": "several", "parts": parts})


def test_an_error_in_a_part_is_reported_with_file_and_line(parts, tmp_path, ingested) -> None:
    put(tmp_path / "second", "corpus.jsonl", '{"_id": "a"}')
    with pytest.raises(InputError, match=r"second/corpus.jsonl:1: .*text"):
        ingested(reader="several", parts=parts)


def test_a_part_without_ids_is_reported(parts, tmp_path, ingested) -> None:
    put(tmp_path / "second", "corpus.jsonl", json.dumps({"_id": "", "text": "second", "doc": "D"}))
    with pytest.raises(InputError, match=r"second/corpus.jsonl:1: passage id '' is empty"):
        ingested(reader="several", parts=parts)


def test_an_empty_list_of_parts_and_nested_parts_are_refused(parts) -> None:
    for wrong in ([], [{"reader": "several", "parts": parts}]):
        with pytest.raises(ValidationError):
            CONFIG.validate_python({"reader": "several", "parts": wrong})


def test_sources_are_listed_by_part(parts) -> None:
    alone = sources(CONFIG.validate_python(DOCS))
    assert alone
    listed = sources(CONFIG.validate_python({"reader": "several", "parts": [parts[0], DOCS]}))
    assert listed == {f"parts.1.{name}": path for name, path in alone.items()}
