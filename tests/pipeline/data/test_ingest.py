"""What ingest writes, counts and refuses."""

import gzip
import hashlib
import lzma
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.data import collection
from pipeline.data.text.same_words import same_words
from pipeline.errors import InputError

CORPUS = [
    '{"_id": "p1", "title": "One", "text": "first passage", "doc": "d1"}',
    '{"_id": "p2", "title": "", "text": "second passage\\nof two lines", "doc": "d1"}',
    '{"_id": "p3", "text": "drei größere Wörter", "doc": "d2"}',
]
QUERIES = [
    '{"_id": "q1", "text": "which is first?", "answers": ["first"]}',
    '{"_id": "q2", "text": "which is third?"}',
    '{"_id": "q3", "text": "judged nowhere"}',
]
HEADER = "query-id\tcorpus-id\tscore"
QRELS = {"train": [HEADER, "q1\tp1\t2", "q1\tp2\t0"], "test": [HEADER, "q2\tp3\t1"]}


def write(folder: Path, corpus=CORPUS, queries=QUERIES, qrels=QRELS) -> Path:
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(line + "\n" for line in corpus), encoding="utf-8")
    (folder / "queries.jsonl").write_text("".join(line + "\n" for line in queries), encoding="utf-8")
    for split, lines in qrels.items():
        (folder / "qrels" / f"{split}.tsv").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return folder


def beir(folder: Path, document_key: str = "") -> dict:
    return {"reader": "beir", "folder": folder, "document_key": document_key, "metadata": []}


def test_tables(tmp_path, ingested):
    result = ingested(**beir(write(tmp_path / "set"), "doc"))
    assert result.passages == [
        ("p1", "d1", "One", "first passage"),
        ("p2", "d1", "", "second passage\nof two lines"),
        ("p3", "d2", "", "drei größere Wörter"),
    ]
    assert result.queries == [("q1", "train", "which is first?", ["first"]), ("q2", "test", "which is third?", [])]
    assert result.qrels == {"q1": {"p1": 2, "p2": 0}, "q2": {"p3": 1}}
    assert result.negatives == {}
    expected = {"passages": 3, "documents": 2, "words": 10, "queries": 2, "qrels": 3, "unjudged_queries": 1}
    expected |= {"train_queries": 1, "dev_queries": 0, "test_queries": 1, "train_qrels": 2, "test_qrels": 1}
    assert result.counts.items() >= expected.items()
    assert {name for name in expected if not result.counts[name]} == {"dev_queries"}
    for name in ("passages", "queries", "qrels"):
        assert pq.read_schema(result.folder / f"{name}.parquet") == collection.schemas()[name]


def test_loading_by_split(tmp_path, ingested):
    folder = ingested(**beir(write(tmp_path / "set"))).folder
    assert [query.query_id for query in collection.read_queries(folder, ["test"])] == ["q2"]
    assert collection.read_qrels(folder, ["train"]) == {"q1": {"p1": 2, "p2": 0}}
    assert collection.passage_ids(folder) == ["p1", "p2", "p3"]
    assert collection.passage_count(folder) == 3
    assert [batch["title"] for batch in collection.passage_batches(folder, ["title"], rows=2)] == [["One", ""], [""]]


def test_without_documents_each_passage_is_its_own_document(tmp_path, ingested):
    result = ingested(**beir(write(tmp_path / "set")))
    assert [row[1] for row in result.passages] == ["p1", "p2", "p3"]
    assert result.counts["documents"] == 3


def test_a_collection_for_pretraining_needs_no_qrels(tmp_path, ingested):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text("\n".join(CORPUS), encoding="utf-8")
    result = ingested(**beir(folder))
    assert (len(result.passages), result.queries, result.qrels) == (3, [], {})


