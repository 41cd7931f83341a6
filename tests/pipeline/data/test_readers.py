"""Readers of MS MARCO and DPR, and of plain files."""

import json
from math import ceil

import pytest
from pydantic import TypeAdapter, ValidationError
from writing import put

from pipeline.data.ingest import IngestConfig, missing, sources
from pipeline.data.readers.cut import MOST, cut_text
from pipeline.data.text import text_files
from pipeline.data.text.words import pieces
from pipeline.errors import InputError

CONFIG = TypeAdapter(IngestConfig)


@pytest.fixture
def marco(tmp_path) -> dict:
    return {
        "reader": "msmarco",
        "collection": put(tmp_path, "collection.tsv", "0\tzero text", "1\tone text", "2\ttwo text"),
        "layout": "passages",
        "metadata": [],
        "titles": None,
        "train_queries": put(tmp_path, "queries.train.tsv", "10\twhat is zero", "11\tnever judged", "12\tone? "),
        "train_qrels": put(tmp_path, "qrels.train.tsv", "10\t0\t0\t1", "12\t0\t1\t1"),
        "dev_queries": None,
        "dev_qrels": None,
        "test_queries": put(tmp_path, "test-queries.tsv", "20\ta test"),
        "test_qrels": put(tmp_path, "qrels-pass.txt", "20 Q0 2 3", "20 Q0 1 0"),
        "negatives": None,
        "negatives_per_query": 2,
    }


def test_msmarco(marco, ingested):
    result = ingested(**marco)
    assert result.passages == [("0", "0", "", "zero text"), ("1", "1", "", "one text"), ("2", "2", "", "two text")]
    assert result.queries == [
        ("10", "train", "what is zero", []),
        ("12", "train", "one?", []),
        ("20", "test", "a test", []),
    ]
    assert result.qrels == {"10": {"0": 1}, "12": {"1": 1}, "20": {"2": 3, "1": 0}}
    assert result.counts["unjudged_queries"] == 1


def test_msmarco_documents(marco, tmp_path, ingested):
    collection = put(tmp_path, "docs.tsv", "0\thttp://a\tTitle\tbody", "1\thttp://b\t\tother", "2\tu\tThree\tt")
    result = ingested(**marco | {"collection": collection, "layout": "documents"})
    assert result.passages == [("0", "0", "Title", "body"), ("1", "1", "", "other"), ("2", "2", "Three", "t")]
    with pytest.raises(InputError, match=r"collection.tsv:1: 4 columns expected, 2 found"):
        ingested(**marco | {"layout": "documents"})


def test_msmarco_urls_of_documents(marco, tmp_path, ingested):
    collection = put(tmp_path, "docs.tsv", "0\thttp://a\tTitle\tbody", "1\thttp://b\t\t ", "2\tu\tThree\tt")
    documents = marco | {"collection": collection, "layout": "documents", "metadata": ["url"], "train_queries": None}
    result = ingested(**documents | {"train_qrels": None, "test_qrels": put(tmp_path, "qrels.txt", "20 Q0 2 3")})
    assert result.metadata == [{"url": "http://a"}, {"url": "u"}]
    with pytest.raises(ValidationError, match="the layout passages has no further columns"):
        CONFIG.validate_python(marco | {"metadata": ["url"]})
    with pytest.raises(ValidationError, match=r"metadata\.0\n.*'url'"):
        CONFIG.validate_python(documents | {"metadata": ["link"]})


def test_msmarco_titles_in_the_collections_order(marco, tmp_path, ingested):
    result = ingested(**marco | {"titles": put(tmp_path, "para.title.txt", "0\tZero", "2\tTwo ")})
    assert [row[2] for row in result.passages] == ["Zero", "", "Two"]
    with pytest.raises(InputError, match=r"titles.tsv:2: passage '0' is unknown or not in the collection's order"):
        ingested(**marco | {"titles": put(tmp_path, "titles.tsv", "2\tTwo", "0\tZero")})


def test_msmarco_triples_give_the_first_distinct_negatives(marco, tmp_path, ingested):
    lines = ["10\t0\t1", "10\t0\t1", "10\t0\t2", "10\t0\t0", "12\t1\t2"]
    result = ingested(**marco | {"negatives": put(tmp_path, "triples.tsv", *lines, end="\r\n")})
    assert result.negatives == {"10": ["1", "2"], "12": ["2"]}
    assert result.counts["negatives"] == 3
    with pytest.raises(InputError, match=r"bad.tsv:2: unknown passage id '9' \(1 of 2 negatives"):
        ingested(**marco | {"negatives": put(tmp_path, "bad.tsv", "10\t0\t1", "10\t0\t9")})


