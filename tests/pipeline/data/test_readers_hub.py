"""Reader of Hugging Face datasets, on generated data."""

import bz2
import csv
import gzip
import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter, ValidationError

from pipeline.data.ingest import IngestConfig, missing
from pipeline.errors import InputError
from pipeline.runtime import hub

CONFIG = TypeAdapter(IngestConfig)


def table(folder: Path, split: str = "train") -> dict:
    return {"dataset": None, "revision": "main", "folder": folder, "name": None, "split": split}


@pytest.fixture
def folders(tmp_path) -> dict:
    """Three folders of files, as downloaded from the hub."""
    for name, text in {
        "corpus/train.jsonl": '{"_id": "p1", "title": "T", "text": "one two three four"}\n'
        '{"_id": "p2", "text": "five"}\n',
        "queries/train.jsonl": '{"_id": "1", "text": "q?", "answers": ["five"]}\n{"_id": "2", "text": "r?"}\n',
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\n1\tp2\t1\n1\tp1\t0\n",
    }.items():
        path = tmp_path / "hub" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return {
        "reader": "huggingface",
        "passages": table(tmp_path / "hub" / "corpus"),
        "id_column": "_id",
        "document_column": "",
        "title_column": "title",
        "text_column": "text",
        "passage_words": None,
        "metadata": [],
        "queries": table(tmp_path / "hub" / "queries"),
        "query_id_column": "_id",
        "query_text_column": "text",
        "answers_column": "answers",
        "train_qrels": None,
        "dev_qrels": None,
        "test_qrels": table(tmp_path / "hub" / "qrels", "test"),
        "qrels_query_column": "query-id",
        "qrels_passage_column": "corpus-id",
        "qrels_relevance_column": "score",
    }


def test_huggingface(folders, ingested):
    result = ingested(**folders)
    assert result.passages == [("p1", "p1", "T", "one two three four"), ("p2", "p2", "", "five")]
    assert result.queries == [("1", "test", "q?", ["five"])]
    assert result.qrels == {"1": {"p2": 1, "p1": 0}}
    assert result.counts["unjudged_queries"] == 1


def test_huggingface_cuts_documents(folders, ingested):
    changed = {"queries": None, "test_qrels": None, "passage_words": 2, "id_column": ""}
    result = ingested(**folders | changed)
    assert result.passages == [
        ("0#0", "0", "T", "one two"),
        ("0#1", "0", "T", "three four"),
        ("1#0", "1", "", "five"),
    ]


@pytest.mark.parametrize(
    ("ending", "rows", "kind", "values"),
    [
        ("csv", ["a,x,9007199254740993", "b,y,"], "integer", [2**53 + 1, None]),  # a gap
        ("csv", ["a,x,18446744073709551617", "b,y,1"], "text", ["18446744073709551617", "1"]),
        ("csv", ["a,x,0.5", "b,y,NA", "c,z,-2"], "float", [0.5, None, -2.0]),
        ("csv", ["a,x,007", "b,y,8"], "text", ["007", "8"]),
        ("csv", ["a,x,NA", "b,y,DE"], "text", ["NA", "DE"]),
        ("csv", ["a,x,True", "b,y,FALSE", "c,z,"], "boolean", [True, False, None]),
        ("csv", ["a,x,True", "b,y,1"], "text", ["True", "1"]),
        ("csv", ["a,x,2024-01-02", "b,y,nan"], "date", ["2024-01-02", None]),
        ("csv", ["a,x,2024-01-02T03:04:05", "b,y,2024"], "text", ["2024-01-02T03:04:05", "2024"]),
        ("csv", ["a,x,1e5", "b,y,.5"], "float", [1e5, 0.5]),
        ("csv", ["a,x,+1", "b,y, 1"], "text", ["+1", " 1"]),
        ("tsv", ["a\tx\t007", "b\ty\tNA"], "text", ["007", "NA"]),
        (
            "jsonl",
            ['{"_id": "a", "text": "x", "n": 0.5}', '{"_id": "b", "text": "y", "n": 9007199254740993}'],
            "text",
            ["0.5", "9007199254740993"],
        ),
        (
            "jsonl",
            ['{"_id": "a", "text": "x", "n": 1}', '{"_id": "b", "text": "y", "n": 18446744073709551617}'],
            "text",
            ["1", "18446744073709551617"],
        ),
        ("jsonl", ['{"_id": "a", "text": "x", "n": "1"}', '{"_id": "b", "text": "y", "n": "NA"}'], "text", ["1", "NA"]),
    ],
)
def test_huggingface_types_are_inferred_for_metadata_only(folders, tmp_path, ingested, ending, rows, kind, values):
    corpus = tmp_path / "hub" / "corpus"
    (corpus / "train.jsonl").unlink()
    header = {"csv": ["_id,text,n"], "tsv": ["_id\ttext\tn"], "jsonl": []}[ending]
    (corpus / f"train.{ending}").write_text("\n".join([*header, *rows]) + "\n")
    result = ingested(**folders | {"queries": None, "test_qrels": None, "title_column": "", "metadata": ["n"]})
    assert result.counts["metadata"] == f"n: {kind}"
    assert [row["n"] for row in result.metadata] == values
    assert result.counts["without_n"] == values.count(None)


