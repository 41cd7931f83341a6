"""The same rule for ids applies wherever they are read."""

import json
import re

import pytest
from writing import put

from pipeline.bm25 import other_systems
from pipeline.data import run_files
from pipeline.data.ids import LONGEST, check_id
from pipeline.data.qrels import read_qrels
from pipeline.data.text.text_files import integer
from pipeline.errors import InputError
from pipeline.negatives import from_file

NO_ID = {
    "a\0b": "holds a NUL character",
    "part\0": "holds a NUL character",
    "a\x1b[31mb": "holds a control character",
    "a\x7f": "holds a control character",
    "a\x85b": "is empty or holds white space",
    "a\x1cb": "is empty or holds white space",
    "a\x0bb": "is empty or holds white space",
    "a\u2028b": "is empty or holds white space",
    "a\u2029": "is empty or holds white space",
    "a\u3000b": "is empty or holds white space",
    "a\xa0b": "is empty or holds white space",
    (LONGEST + 1) * "a": "is longer than 4,096 characters",
}
"""Ids that a line of a file can hold, and what is wrong with them."""
NO_ID_IN_JSON = NO_ID | {
    "": "is empty or holds white space",
    " ": "is empty or holds white space",
    "a b": "is empty or holds white space",
    " a": "(is empty or holds|begins or ends with) white space",
    "a\t": "(is empty or holds|begins or ends with) white space",
    "a\nb": "is empty or holds white space",
    "a\rb": "is empty or holds white space",
    "\ud800": "holds half of a surrogate pair",
}
IDS = ["7", "007", "d#1", "<dbpedia:Ä>", "名前", "a\u200db", "https://example.org/?a=b&c=%20", "-", "NA", LONGEST * "a"]


@pytest.mark.parametrize("text", IDS)
def test_valid_ids_are_accepted(text):
    check_id("here", "passage", text)
    check_id("here", "passage", text, spaces=True)


@pytest.mark.parametrize("text", NO_ID_IN_JSON)
def test_invalid_ids_are_refused(text):
    with pytest.raises(
        InputError, match=rf"^here: query id '.*' {NO_ID_IN_JSON[text]}; change it in every file"
    ) as raised:
        check_id("here", "query", text)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("text", ["می\u200cخواهم x", "क्\u200dष x", "ন্\u200dয x"])
def test_letters_stay_joined_in_a_message(text):
    with pytest.raises(InputError, match=f"^here: query id '{text}' is empty or holds white space"):
        check_id("here", "query", text)
    with pytest.raises(InputError, match=f"^here: relevance '{text}' is not an integer"):
        integer("here", text, "relevance")


@pytest.mark.parametrize("text", ["a b", "a\xa0b", "q 1 2"])
def test_between_tabs_an_id_may_hold_spaces(text):
    check_id("here", "passage", text, spaces=True)


@pytest.mark.parametrize("text", [" a", "a ", "", " ", "a\nb", "a\0b", "a\u2028b", "a\tb", "\ud800"])
def test_invalid_ids_between_tabs_are_refused(text):
    with pytest.raises(InputError, match=r"^here: passage id"):
        check_id("here", "passage", text, spaces=True)


def assert_refused(path, line, text, reader):
    with pytest.raises(InputError, match=rf"{re.escape(str(path))}:{line}: \w+ id '.*' {NO_ID_IN_JSON[text]}; change"):
        reader(path)


@pytest.mark.parametrize("text", NO_ID)
def test_files_of_lines_refuse_such_ids(tmp_path, text):
    for row in (f"{text} Q0 p 1 1 x", f"q Q0 {text} 1 1 x"):
        assert_refused(
            put(tmp_path, "run", "q Q0 p 1 2 x", row), 2, text, lambda path: [*run_files.run_file_rows(path)]
        )
    for row in (f"{text}\tp\t1", f"q\t{text}\t1"):
        assert_refused(put(tmp_path, "ranks", "q p 1", row), 2, text, lambda path: [*run_files.run_file_rows(path)])
    for row in (f"{text} 0 p 1", f"q 0 {text} 1"):
        assert_refused(put(tmp_path, "qrels", "q 0 p 1", row), 2, text, read_qrels)
    for row in (f"{text}\tp", f"q\t{text}"):
        assert_refused(put(tmp_path, "given.tsv", row), 1, text, lambda path: [*from_file.table_negatives(path)])
    assert_refused(put(tmp_path, "topics.tsv", f"{text}\twords"), 1, text, lambda path: [*other_systems.topics(path)])


@pytest.mark.parametrize("text", NO_ID_IN_JSON)
def test_files_of_json_refuse_such_ids(tmp_path, text):
    for row in ({"query_id": text, "passage_id": "p"}, {"query_id": "q", "passage_id": text}):
        assert_refused(
            put(tmp_path, "given.jsonl", json.dumps(row)), 1, text, lambda path: [*from_file.table_negatives(path)]
        )
    record = [{"question": "?", "hard_negative_ctxs": [{"id": text}]}]
    assert_refused(put(tmp_path, "given.json", json.dumps(record)), 1, text, lambda path: [*from_file.dpr_rows(path)])
    row = json.dumps({"id": text, "contents": "words"})
    assert_refused(put(tmp_path, "expanded.jsonl", row), 1, text, lambda path: [*other_systems.passages(path)])


@pytest.fixture
def beir(tmp_path, ingested):
    """A function that builds a collection from the ids of a passage, its document, a query and a judgement."""

    def run(passage="p", document="d", query="q", judged_query="q", judged_passage="p"):
        put(tmp_path, "corpus.jsonl", json.dumps({"_id": passage, "text": "words", "doc": document}))
        put(tmp_path, "queries.jsonl", json.dumps({"_id": query, "text": "words?"}))
        put(tmp_path, "qrels/test.tsv", "query-id\tcorpus-id\tscore", "q\tp\t1", f"{judged_query}\t{judged_passage}\t1")
        return ingested(reader="beir", folder=tmp_path, document_key="doc", metadata=[])

    return run


@pytest.mark.parametrize("text", NO_ID_IN_JSON)
def test_ingest_refuses_such_ids(beir, text):
    fault = NO_ID_IN_JSON[text]
    with pytest.raises(InputError, match=rf"corpus\.jsonl:1: passage id '.*' {fault}"):
        beir(passage=text)
    if text in NO_ID:  # a line of judgements cannot hold the other ids
        with pytest.raises(InputError, match=rf"queries\.jsonl:1: query id '.*' {fault}"):
            beir(query=text, judged_query=text)


@pytest.mark.parametrize("text", NO_ID)
def test_ingest_refuses_such_ids_of_judgements(beir, text):
    with pytest.raises(InputError, match=rf"test\.tsv:3: passage id '.*' {NO_ID[text]}"):
        beir(judged_passage=text)
    with pytest.raises(InputError, match=rf"test\.tsv:3: query id '.*' {NO_ID[text]}"):
        beir(judged_query=text)


@pytest.mark.parametrize("text", ["a\0b", "\0", "half \ud800"])
def test_ingest_refuses_documents_ids_that_no_table_holds(beir, text):
    with pytest.raises(InputError, match=r"corpus\.jsonl:1: .*holds (a NUL|half of a surrogate)"):
        beir(document=text)


@pytest.mark.parametrize("text", ["The Mill", " Mill ", "名前", "", "A\ttab", "two\nlines", "x" * 5000])
def test_titles_are_valid_document_ids(beir, text):
    assert [row[1] for row in beir(document=text).passages] == [text or "p"]