@pytest.mark.parametrize(
    ("field", "lines", "message"),
    [
        ("collection", ["0\tfine", "1 no tab"], r"collection:2: 2 columns expected, 1 found"),
        ("collection", ["0\tfine", "0\tagain"], r"collection:2: passage id '0' is already at .*collection:1"),
        ("train_queries", ["10\ta", "10\tb"], r"train_queries:2: query id '10' is already at .*train_queries:1"),
        ("train_qrels", ["10\t0\t0"], r"train_qrels:1: 4 columns expected, 3 found"),
        ("train_qrels", ["10\t0\t0\tyes"], r"train_qrels:1: relevance 'yes' is not an integer"),
        ("train_qrels", ["10\t0\t0\t" + 30 * "9"], r"train_qrels:1: relevance '9{30}' is above 10,000"),
        ("train_qrels", ["10\t0\t0\t" + 5000 * "9"], r"train_qrels:1: relevance '9{59}…' is above 10,000$"),
        ("train_qrels", ["10\t0\t0\t0.5"], r"train_qrels:1: relevance '0\.5' is not an integer"),
        ("train_qrels", [""], r"train_qrels: no judgement"),
        ("train_qrels", ["10 0 a\0b 1"], r"train_qrels:1: passage id 'a\\x00b' holds a NUL"),
        ("collection", ["0\tfine", "1\0\tnul"], r"collection:2: passage id '1\\x00' holds a NUL"),
        ("train_qrels", ["99\t0\t0\t1"], r"train_qrels:1: unknown query id '99'"),
    ],
)
def test_msmarco_bad_files_are_refused(marco, tmp_path, ingested, field, lines, message):
    with pytest.raises(InputError, match=message):
        ingested(**marco | {field: put(tmp_path, field, *lines)})


def test_msmarco_queries_without_qrels_are_refused(marco, ingested):
    with pytest.raises(InputError, match=r"ingest.train_queries and ingest.train_qrels: set both or neither"):
        ingested(**marco | {"train_qrels": None})


def test_missing_files_are_reported_with_a_download_command(marco, tmp_path):
    absent = {name: tmp_path / "gone" / f"{name}.tsv" for name in ("collection", "qrels.dev.small")}
    config = CONFIG.validate_python(
        marco | {"collection": absent["collection"], "dev_qrels": absent["qrels.dev.small"]}
    )
    first, second = missing(config)
    gone = tmp_path / "gone"
    assert first.startswith(f"{absent['collection']} does not exist: wget -P {gone} https://msmarco.")
    assert first.endswith(f"collection.tar.gz && tar xzf {gone}/collection.tar.gz -C {gone}")
    assert "qrels.dev.small.tsv does not exist: wget" in second
    assert missing(CONFIG.validate_python(marco)) == []
    assert sources(CONFIG.validate_python(marco)) == {}


def test_an_archive_of_several_files_is_downloaded_once(marco, tmp_path):
    absent = {
        name: tmp_path / "gone" / file
        for name, file in {"dev_queries": "queries.dev.small.tsv", "dev_qrels": "qrels.dev.small.tsv"}.items()
    }
    first, second = missing(CONFIG.validate_python(marco | absent))
    assert "collectionandqueries.tar.gz" in first
    assert second == f"{absent['dev_qrels']} does not exist: comes with {absent['dev_queries']}"


def test_a_folder_that_is_not_a_beir_dataset_has_no_download_command(tmp_path):
    beir = {"reader": "beir", "folder": tmp_path / "my-notes", "document_key": "", "metadata": []}
    assert missing(CONFIG.validate_python(beir)) == [f"ingest.folder: {tmp_path / 'my-notes'} is not a folder"]


def test_missing_beir_folder(tmp_path):
    beir = {"reader": "beir", "folder": tmp_path / "scifact", "document_key": "", "metadata": []}
    assert "BEIR/datasets/scifact.zip && unzip" in missing(CONFIG.validate_python(beir))[0]
    (tmp_path / "scifact" / "qrels").mkdir(parents=True)
    lines = missing(CONFIG.validate_python(beir))
    assert [line.split(" does not")[0].rsplit("/")[-1] for line in lines] == ["corpus.jsonl", "queries.jsonl"]
    put(tmp_path, "scifact/corpus.jsonl.gz")
    put(tmp_path, "scifact/queries.jsonl")
    assert missing(CONFIG.validate_python(beir)) == []