@pytest.mark.parametrize(
    ("ending", "content", "line"),
    [
        ("csv", "_id,text,n\na,x,9007199254740993.0\n", 2),
        ("csv", "_id,text,n\na,x,1\nb,x,-1e400\n", 3),
        ("jsonl", '{"_id": "a", "text": "x", "n": 1}\n{"_id": "b", "text": "y", "n": 9007199254740993.0}\n', 2),
    ],
)
def test_huggingface_numbers_that_are_rounded_are_refused(folders, tmp_path, ingested, ending, content, line):
    corpus = tmp_path / "hub" / "corpus"
    (corpus / "train.jsonl").unlink()
    (corpus / f"train.{ending}").write_text(content)
    settings = folders | {"queries": None, "test_qrels": None, "title_column": "", "metadata": ["n"]}
    message = rf"train\.{ending}:{line}: ingest\.metadata: 'n' was read as \S+, which may be a rounded number: "
    with pytest.raises(InputError, match=message):
        ingested(**settings)


def test_huggingface_integers_of_64_bits(folders, tmp_path, ingested):
    corpus = tmp_path / "hub" / "corpus"
    (corpus / "train.jsonl").write_text(
        '{"_id": "a", "text": "x", "n": 9007199254740993}\n{"_id": "b", "text": "y", "n": null}\n'
    )
    settings = folders | {"queries": None, "test_qrels": None, "title_column": "", "metadata": ["n"]}
    assert ingested(**settings).metadata == [{"n": 2**53 + 1}, {"n": None}]
    (corpus / "train.jsonl").unlink()
    numbers = pa.table({"_id": ["a", "b"], "text": ["x", "y"], "n": [1e300, 2.0**53]})
    pq.write_table(numbers, corpus / "train.parquet")
    assert ingested(**settings).metadata == [{"n": 1e300}, {"n": 2.0**53}]


def test_huggingface_columns(folders, tmp_path, ingested):
    (tmp_path / "hub" / "corpus" / "train.jsonl").write_text(
        '{"_id": "p1", "title": "T", "text": "one two three four", "year": 2020, "when": "2024-01-02T03:04:05"}\n'
        '{"_id": "p2", "title": "", "text": "five", "year": null, "when": null, "tags": ["a"]}\n'
    )
    changed = {"queries": None, "test_qrels": None, "passage_words": 2, "metadata": ["year", "when"]}
    first = {"year": 2020, "when": "2024-01-02T03:04:05"}
    assert ingested(**folders | changed).metadata == [first, first, {"year": None, "when": None}]
    with pytest.raises(
        InputError, match=r"corpus/train\.jsonl:1: ingest.metadata: no column 'source' among _id, tags, "
    ):
        ingested(**folders | changed | {"metadata": ["source"]})
    with pytest.raises(InputError, match=r"corpus/train\.jsonl:2: ingest.metadata: 'tags' is neither .* but a list"):
        ingested(**folders | changed | {"metadata": ["tags"]})


