"""Headings: columns are identified by their names in the first line."""

from pathlib import Path

import pytest
from writing import put

from pipeline.bm25 import other_systems
from pipeline.data.qrels import read_qrels
from pipeline.data.readers import beir, dpr, msmarco
from pipeline.data.text.heading import DPR, QRELS, QUESTIONS, column_positions
from pipeline.errors import InputError
from pipeline.negatives import from_file


@pytest.mark.parametrize(
    ("columns", "line", "expected"),
    [
        (QRELS, "query-id corpus-id score", [0, 1, 2]),
        (QRELS, "corpus-id query-id score", [1, 0, 2]),
        (QRELS, "Relevance Query_ID #docid", [1, 2, 0]),
        (DPR, "id title text", [0, 2, 1]),
        (QRELS, "query passage 1", None),
        (QRELS, "q id score1", None),
        (QUESTIONS, "q score", None),
        (QUESTIONS, "q1 id", None),
    ],
)
def test_order_of_the_columns(columns, line, expected):
    assert column_positions("here", line.split(), columns) == expected


@pytest.mark.parametrize("line", ["a b score", "query-id x score", "query-id query-id score", "id corpus-id score"])
def test_a_heading_with_unknown_names_is_refused(line):
    with pytest.raises(InputError, match=r"^f:1: the first line names .*write it .* query-id, corpus-id, score$"):
        column_positions("f:1", line.split(), QRELS)


def _triples(path: Path):
    return [tuple(row) for _, row in msmarco._negatives(path, 9)]


def _passages(path: Path):
    config = msmarco.MarcoConfig.model_construct(collection=path, layout="passages", titles=None)
    return [(row.passage_id, row.text) for _, row in msmarco._passages(config)]


def _documents(path: Path):
    config = msmarco.MarcoConfig.model_construct(collection=path, layout="documents")
    return [(row.passage_id, row.title, row.text, row.metadata["url"]) for _, row in msmarco._passages(config)]


READ = {
    "read_qrels": lambda path: [(q, p, grade) for q, of in read_qrels(path).items() for p, grade in of.items()],
    "beir": lambda path: [tuple(row)[1:] for _, row in beir._judgements("test", path)],
    "dpr": lambda path: [(row.passage_id, row.text, row.title) for _, row in dpr._passages(path)],
    "qa": lambda path: [(row["question"], row["answers"][0]) for _, row in dpr._answer_lines(path)],
    "given": lambda path: [(row.question, row.passage_id, row.score) for row in from_file.table_negatives(path)],
    "topics": lambda path: [row[1:] for row in other_systems.topics(path)],
    "triples": _triples,
    "passages": _passages,
    "documents": _documents,
}


@pytest.mark.parametrize(
    ("kind", "heading", "line", "expected"),
    [
        ("read_qrels", "corpus-id\tquery-id\tscore", "a b\tq\t1", ("q", "a b", 1)),
        ("read_qrels", "score qid pid", "1 q a", ("q", "a", 1)),
        ("beir", "corpus-id\tquery-id\tscore", "a\tq\t1", ("q", "a", 1)),
        ("dpr", "id\ttitle\ttext", "7\tTitle\tsome text", ("7", "some text", "Title")),
        ("qa", "answers\tquestion", "['yes']\twho?", ("who?", "yes")),
        ("given", "score\tpassage_id\tquery_id", "2\ta\tq", ("q", "a", 2.0)),
        ("topics", "text\tqid", "who?\tq", ("q", "who?")),
        ("triples", "query_id\tnegative\tpositive", "q\tn\tp", ("q", "n")),
        ("passages", "text\tid", "some text\t7", ("7", "some text")),
        (
            "documents",
            "docid\ttitle\turl\tbody",
            "D7\tTitle\thttp://a\tsome text",
            ("D7", "Title", "some text", "http://a"),
        ),
    ],
)
def test_every_reader_finds_columns_by_their_names(tmp_path, kind, heading, line, expected):
    assert READ[kind](put(tmp_path, f"{kind}.tsv", heading, line)) == [expected]


def test_rows_below_a_heading_have_its_columns(tmp_path):
    path = put(tmp_path, "n.tsv", "score\tpassage_id\tquery_id", "a\tq")
    with pytest.raises(InputError, match=r"n.tsv:2: 3 columns expected, 2 found"):
        list(from_file.table_negatives(path))
