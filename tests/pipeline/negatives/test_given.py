"""Negatives from files: DPR's format and tables, checked against the collection and filtered like mined ones."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from searched import write_collection

from pipeline.errors import InputError
from pipeline.finetune import examples
from pipeline.finetune.pools import read_pools
from pipeline.negatives.from_file import NegativesFileConfig, missing, negatives_file


@pytest.fixture
def collection(tmp_path):
    """300 passages; p7 has the text of p0. q0 and q1 have the same words. q9 is a dev question. q4 has only grade 0."""
    passages = [(f"p{i}", "d", "", f"text {0 if i == 7 else i}") for i in range(300)]
    queries = [("q0", "train", "who?"), ("q1", "train", "who? "), ("q2", "train", "when?"), ("q3", "train", "why?")]
    queries += [("q4", "train", "how?"), ("q9", "dev", "where?")]
    judged = [("train", "q0", "p0", 1), ("train", "q1", "p1", 1), ("train", "q2", "p2", 1), ("train", "q3", "p3", 1)]
    judged += [("train", "q4", "p4", 0), ("dev", "q9", "p9", 1)]
    return write_collection(tmp_path / "collection", passages, queries, judged)


def config(file, number=None, page_questions=5):
    return NegativesFileConfig(file=file, number=number, seed=0, page_questions=page_questions)


def table(done):
    return [tuple(row.values()) for row in pq.read_table(done.out / "negatives.parquet").to_pylist()]


ROWS = [("q2", "p5"), ("q0", "p0"), ("q0", "p7"), ("q2", "p6"), ("q0", "p9"), ("q2", "p5"), ("q9", "p5"), ("q1", "p0")]
EXPECTED = [("q0", "p9", "given", 3, None), ("q1", "p0", "given", 1, None)]
EXPECTED += [("q2", "p5", "given", 1, None), ("q2", "p6", "given", 2, None)]


def write_rows(path, rows):
    """Writes `rows` in the format that the path's name shows."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"query_id": [r[0] for r in rows], "passage_id": [r[1] for r in rows]}), path)
        return path
    if ".jsonl" in path.name:
        lines = [json.dumps({"query_id": r[0], "passage_id": r[1]}) for r in rows]
    else:
        lines = ["query_id\tpassage_id", *("\t".join(r) for r in rows)]
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["n.tsv", "n.tsv.gz", "n.jsonl", "n.parquet"])
def test_tables_are_filtered_counted_and_grouped(name, collection, work, tmp_path):
    done = work()
    metrics = negatives_file(config(write_rows(tmp_path / name, ROWS)), collection, done)
    assert table(done) == EXPECTED
    assert metrics == {
        "questions": 3,
        "negatives": 4,
        "questions_short": 0,
        "questions_empty": 0,
        "questions_absent": 1,  # q3
        "negatives_above_positive": 0,
        "dropped_judged": 1,
        "dropped_duplicate": 1,
        "dropped_repeated": 1,
        "dropped_other_split": 1,
        "dropped_unknown": 0,
        "dropped_question": 0,
        "notice": "\n".join(
            [
                "negatives dropped, judged relevant: 1 (first: p0 for q0)",
                "negatives dropped, copies of a positive: 1 (first: p7 for q0)",
                "negatives dropped, listed again: 1",
                "negatives dropped, of dev and test questions: 1 (first: p5 for q9)",
                "training questions not listed: 1 (first: q3)",
            ]
        ),
    }
    del metrics["notice"]  # is only printed
    assert json.loads((done.out / "negatives.json").read_text()) == metrics
    page = (done.out / "negatives.html").read_text()
    assert "3 of 3 training questions" in page
    assert "no. 3" in page


def test_training_reads_the_written_negatives(collection, work, tmp_path):
    done = work()
    negatives_file(config(write_rows(tmp_path / "n.tsv", ROWS)), collection, done)
    pools = read_pools(collection, done.out, mined=done.out)
    assert [pools.negatives[1][i].tolist() for i in range(4)] == [[9], [0], [5, 6], []]
    assert examples.filled(pools, 2) == 2 * (1 + 1 + 0 + 2)
    batch = examples.draw_batch(pools, 0, np.arange(examples.epoch_size(pools)), examples.Draw(2, None, seed=0))
    assert batch.passages_QN.shape == (8, 3)  # filled from the whole collection
    for row, query in zip(batch.passages_QN, batch.queries_Q, strict=True):
        assert query not in row[1:]  # question i's positive is passage i
        assert len(set(row)) == 3