def test_huggingface_bad_tables_are_refused(folders, ingested):
    with pytest.raises(InputError, match=r"corpus/train\.jsonl:1: no column 'body' among _id, title, text"):
        ingested(**folders | {"text_column": "body"})
    with pytest.raises(InputError, match=r"queries/train\.jsonl:1: no column 'answer' among _id, text, answers"):
        ingested(**folders | {"answers_column": "answer"})
    with pytest.raises(InputError, match=r"corpus \(default, dev\): .*dev"):
        ingested(**folders | {"passages": folders["passages"] | {"split": "dev"}})
    with pytest.raises(InputError, match=r"ingest.queries and .*set both or neither"):
        ingested(**folders | {"queries": None})
    with pytest.raises(ValidationError, match="set one of dataset and folder"):
        CONFIG.validate_python(folders | {"passages": folders["passages"] | {"dataset": "a/b"}})


def test_huggingface_missing(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "reachable", lambda seconds: False)
    assert missing(CONFIG.validate_python(folders)) == []
    remote = table(tmp_path) | {"dataset": "BeIR/scifact", "folder": None}
    (line,) = missing(CONFIG.validate_python(folders | {"queries": remote}))
    assert "hf download BeIR/scifact --repo-type dataset" in line
    assert "ingest.queries.folder" in line
    gone = CONFIG.validate_python(folders | {"passages": table(tmp_path / "gone")})
    assert missing(gone) == [f"{tmp_path / 'gone'} does not exist"]
    path = tmp_path / "hub" / "corpus" / "train.jsonl"
    no_folder = CONFIG.validate_python(folders | {"passages": table(path)})
    assert missing(no_folder) == [f"{path} is a file; a folder with the files of a table is expected"]


AS_WRITTEN = [
    ("007", "NA", "nan"),
    ("08", "", "null"),
    ("1.0", "1999", "True"),
    ("1e5", "2021-03-04", "N/A"),
    ("NA", "True", "007"),
    ("nan", "1.50", "2024-01-02T03:04:05Z"),
    ("-0", "None", "<NA>"),
    ("0x1F", " spaces ", "#N/A"),
    ("True", "it's 5\" long", "3"),
]
"""Ids, titles and texts that libraries misread as numbers, dates or missing values."""


def _csv(header, rows, separator=","):
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator="\n").writerows([header, *rows])
    return out.getvalue().encode()


def _json_lines(header, rows):
    return "".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows).encode()


def _json_list(header, rows):
    return json.dumps([dict(zip(header, row, strict=True)) for row in rows], indent=1).encode()


def _zip(content):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("table.csv", content)
    return out.getvalue()


FILES = {
    "train.csv": _csv,
    "train.tsv": lambda header, rows: _csv(header, rows, "\t"),
    "train.jsonl": _json_lines,
    "train.json": _json_list,
    "train.csv.gz": lambda header, rows: gzip.compress(_csv(header, rows)),
    "train.jsonl.bz2": lambda header, rows: bz2.compress(_json_lines(header, rows)),
    "train.zip": lambda header, rows: _zip(_csv(header, rows)),
}


def replace(folder: Path, name: str, content: bytes) -> None:
    for path in folder.iterdir():
        path.unlink()
    (folder / name).write_bytes(content)


