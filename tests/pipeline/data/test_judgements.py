"""Files of judgements."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from writing import put

from pipeline.data.collection import schemas, write_table
from pipeline.data.qrels import grade, read_qrels
from pipeline.errors import InputError


def test_qrels_of_trec_and_of_beir(tmp_path):
    assert read_qrels(put(tmp_path, "trec", "q 0 a 1", "q Q0 b 0")) == {"q": {"a": 1, "b": 0}}
    beir = put(tmp_path, "beir.tsv", "query-id\tcorpus-id\tscore", "q\ta\t1", "r\tb\t2")
    assert read_qrels(beir) == {"q": {"a": 1}, "r": {"b": 2}}
    spaced = put(tmp_path, "spaced.tsv", "query-id\tcorpus-id\tscore", "q 1\ta b c\t1 ", "r\tb\t2\t")
    assert read_qrels(spaced) == {"q 1": {"a b c": 1}, "r": {"b": 2}}
    with pytest.raises(InputError, match=r"none:2: 3 columns expected .*, 2 found"):
        read_qrels(put(tmp_path, "none", "query-id\tcorpus-id\tscore", "q\t \t1"))
    with pytest.raises(InputError, match=r"bad:2: 4 columns expected .*, 3 found"):
        read_qrels(put(tmp_path, "bad", "q 0 a 1", "q a 1"))
    assert read_qrels(put(tmp_path, "twice", "q 0 a 1", "q 0 a 1")) == {"q": {"a": 1}}
    with pytest.raises(InputError, match=r"two:2: passage 'a' of query 'q' has relevance 0 here and 1 before"):
        read_qrels(put(tmp_path, "two", "q 0 a 1", "q 0 a 0"))
    with pytest.raises(InputError, match="grade:1: relevance 'x' is not an integer"):
        read_qrels(put(tmp_path, "grade", "q 0 a x"))
    for odd in ("1_0", "１"):  # int() accepts them, as 10 and 1
        with pytest.raises(InputError, match=f"grade:1: relevance '{odd}' is not an integer"):
            read_qrels(put(tmp_path, "grade", f"q 0 a {odd}"))
    with pytest.raises(InputError, match="huge:1: relevance '2000000000' is above 10,000"):
        read_qrels(put(tmp_path, "huge", "q 0 a 2000000000"))
    assert read_qrels(put(tmp_path, "least", "q 0 a -2")) == {"q": {"a": -2}}


WHOLE = [("1", 1), ("1.0", 1), ("2.", 2), ("+1", 1), ("-1.0", -1), (" 1 ", 1), ("1e0", 1), ("1.50e1", 15), ("007", 7)]
"""Grades as files write them, all with integer values."""


@pytest.mark.parametrize(("written", "expected"), [*WHOLE, (1, 1), (2.0, 2), (-1.0, -1)])
def test_grades_whose_value_is_an_integer(written, expected):
    assert grade("here", written) == expected


@pytest.mark.parametrize(
    "written", ["0.5", "1.0000000000000000001", "", "x", "nan", "inf", "1e-1", "1_0", "１", "0x1", "True", 0.5, True]
)
def test_other_grades_are_refused(written):
    with pytest.raises(InputError, match=r"^here: relevance '.*' is not an integer$"):
        grade("here", written)


@pytest.mark.parametrize("written", ["10001", "1e5", "9" * 5000, "1e999999999", 20_000, 1e300])
def test_grades_outside_the_range_of_trec_eval_are_refused(written):
    with pytest.raises(InputError, match=r"^here: relevance '.*' is above 10,000$"):
        grade("here", written)
    with pytest.raises(InputError, match=r"^here: relevance '-.*' is below -10,000$"):
        grade("here", f"-{written}")


@pytest.mark.parametrize("text", ["q 0 a {}", "q\tx\ta\t{}", "query-id\tcorpus-id\tscore\nq\ta\t{}"])
def test_every_layout_of_judgements_accepts_only_integer_grades(tmp_path, text):
    for written, expected in WHOLE:
        if text != "q 0 a {}" or " " not in written:
            assert read_qrels(put(tmp_path, "qrels", text.format(written))) == {"q": {"a": expected}}
    for written in ("0.5", "1.25", "1e-1"):
        with pytest.raises(InputError, match=rf"qrels:\d: relevance '{written}' is not an integer"):
            read_qrels(put(tmp_path, "qrels", text.format(written)))


def test_qrels_of_a_collection(tmp_path):
    table = tmp_path / "qrels.parquet"
    write_table(table, schemas()["qrels"], [("dev", "q", "c", 1), ("dev", "r", "z", 2), ("test", "q", "a", 1)])
    assert read_qrels(table) == {"q": {"c": 1}, "r": {"z": 2}}
    assert read_qrels(table, "test") == {"q": {"a": 1}}
    table.write_bytes(b"no table")
    with pytest.raises(InputError, match=r"qrels\.parquet: cannot be read \(Could not open Parquet"):
        read_qrels(table)
    pq.write_table(pa.table({"query_id": ["q"], "passage_id": ["a"]}), table)
    why = r"qrels\.parquet: cannot be read as a collection's table of judgements \(not enough values to unpack"
    with pytest.raises(InputError, match=why):
        read_qrels(table)
    with pytest.raises(
        InputError, match=r"other\.parquet: a collection's table of judgements is called qrels\.parquet"
    ):
        read_qrels(table.rename(tmp_path / "other.parquet"))


@pytest.mark.parametrize("bad", ["a\0b", "", "a\u2028b", "a\x1bb"])
def test_ids_of_a_collections_table_are_checked(tmp_path, bad):
    for row in (("dev", "q", bad, 1), ("dev", bad, "p", 1)):
        write_table(tmp_path / "qrels.parquet", schemas()["qrels"], [row])
        with pytest.raises(InputError, match=r"qrels\.parquet: (query|passage) id '.*' (is empty|holds)"):
            read_qrels(tmp_path / "qrels.parquet")