def test_scores_and_a_sample_of_each_question(collection, work, tmp_path):
    lines = [f"q2\tp{10 + i}\t{90 - i}.5" for i in range(20)] + ["q0\tp30\t-1"]
    (tmp_path / "n.tsv").write_text("\n".join(lines))
    one, two = work("one"), work("two")
    metrics = negatives_file(config(tmp_path / "n.tsv", number=4), collection, one)
    assert (metrics["negatives"], metrics["questions_short"]) == (5, 1)
    rows = table(one)
    assert rows[0] == ("q0", "p30", "given", 1, -1.0)
    for query_id, passage_id, _, rank, score in rows[1:]:
        assert (query_id, passage_id, score) == ("q2", f"p{9 + rank}", 91.5 - rank)
    negatives_file(config(tmp_path / "n.tsv", number=4), collection, two)
    for name in ("negatives.parquet", "negatives.json", "negatives.html"):
        assert (one.out / name).read_bytes() == (two.out / name).read_bytes()


def dpr(question, *contexts):
    return {"question": question, "answers": [], "positive_ctxs": [], "hard_negative_ctxs": list(contexts)}


def test_dpr_identifies_questions_by_text_and_has_three_names_for_ids(collection, work, tmp_path):
    records = [
        dpr("when?", {"id": "p5", "score": "79.81784"}, {"passage_id": "p6", "score": 13.5}, {"psg_id": "p8"}),
        dpr("who?", {"id": "p0"}, {"id": "p20"}),
        dpr("a question of its own", {"id": "p5"}, {"id": "nowhere"}),
    ]
    with gzip.open(tmp_path / "biencoder.json.gz", "wt") as file:
        json.dump(records, file, indent=4)
    done = work()
    metrics = negatives_file(config(tmp_path / "biencoder.json.gz"), collection, done)
    assert [row[:4] for row in table(done)] == [
        ("q0", "p20", "given", 2),
        ("q1", "p0", "given", 1),  # the same question with another positive
        ("q1", "p20", "given", 2),
        ("q2", "p5", "given", 1),
        ("q2", "p6", "given", 2),
        ("q2", "p8", "given", 3),
    ]
    assert [row[4] for row in table(done)][3:5] == [pytest.approx(79.81784), 13.5]
    assert (metrics["dropped_unknown"], metrics["dropped_judged"]) == (2, 1)


def test_dprs_file_of_another_collection_is_refused(collection, work, tmp_path):
    records = [dpr(f"question {i}", {"id": "p5"}) for i in range(4)] + [dpr("when?", {"id": "p5"})]
    (tmp_path / "n.json").write_text(json.dumps(records, indent=1))
    with pytest.raises(InputError, match=r"n\.json:2: unknown query 'question 0' \(4 of 5 rows, more than 50%\)"):
        negatives_file(config(tmp_path / "n.json"), collection, work())