@pytest.mark.parametrize("name", FILES)
def test_huggingface_cells_are_text_as_written(folders, tmp_path, ingested, name):
    root = tmp_path / "hub"
    replace(root / "corpus", name, FILES[name](("_id", "title", "text"), AS_WRITTEN))
    queries = [(row[0], row[2]) for row in AS_WRITTEN]
    replace(root / "queries", name, FILES[name](("_id", "text"), queries))
    judged = [(row[0], row[0], "1.0") for row in AS_WRITTEN]
    replace(root / "qrels", name, FILES[name](("query-id", "corpus-id", "score"), judged))
    table_of_qrels = table(root / "qrels")
    result = ingested(**folders | {"answers_column": "", "test_qrels": table_of_qrels})
    assert result.passages == [(row[0], row[0], row[1], row[2]) for row in AS_WRITTEN]
    assert [(query.query_id, query.text) for query in result.queries] == queries
    assert result.qrels == {row[0]: {row[0]: 1} for row in AS_WRITTEN}


def test_huggingface_json_of_mixed_types(folders, tmp_path, ingested):
    rows = [("007", "2021-03-04", "a"), (7, 1999, "b"), ("7.0", None, "c"), (12345678901234567890123, "", "d")]
    replace(tmp_path / "hub" / "corpus", "train.jsonl", _json_lines(("_id", "title", "text"), rows))
    result = ingested(**folders | {"queries": None, "test_qrels": None})
    titles = [("007", "2021-03-04"), ("7", "1999"), ("7.0", ""), ("12345678901234567890123", "")]
    assert [(row[0], row[2]) for row in result.passages] == titles


@pytest.mark.parametrize(("column", "value"), [("_id", 7.0), ("_id", True), ("title", 0.5), ("text", 1e5)])
def test_huggingface_values_whose_original_text_is_lost_are_refused(folders, tmp_path, ingested, column, value):
    row = {"_id": "a", "title": "b", "text": "c"}
    corpus = tmp_path / "hub" / "corpus"
    replace(corpus, "train.jsonl", f"{json.dumps(row)}\n{json.dumps(row | {column: value})}\n".encode())
    settings = folders | {"queries": None, "test_qrels": None}
    with pytest.raises(InputError, match=rf"train\.jsonl:2: field '{column}' is not text, but {value}: write it in q"):
        ingested(**settings)
    replace(corpus, "train.parquet", b"")
    pq.write_table(pa.table({name: [row[name] if name != column else value] for name in row}), corpus / "train.parquet")
    with pytest.raises(InputError, match=rf"corpus, row 1: field '{column}' is not text, but {value}: write it in q"):
        ingested(**settings)


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("train.csv", "0.5"),
        ("train.tsv", "1.25"),
        ("train.jsonl", "-0.1"),
        ("train.json", "x"),
        ("train.parquet", "0.5"),
    ],
)
def test_huggingface_grades_that_are_not_integers_are_refused(folders, tmp_path, ingested, name, score):
    qrels = tmp_path / "hub" / "qrels"
    rows = [("1", "p2", "1"), ("1", "p1", score)]
    if name == "train.parquet":
        replace(qrels, name, b"")
        columns = [*zip(*rows, strict=True)]
        table_columns = {
            "query-id": columns[0],
            "corpus-id": columns[1],
            "score": [float(value) for value in columns[2]],
        }
        pq.write_table(pa.table(table_columns), qrels / name)
    else:
        replace(qrels, name, FILES[name](("query-id", "corpus-id", "score"), rows))
    with pytest.raises(
        InputError, match=rf"(qrels, row 2|(table|train)\S*:\d+): relevance '{score}' is not an integer"
    ):
        ingested(**folders | {"test_qrels": table(qrels)})


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("train.csv", ["_id,title,text", '1,"a,b', "2,c,d"], r"train\.csv:2: a quote that is not closed"),
        ("train.csv", ["_id,title,text", '1,"a" b,c', "2,c,d"], r"train\.csv:2: a quote .* or text after"),
        ("train.csv", ["_id,title,text", "1,a"], r"train\.csv:2: 3 columns expected, 2 found"),
        ("train.csv", ["_id,title,text", "1,a,b,c"], r"train\.csv:2: 3 columns expected, 4 found"),
        ("train.csv", ["_id,title,text,text", "1,a,b,c"], r"train\.csv:1: two columns are called 'text'"),
        ("train.csv", ["_id;title;text", "1;a;b"], r"train\.csv:2: no column '_id' .* be ;: write `sep: ;` "),
        (
            "train.csv",
            ["_id;title;text", "1;a, b;c"],
            r"train\.csv:2: 1 columns expected, 2 found; .* be ;: write `sep",
        ),
        ("train.csv", ["_id,title,text\r1,a,b\r2,c,d\r"], r"train\.csv:1: holds a CR without LF outside quotes"),
        ("train.tsv", ["_id\ttitle\ttext", '1\t"a', 'b"\tc'], r"train\.tsv:2: 3 columns expected, 2 found"),
        ("train.jsonl", ['{"_id": "1", "title": "", "text": "a"}', "[]"], r"train\.jsonl:2: a JSON object expected"),
    ],
)
def test_huggingface_bad_lines_are_refused(folders, tmp_path, ingested, name, rows, message):
    replace(tmp_path / "hub" / "corpus", name, "\n".join([*rows, ""]).encode())
    with pytest.raises(InputError, match=message):
        ingested(**folders | {"queries": None, "test_qrels": None})