def _zst(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", _zst)])
def test_compressed_files_give_the_same_bytes(tmp_path, ingested, ending, pack):
    plain = ingested(**beir(write(tmp_path / "set")))
    packed = write(tmp_path / "packed")
    for path in [packed / "corpus.jsonl", packed / "queries.jsonl", *packed.glob("qrels/*.tsv")]:
        path.with_name(path.name + ending).write_bytes(pack(path.read_bytes()))
        path.unlink()
    assert _digests(ingested(**beir(packed)).folder) == _digests(plain.folder)


def _digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_empty_passages_and_repeated_judgements_are_dropped_and_counted(tmp_path, ingested):
    corpus = [*CORPUS, '{"_id": "p4", "text": " \\n"}', '{"_id": "p5", "title": "Title alone", "text": ""}']
    qrels = {"train": [*QRELS["train"], "q1\tp4\t1", "q1\tp1\t2"], "test": QRELS["test"]}
    result = ingested(**beir(write(tmp_path / "set", corpus, qrels=qrels)))
    assert [row[0] for row in result.passages] == ["p1", "p2", "p3", "p5"]
    assert result.qrels["q1"] == {"p1": 2, "p2": 0}
    expected = {"empty_passages": 1, "qrels_to_empty": 1, "duplicate_qrels": 1, "unknown_qrels": 0, "train_qrels": 2}
    assert result.counts.items() >= expected.items()


@pytest.mark.parametrize(
    "text", ["which is first?", "  which is first? ", "Which is  FIRST?", "which is\u00a0first?", "which is\\tfirst?"]
)
def test_dev_and_test_questions_that_are_training_questions_too_are_reported(tmp_path, ingested, text, monkeypatch):
    hashed: list[str] = []
    monkeypatch.setattr("pipeline.data.leaks.same_words", lambda words: hashed.append(words) or same_words(words))
    queries = [QUERIES[0], f'{{"_id": "t1", "text": "{text}"}}', QUERIES[1], '{"_id": "d1", "text": "which is first?"}']
    qrels = {"train": QRELS["train"], "test": [HEADER, "t1\tp3\t1", "q2\tp3\t1"], "dev": [HEADER, "d1\tp3\t1"]}
    result = ingested(**beir(write(tmp_path / "set", queries=queries, qrels=qrels)))
    assert len(result.queries) == len(hashed) == 4  # nothing is dropped, and each is hashed once
    assert result.notices == [
        "dev and test questions that are training questions too: 2 (first: t1 of test is q1 of train, d1 of dev is q1 "
        "of train); training sees their answers, so figures are too good: remove them from one split"
    ]


@pytest.mark.parametrize(
    ("judged", "expected"),
    [
        (["q1\tp1\t1", "q3\tp2\t0"], "1 (first: q3)"),
        (["q1\tp1\t0", "q3\tp2\t0"], "2 (first: q1, q3)"),
        (["q1\tp1\t1", "q3\tp2\t0", "q3\tp3\t2"], None),
    ],
)
def test_training_questions_without_a_relevant_passage_are_reported(tmp_path, ingested, judged, expected):
    queries = [f'{{"_id": "q{n}", "text": "question {n}"}}' for n in (1, 3)]
    result = ingested(**beir(write(tmp_path / "set", queries=queries, qrels={"train": [HEADER, *judged]})))
    line = "training questions left out, without a relevant passage: "
    assert result.notices == ([line + expected] if expected else [])


@pytest.mark.parametrize(
    ("texts", "splits"),
    [
        (("one", "two", "three"), ("train", "dev", "test")),
        (("one", "one", "two"), ("train", "train", "test")),
        (("one", "two", "two"), ("train", "test", "test")),
        (("one", "one?", "on e"), ("train", "dev", "test")),
    ],
)
def test_equal_questions_of_a_single_split_are_not_reported(tmp_path, ingested, texts, splits):
    queries = [f'{{"_id": "q{n}", "text": "{text}"}}' for n, text in enumerate(texts)]
    qrels = {split: [HEADER] for split in splits}
    for n, split in enumerate(splits):
        qrels[split].append(f"q{n}\tp1\t1")
    assert ingested(**beir(write(tmp_path / "set", queries=queries, qrels=qrels))).notices == []


PLENTY = [f'{{"_id": "p{i}", "text": "passage {i}"}}' for i in range(300)]
QUESTIONS = ['{"_id": "q1", "text": "question"}', '{"_id": "q2", "text": "another"}', '{"_id": "e", "text": "hollow"}']
MISSING = {  # (further passages, judgements by split, kept in qrels.parquet, counts, notice)
    "test": ([], {"test": ["q2\tlost\t1"]}, {"q2": {"lost": 1}}, (1, 0, 0), "1 (first: lost)"),
    "dev and test": (
        [],
        {"dev": ["q2\tlost\t1"], "test": ["e\tlost\t0", "e\tgone\t2", "e\tp1\t1"]},
        {"q2": {"lost": 1}, "e": {"lost": 0, "gone": 2, "p1": 1}},
        (2, 0, 0),
        "2 (first: lost, gone)",
    ),
    "without text": (['{"_id": "bare", "text": ""}'], {"test": ["q2\tbare\t1"]}, {"q2": {"bare": 1}}, (1, 0, 0), "1 ("),
    "not relevant": ([], {"test": ["q2\tlost\t0"]}, {"q2": {"lost": 0}}, (0, 0, 0), None),
    "of training": ([], {"train": ["q1\tlost\t1"]}, {}, (0, 1, 0), None),
    "of training, without text": (['{"_id": "bare", "text": ""}'], {"train": ["q1\tbare\t1"]}, {}, (0, 0, 1), None),
    "of an unknown question": ([], {"test": ["who\tp1\t1"]}, {}, (0, 1, 0), None),
}


@pytest.mark.parametrize(("further", "judged", "kept", "counts", "notice"), MISSING.values(), ids=MISSING)
def test_dev_and_test_judgements_of_passages_that_the_corpus_lacks_are_kept(
    further, judged, kept, counts, notice, tmp_path, ingested
):
    lines = {"train": [f"q1\tp{i}\t1" for i in range(300)]}
    for split, more in judged.items():
        lines[split] = [*lines.get(split, []), *more]
    lines = {split: [HEADER, *rows] for split, rows in lines.items()}
    result = ingested(**beir(write(tmp_path / "set", [*PLENTY, *further], QUESTIONS, lines)))
    assert {q: grades for q, grades in result.qrels.items() if q != "q1"} == kept
    assert result.qrels["q1"] == {f"p{i}": 1 for i in range(300)}
    assert tuple(result.counts[name] for name in ("missing_qrels", "unknown_qrels", "qrels_to_empty")) == counts
    reported = [line for line in result.notices if "that the corpus lacks" in line]
    assert [notice in line for line in reported] == [True] * bool(notice)


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize(("known", "lacking"), [(207, 3), (98, 2), (0, 3), (100, 100)])
def test_judgements_of_lacking_dev_and_test_passages_are_kept_if_few_or_at_most_half(
    known, lacking, split, tmp_path, ingested
):
    rows = [*(f"q1\tp{i}\t1" for i in range(known)), *(f"q1\tlost{i}\t1" for i in range(lacking))]
    result = ingested(**beir(write(tmp_path / "set", PLENTY, QUESTIONS, {split: [HEADER, *rows]})))
    assert (result.counts["missing_qrels"], result.counts["qrels"]) == (lacking, known + lacking)


@pytest.mark.parametrize(("known", "lacking"), [(100, 101), (0, 11)])
def test_judgements_that_mostly_name_lacking_passages_are_refused(known, lacking, tmp_path, ingested):
    rows = [*(f"q1\tp{i}\t1" for i in range(known)), *(f"q1\tlost{i}\t1" for i in range(lacking))]
    folder = write(tmp_path / "set", PLENTY, QUESTIONS, {"test": [HEADER, *rows], "train": [HEADER, "q2\tp1\t1"]})
    message = (
        rf"test.tsv:{known + 2}: unknown passage id 'lost0' \({lacking} of {known + lacking} qrels of dev and test"
    )
    with pytest.raises(InputError, match=message):
        ingested(**beir(folder))


def test_unknown_judgements_up_to_one_percent(tmp_path, ingested):
    corpus = [f'{{"_id": "p{i}", "text": "passage {i}"}}' for i in range(99)]
    queries = ['{"_id": "q1", "text": "question"}']
    lines = [HEADER, *(f"q1\tp{i}\t1" for i in range(99)), "q1\tlost\t1"]
    result = ingested(**beir(write(tmp_path / "good", corpus, queries, {"train": lines})))
    assert (result.counts["unknown_qrels"], result.counts["qrels"]) == (1, 99)
    folder = write(tmp_path / "bad", corpus, queries, {"train": [*lines, "q2\tp1\t1"]})
    with pytest.raises(InputError, match=r"train.tsv:101: unknown passage id 'lost' \(2 of 101 qrels"):
        ingested(**beir(folder))


P4 = '{"_id": "p4", "text": " "}'
DROPPED = {
    "a passage without text": ({"corpus": [*CORPUS, P4]}, "passages dropped, without text and title: 1 (first: p4)"),
    "a question without text": (
        {"queries": ['{"_id": "q4", "text": ""}'], "train": ["q4\tp1\t1"]},
        "questions dropped, without text: 1 (first: q4)",
    ),
    "a question without a judgement": (
        {"queries": [f'{{"_id": "u{i}", "text": "u"}}' for i in range(5)]},
        "questions left out, without a judgement: 6 (first: q3, u0, u1)",
    ),
    "a judgement of a passage without text": (
        {"corpus": [*CORPUS, P4], "train": ["q1\tp4\t1"]},
        "judgements dropped, of questions or passages without text: 1 (first: q1 p4)",
    ),
    "a judgement twice": (
        {"train": ["q1\tp1\t2"]},
        "duplicate judgements, each counted once: 1 (first: q1 p1)",
    ),
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropped_rows_are_reported_with_the_first_examples(tmp_path, ingested, name):
    changed, line = DROPPED[name]
    folder = write(
        tmp_path / "set",
        changed.get("corpus", CORPUS),
        [*QUERIES, *changed.get("queries", ())],
        {"train": [*QRELS["train"], *changed.get("train", ())], "test": QRELS["test"]},
    )
    assert line in ingested(**beir(folder)).notices


DESCRIBED = [
    '{"_id": "p1", "text": "first", "doc": "d1", "year": 2020, "metadata": {"lang": "en", "year": 1999}}',
    '{"_id": "empty", "text": " ", "doc": "d1", "year": 1, "metadata": {"lang": "no one"}}',
    '{"_id": "p2", "text": "second", "doc": "d1", "year": null, "metadata": null}',
    '{"_id": "p3", "text": "third", "doc": "d2", "metadata": {"lang": "de"}, "day": "2024-05-01"}',
]
QRELS_OF_DESCRIBED = {"train": [HEADER, "q1\tp1\t1"], "test": [HEADER, "q2\tp3\t1"]}


def test_further_columns_are_fields_of_a_line_or_of_its_metadata_object(tmp_path, ingested):
    folder = write(tmp_path / "set", DESCRIBED, qrels=QRELS_OF_DESCRIBED)
    result = ingested(**beir(folder, "doc") | {"metadata": ["lang", "day", "year"]})
    assert result.metadata == [
        {"lang": "en", "day": None, "year": 2020},
        {"lang": None, "day": None, "year": None},
        {"lang": "de", "day": "2024-05-01", "year": None},
    ]
    assert [row[0] for row in result.passages] == ["p1", "p2", "p3"]
    expected = {"metadata": "lang: text, day: date, year: integer", "without_lang": 1, "without_day": 2}
    assert result.counts.items() >= expected.items()


def test_rows_stay_aligned_if_passages_are_dropped(tmp_path, ingested, monkeypatch):
    monkeypatch.setattr("pipeline.data.metadata.ROWS", 7)
    corpus = [
        f'{{"_id": "p{i}", "text": "{"text" if i % 3 else ""}", "number": {i}, "name": "p{i}"}}' for i in range(100)
    ]
    result = ingested(**beir(write(tmp_path / "set", corpus, qrels={})) | {"metadata": ["name", "number"]})
    assert result.counts["empty_passages"] == 34
    assert [row["name"] for row in result.metadata] == [row[0] for row in result.passages]
    assert [row["number"] for row in result.metadata] == [i for i in range(100) if i % 3]


def test_further_columns_leave_the_other_files_unchanged(tmp_path, ingested):
    folder = write(tmp_path / "set", DESCRIBED, qrels=QRELS_OF_DESCRIBED)
    plain, kept = ingested(**beir(folder)), ingested(**beir(folder) | {"metadata": ["lang"]})
    first, second = _digests(plain.folder), _digests(kept.folder)
    assert set(second) - set(first) == {"metadata.parquet"}
    assert {name for name in first if first[name] != second[name]} == {"ingest.json"}
    assert plain.counts.items() <= kept.counts.items()


def test_absent_and_nested_further_columns_are_refused(tmp_path, ingested):
    folder = write(tmp_path / "set", DESCRIBED, qrels=QRELS_OF_DESCRIBED)
    columns = "_id, day, doc, lang, metadata, text, year"
    with pytest.raises(InputError, match=rf"ingest.metadata: no column 'language' among {columns}$"):
        ingested(**beir(folder) | {"metadata": ["language"]})
    with pytest.raises(InputError, match=r"corpus.jsonl:1: ingest.metadata: 'metadata' is neither .* but a dict$"):
        ingested(**beir(folder) | {"metadata": ["metadata"]})


BAD: dict[str, tuple[dict, str]] = {
    "duplicate passage id": (
        {"corpus": [*CORPUS, CORPUS[0]]},
        r"corpus.jsonl:4: passage id 'p1' is already at .*corpus.jsonl:1$",
    ),
    "duplicate query id": (
        {"queries": [*QUERIES, QUERIES[1]]},
        r"queries.jsonl:4: query id 'q2' is already at .*queries.jsonl:2$",
    ),
    "scattered document": (
        {"corpus": [*CORPUS, '{"_id": "p4", "text": "late", "doc": "d1"}']},
        r"corpus.jsonl:4: document .* 'd1' is already at .*corpus.jsonl:1$",
    ),
    "no document key": ({"corpus": [*CORPUS, '{"_id": "p4", "text": "late"}']}, r"corpus.jsonl:4: .*'doc'"),
    "query in two splits": (
        {"qrels": {**QRELS, "dev": [HEADER, "q1\tp1\t1"]}},
        r"dev.tsv:2: query 'q1' is already judged in train",
    ),
    "two grades": (
        {"qrels": {"train": [*QRELS["train"], "q1\tp2\t1"], "test": QRELS["test"]}},
        r"train.tsv:4: passage 'p2' of query 'q1' has relevance 1 here and 0 before",
    ),
    "columns": (
        {"qrels": {"train": [HEADER, "q1\tp1"], "test": QRELS["test"]}},
        r"train.tsv:2: 3 columns expected, 2 found",
    ),
    "no integer": ({"qrels": {"train": [HEADER, "q1\tp1\t1.5"]}}, r"train.tsv:2: relevance '1.5' is not an integer"),
    "invalid JSON": ({"corpus": [CORPUS[0], '{"_id": "p2", ']}, r"corpus.jsonl:2: invalid JSON"),
    "an open string": ({"corpus": [CORPUS[0], '{"_id": "p2']}, r"invalid JSON: Unterminated string at character 9"),
    "no object": ({"corpus": [CORPUS[0], '["p2"]']}, r"corpus.jsonl:2: a JSON object expected, list found"),
    "no text": ({"corpus": [CORPUS[0], '{"_id": "p2", "doc": "d2"}']}, r"corpus.jsonl:2: no text in field 'text'"),
    "text of another type": (
        {"corpus": [CORPUS[0], '{"_id": "p2", "text": ["a"], "doc": "d2"}']},
        r"corpus.jsonl:2: field 'text' is not text",
    ),
    "white space in an id": (
        {"corpus": [CORPUS[0], '{"_id": "p 2", "text": "t", "doc": "d"}']},
        r"corpus.jsonl:2: passage id 'p 2'",
    ),
    "line ends in an id": (
        {"corpus": [CORPUS[0], '{"_id": "p\\n2\\u2028", "text": "t", "doc": "d"}']},
        r"corpus.jsonl:2: passage id 'p\\n2\\u2028' is empty or holds white space",
    ),
    "digits without end": (
        {"corpus": [CORPUS[0], f'{{"_id": {5000 * "9"}, "text": "t", "doc": "d"}}']},
        r"corpus.jsonl:2: invalid JSON: a number with too many digits",
    ),
    "half a surrogate pair": (
        {"corpus": [CORPUS[0], '{"_id": "p2", "text": "\\ud800", "doc": "d"}']},
        r"corpus.jsonl:2: passage 'p2' holds half",
    ),
    "answers of another type": (
        {"queries": ['{"_id": "q1", "text": "t", "answers": "a"}']},
        r"queries.jsonl:1: field 'answers' is not a list",
    ),
    "empty file": ({"corpus": []}, r"corpus.jsonl: empty file"),
    "only empty passages": ({"corpus": ['{"_id": "p1", "text": "", "doc": "d"}']}, r"holds no passage with text"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_content_is_refused_by_file_and_line(tmp_path, ingested, name):
    changed, message = BAD[name]
    with pytest.raises(InputError, match=message) as caught:
        ingested(**beir(write(tmp_path / "set", **changed), "doc"))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_reported(tmp_path, ingested):
    folder = write(tmp_path / "set")
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(InputError, match=r"corpus.jsonl: no such file"):
        ingested(**beir(folder))


def test_invalid_utf8_is_reported_with_its_line(tmp_path, ingested):
    folder = write(tmp_path / "set")
    (folder / "corpus.jsonl").write_bytes(CORPUS[0].encode() + b'\n{"_id": "p2", "text": "\xff"}\n')
    with pytest.raises(InputError, match=r"corpus.jsonl:2: invalid UTF-8 at byte 24 of the line"):
        ingested(**beir(folder))


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", _zst)])
@pytest.mark.parametrize("damage", ["cut short", "no archive"])
def test_an_unreadable_archive_is_reported(tmp_path, ingested, ending, pack, damage):
    folder = write(tmp_path / "set")
    path = folder / "corpus.jsonl"
    data = pack(path.read_bytes())
    path.with_name(path.name + ending).write_bytes(data[:-9] if damage == "cut short" else b"no archive at all")
    path.unlink()
    with pytest.raises(InputError, match=rf"corpus.jsonl{ending}: unreadable archive: \S+"):
        ingested(**beir(folder))


def test_row_groups_are_written_as_soon_as_they_are_full(tmp_path):
    """At most two row groups are in memory at once, whatever their number."""
    sizes = []

    def rows():
        for i in range(3 * collection.ROWS + 1):
            if i % collection.ROWS == 0:
                sizes.append(file_size(tmp_path / "p.parquet"))
            yield f"p{i}", f"p{i}", "", "text " * 100

    def file_size(path: Path) -> int:
        return path.stat().st_size if path.exists() else 0

    assert collection.write_table(tmp_path / "p.parquet", collection.schemas()["passages"], rows()) == 24577
    assert sizes[0] < sizes[1] < sizes[2] < sizes[3]
    groups = pq.read_metadata(tmp_path / "p.parquet")
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [8192, 8192, 8192, 1]


def test_a_row_with_more_values_than_columns_is_refused(tmp_path):
    rows = [collection.Passage("p", "d", "title", "text", {"source": "a"})]
    with pytest.raises(ValueError, match="shorter than argument"):
        collection.write_table(tmp_path / "p.parquet", collection.schemas()["passages"], rows)
