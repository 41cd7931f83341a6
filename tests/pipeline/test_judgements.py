"""Files of judgements."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from writing import put

from pipeline.collection import schemas, write_table
from pipeline.errors import InputError
from pipeline.judgements import read_qrels


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
    for grade in ("1_0", "１"):  # which Python reads as 10 and 1
        with pytest.raises(InputError, match=f"grade:1: relevance '{grade}' is not an integer"):
            read_qrels(put(tmp_path, "grade", f"q 0 a {grade}"))
    with pytest.raises(InputError, match="huge:1: relevance 2,000,000,000 is above 10,000"):
        read_qrels(put(tmp_path, "huge", "q 0 a 2000000000"))
    assert read_qrels(put(tmp_path, "least", "q 0 a -2")) == {"q": {"a": -2}}


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