CONTEXTS = {
    "question": "who is zero",
    "answers": ["Zero", "nought"],
    "positive_ctxs": [{"passage_id": "3", "text": "x"}, {"psg_id": "1"}],
    "negative_ctxs": [{"passage_id": "2"}],
    "hard_negative_ctxs": [{"passage_id": "2"}, {"passage_id": "2"}, {"passage_id": "4"}],
}


@pytest.fixture
def dpr(tmp_path) -> dict:
    rows = ['1\t"text ""quoted"" here"\tA', "2\tmore of a\tA", "3\tb's text\tB", "4\ta again\tA"]
    records = [CONTEXTS, {"question": "no contexts", "answers": []}]
    return {
        "reader": "dpr",
        "passages": put(tmp_path, "psgs_w100.tsv", "id\ttext\ttitle", *rows),
        "train": put(tmp_path, "biencoder-nq-train.json", json.dumps(records, indent=4)),
        "dev": None,
        "test": put(tmp_path, "nq-test.qa.csv", "who?\t['I', \"it's\"]"),
    }


def test_dpr(dpr, ingested):
    result = ingested(**dpr)
    assert result.passages == [
        ("1", "1", "A", 'text "quoted" here'),
        ("2", "1", "A", "more of a"),
        ("3", "3", "B", "b's text"),
        ("4", "4", "A", "a again"),
    ]
    assert result.queries == [
        ("train-0", "train", "who is zero", ["Zero", "nought"]),
        ("train-1", "train", "no contexts", []),
        ("test-0", "test", "who?", ["I", "it's"]),
    ]
    assert result.qrels == {"train-0": {"3": 1, "1": 1}}
    assert list(result.qrels["train-0"]) == ["3", "1"]
    assert result.negatives == {"train-0": ["2", "4"]}


@pytest.mark.parametrize(("answers", "without"), [("[]", 1), ("['', ' ']", 1), ("['', 'x']", 0)])
def test_dpr_questions_without_an_answer_are_reported(dpr, tmp_path, ingested, answers, without):
    result = ingested(**dpr | {"test": put(tmp_path, "w.csv", f"how\t{answers}", "why\t['x']"), "dev": None})
    assert result.counts["unanswered_queries"] == without
    line = "dev and test questions without an answer, not counted in hits: 1 (first: test-0)"
    assert (line in result.notices) is bool(without)


@pytest.mark.parametrize("text", ['"Once upon a time', 'a time"', '"To be or not to be."', '"a" or "b"', "NA", "007"])
def test_dpr_texts_are_split_only_at_tabs(dpr, tmp_path, ingested, text):
    passages = put(tmp_path, "p.tsv", "id\ttext\ttitle", f"1\t{text}\tThe mill", f"2\t{text}\t{text}")
    result = ingested(**dpr | {"passages": passages, "train": None, "test": None})
    assert [row[2:] for row in result.passages] == [("The mill", text), (text, text)]


@pytest.mark.parametrize(
    ("field", "name", "lines", "message"),
    [
        ("passages", "p.tsv", ["id\ttext\ttitle", "1\ta"], r"p.tsv:2: 3 columns expected, 2 found"),
        ("passages", "p.tsv", ["id\ttext\ttitle", '1\t"a', 'b"\tc'], r"p.tsv:2: 3 columns expected, 2 found"),
        ("test", "q.csv", ["who?\tnot a list"], r"q.csv:1: the answers are not a list"),
        ("test", "q.csv", ["who?\t{[]: 1}"], r"q.csv:1: the answers are not a list"),
        ("test", "q.csv", ["who?\t" + 200000 * "-" + "1"], r"q.csv:1: the answers are not a list"),
        ("test", "q.csv", ["who?"], r"q.csv:1: 2 columns expected, 1 found"),
        ("train", "q.json", ["[", '{"question": "q"},', '{"question" 1}]'], r"q.json:3: invalid JSON: Expecting ':'"),
        ("train", "q.json", ['{"question": "q"}'], r"q.json:1: invalid JSON: \[ expected"),
        ("train", "q.json", ["[", '{"question": "q"}'], r"q.json:3: invalid JSON: the file ends"),
        ("train", "q.json", ["[", '{"answers": []}]'], r"q.json:2: no text in field 'question'"),
        ("train", "q.json", ["[", '{"question": ' + 200000 * "["], r"q.json:2: invalid JSON: nested too deeply"),
        (
            "train",
            "q.json",
            ["[", '{"question": ' + 5000 * "9" + "}]"],
            r"q.json:2: invalid JSON: a number with too many digits",
        ),
        ("train", "q.json", ['[{"question": "q", "answers": "a"}]'], r"q.json:1: field 'answers'"),
        ("train", "q.json", ['[{"question": "q", "positive_ctxs": ["1"]}]'], r"q.json:1: field 'positive_ctxs'"),
    ],
)
def test_dpr_bad_files_are_refused(dpr, tmp_path, ingested, field, name, lines, message):
    with pytest.raises(InputError, match=message):
        ingested(**dpr | {field: put(tmp_path, name, *lines)})