@pytest.mark.parametrize("text", ['"Once upon a time', 'said "no"', '"To be."', 'an end"'])
def test_huggingface_tsv_is_split_only_at_tabs(folders, tmp_path, ingested, text):
    rows = ["_id\ttitle\ttext", f"1\tA\t{text}", f"2\t{text}\tb"]
    replace(tmp_path / "hub" / "corpus", "train.tsv", "\n".join([*rows, ""]).encode())
    result = ingested(**folders | {"queries": None, "test_qrels": None})
    assert [row[2:] for row in result.passages] == [("A", text), (text, "b")]


def test_huggingface_a_table_without_a_judgement_is_refused(folders, tmp_path, ingested):
    replace(tmp_path / "hub" / "qrels", "test.tsv", b"query-id\tcorpus-id\tscore\n")
    with pytest.raises(InputError, match=r"ingest\.test_qrels: no judgement"):
        ingested(**folders)


def test_huggingface_splits_and_cards(folders, tmp_path, ingested):
    corpus = tmp_path / "hub" / "corpus"
    replace(corpus, "train.csv", b"_id,title,text\n07,a,b\n")
    (corpus / "test.csv").write_bytes(b"_id,title,text\n08,c,d\n")
    settings = folders | {"queries": None, "test_qrels": None, "passages": table(corpus, "train+test")}
    assert [row[0] for row in ingested(**settings).passages] == ["07", "08"]
    with pytest.raises(InputError, match=r"corpus \(default, dev\): no split 'dev' among train, test"):
        ingested(**settings | {"passages": table(corpus, "dev")})
    card = "---\nconfigs:\n- config_name: default\n  data_files: train.csv\n  {}\n---\n"
    (corpus / "README.md").write_text(card.format("column_names: [_id, title, text]"))
    result = ingested(**settings | {"passages": table(corpus)})
    assert [row[0] for row in result.passages] == ["_id", "07"]
    replace(corpus, "train.csv", b'_id;title;text\r\n07;a;"b\r\nc"\r\n;;\r\n')
    (corpus / "README.md").write_text(card.format("sep: ;"))
    assert [row[3] for row in ingested(**settings | {"passages": table(corpus)}).passages] == ["b\r\nc"]
    replace(corpus, "train.tsv", b"_id;title;text\n07;a;b\n")
    (corpus / "README.md").write_text(card.replace("csv", "tsv").format("sep: ;"))
    assert [row[3] for row in ingested(**settings | {"passages": table(corpus)}).passages] == ["b"]
    replace(corpus, "train.csv", b"_id,title,text\n07,a,b\n")
    (corpus / "README.md").write_text(card.format("skiprows: 1"))
    with pytest.raises(InputError, match="its card sets skiprows: 1"):
        ingested(**settings | {"passages": table(corpus)})