@pytest.mark.parametrize(("wrong", "fault"), [("q2\tnowhere", "passage 'nowhere'"), ("q77\tp5", "query 'q77'")])
def test_unknown_ids_up_to_one_percent(wrong, fault, collection, work, tmp_path):
    good = [f"q2\tp{i}" for i in range(10, 110)]
    (tmp_path / "n.tsv").write_text("\n".join([*good, wrong]))
    assert negatives_file(config(tmp_path / "n.tsv"), collection, work("few"))["dropped_unknown"] == 1
    (tmp_path / "n.tsv").write_text("\n".join([*good[:50], wrong, wrong]))
    with pytest.raises(InputError, match=rf"n\.tsv:51: unknown {fault} \(2 of 52 rows, more than 1%\)"):
        negatives_file(config(tmp_path / "n.tsv"), collection, work("many"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("n.tsv", "", r"n\.tsv: empty file"),
        ("n.tsv", "q2\tp5\nq2 p6\n", r"n\.tsv:2: 2 or 3 columns expected, 1 found"),
        ("n.tsv", "q2\tp5\tbest\n", r"n\.tsv:1: score 'best' is not a number"),
        ("n.tsv", "q2\tp5\t1_0\n", r"n\.tsv:1: score '1_0' is not a number"),
        ("n.tsv", "q2\tp5\tnan\n", r"n\.tsv:1: score 'nan' is not a number"),
        ("n.tsv", "q2\tp5\t1e39\n", r"n\.tsv:1: score '1e39' is not a number from -1e\+38 to 1e\+38"),
        (
            "n.jsonl",
            f'{{"query_id": "q2", "passage_id": "p5", "score": {400 * "9"}}}\n',
            rf"n\.jsonl:1: score '{59 * '9'}…' is not a number",
        ),
        ("n.tsv", "query_id\tpassage_id\n", r"n\.tsv: no row"),
        ("n.jsonl", '{"query_id": "q2"}\n', r"n\.jsonl:1: no text in field 'passage_id'"),
        ("n.json", '[{"question": "when?", "hard_negative_ctxs": ["p5"]}]', "is not a list of objects"),
        (
            "n.json",
            '[{"question": "when?", "hard_negative_ctxs": [{"text": "p5"}]}]',
            r"n\.json:1: no text in field 'id'",
        ),
        ("n.parquet", "q2", r"n\.parquet: cannot be read"),
        ("n.tsv", "q2\tp2\n", r"n\.tsv: .*no question has a negative left; dropped: .*judged 1"),
        ("n.json", "[]", r"n\.json: no row"),
    ],
)
def test_errors_in_a_file_are_reported_with_their_line(name, content, message, collection, work, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        negatives_file(config(tmp_path / name), collection, work())


def test_a_parquet_table_without_a_column_is_refused(collection, work, tmp_path):
    pq.write_table(pa.table({"query": ["q2"], "passage_id": ["p5"]}), tmp_path / "n.parquet")
    with pytest.raises(InputError, match="no column query_id; it has query, passage_id"):
        negatives_file(config(tmp_path / "n.parquet"), collection, work())


def test_a_damaged_parquet_table_is_reported(collection, work, tmp_path):
    ids = pa.table({"query_id": ["q2"] * 20_000, "passage_id": [f"p{i}" for i in range(20_000)]})
    pq.write_table(ids, tmp_path / "n.parquet", row_group_size=10_000, compression="zstd")
    group = pq.read_metadata(tmp_path / "n.parquet").row_group(1)
    at = group.column(1).data_page_offset
    damaged = bytearray((tmp_path / "n.parquet").read_bytes())
    damaged[at : at + 500] = bytes(500)
    (tmp_path / "n.parquet").write_bytes(damaged)
    with pytest.raises(InputError, match=r"n\.parquet: cannot be read after row \d+: .") as error:
        negatives_file(config(tmp_path / "n.parquet"), collection, work())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["negatives.csv", "negatives.parquet.gz"])
def test_files_of_other_kinds_are_refused_with_the_field(name, tmp_path):
    with pytest.raises(ValidationError, match=r"file\n.*DPR's \.json or a table"):
        config(tmp_path / name)


def test_a_missing_file_is_reported_with_its_download_command(tmp_path):
    absent = tmp_path / "biencoder-nq-adv-hn-train.json.gz"
    assert "wget" in missing(config(absent))[0]
    assert missing(config(write_rows(tmp_path / "n.tsv", ROWS))) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("n.tsv", "query_id passage_id\n", "n.tsv:1: 2 or 3 columns expected, 1 found"),
        ("n.jsonl", '{"query_id": "q0"}\n', "n.jsonl:1: no text in field 'passage_id'"),
        ("n.json", '{"question": "who?"}\n', "n.json:1: invalid JSON: [ expected"),
        ("n.parquet", "text", "n.parquet: cannot be read: "),
    ],
)
def test_an_invalid_first_row_is_reported_before_a_run(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    (line,) = missing(config(tmp_path / name))
    assert line.startswith(f"negatives_file.file: {tmp_path}/{message}")