def test_json_list_is_read_in_pieces(tmp_path, monkeypatch):
    records = [{"text": f'ünï {i} [{{]}}\n"', "list": [i, {"a": None}], "true": True} for i in range(50)]
    for indent in (None, 4):
        path = put(tmp_path, f"{indent}.json", json.dumps(records, indent=indent, ensure_ascii=False))
        for chunk in (1, 7, 1 << 20):
            monkeypatch.setattr(text_files, "CHUNK", chunk)
            assert [record for _, record in text_files.json_list(path)] == records
    lines = [int(place.rsplit(":")[-1]) for place, _ in text_files.json_list(tmp_path / "4.json")]
    text = (tmp_path / "4.json").read_text(encoding="utf-8").split("\n")
    assert lines == [number for number, line in enumerate(text, 1) if line == "    {"]
    assert list(text_files.json_list(put(tmp_path, "none.json", "[ ]"))) == []


def test_json_list_reports_the_line_of_invalid_utf8(tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(b'[\n{"a": 1},\n{"a": "\xff"}]')
    with pytest.raises(InputError, match=r"bad.json:3: invalid UTF-8"):
        list(text_files.json_list(path))


def test_lines_skip_blank_lines_and_the_byte_order_mark(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes("\ufefffirst\r\n\n \nsecond\u2028half".encode())
    assert list(text_files.lines(path)) == [(1, "first"), (4, "second\u2028half")]
    assert [number for number, _ in text_files.lines(path, blank=True)] == [1, 2, 3, 4]


def test_a_reader_accepts_only_its_own_fields(marco, tmp_path):
    with pytest.raises(ValidationError, match="Input tag 'warc'"):
        CONFIG.validate_python({"reader": "warc"})
    with pytest.raises(ValidationError, match="negatives_per_query"):
        CONFIG.validate_python(marco | {"negatives_per_query": 0})
    with pytest.raises(ValidationError, match="folder"):
        CONFIG.validate_python({"reader": "beir", "document_key": ""})


@pytest.mark.parametrize("words", [1, 7, 80])
@pytest.mark.parametrize("length", [1, 3, 79, 200, 1003])
def test_cut_loses_no_word_and_keeps_lengths_similar(words, length):
    text = " ".join(f"w{i}" + ("." if i % 9 == 0 else "") + ("\n\n" if i % 31 == 0 else "") for i in range(length))
    passages = cut_text(text, words)
    assert "".join("".join(passages).split()) == "".join(text.split())
    total = len(pieces(text))
    longest = max(1, int(MOST * words))
    assert len(passages) == max(1, round(total / words), ceil(total / longest))
    sizes = [len(pieces(passage)) for passage in passages]
    assert min(sizes) >= min(0.3 * total / len(passages), 1)
    assert max(sizes) <= longest


def test_cut_prefers_paragraph_to_sentence_to_line_to_word():
    words = [f"w{i}" for i in range(20)]
    assert cut_text(" ".join(words), 10) == [" ".join(words[:10]), " ".join(words[10:])]

    def broken(**ends: str) -> list[int]:
        text = "".join(word + ends.get(word, " ") for word in words)
        return [len(passage.split()) for passage in cut_text(text, 10)]

    assert broken(w10="\n") == [11, 9]
    assert broken(w10="\n", w8=". ") == [9, 11]
    assert broken(w10="\n\n", w8=". ") == [11, 9]
    assert broken(w3="\n\n") == [10, 10]
    assert cut_text(" \n", 10) == []
    assert cut_text(" a b \n c ", None) == ["a b \n c"]
