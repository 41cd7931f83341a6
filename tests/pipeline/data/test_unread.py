"""Files in a source's folder that no table reads are reported."""

import pytest
from writing import put

from pipeline.data.readers import beir, huggingface
from pipeline.data.readers.unread import unread

NO_DATA = ("README.md", ".gitattributes", ".h.csv", ".cache/huggingface/a.csv", "LICENSE", "dataset_infos.json")


def _table(folder, split="train"):
    return huggingface.Table(dataset=None, revision="main", folder=folder, name=None, split=split)


@pytest.mark.parametrize(
    ("files", "split", "expected"),
    [
        (["a.csv", "b.csv"], "train", []),
        (["a.csv", "b.csv", "c.jsonl", "d.CSV", "e.xlsx"], "train", ["c.jsonl", "d.CSV", "e.xlsx"]),
        (["train.csv", "other.csv", "test.csv"], "train", ["other.csv", "test.csv, split test"]),
        (["train.csv", "test.csv"], "all", []),
        (["train.csv", "test.csv"], "train+test", []),
    ],
)
def test_huggingface_reports_files_that_no_table_reads(tmp_path, files, split, expected):
    for name in (*files, *NO_DATA):
        put(tmp_path / "p", name, *(["id,text", "1,x"] if name.lower().endswith(".csv") else ["{}"]))
    queries = put(tmp_path, "q/train.csv", "id,text", "1,x").parent
    config = huggingface.HuggingFaceConfig.model_construct(
        passages=_table(tmp_path / "p", split), queries=_table(queries)
    )
    names = [name.replace(",", " (passages,") if "," in name else f"{name} (passages" for name in expected]
    assert huggingface._unread(config) == [f"{name})" for name in names]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["queries.jsonl", "qrels/test.tsv", "qrels/dev.tsv.gz"], []),
        (["queries.jsonl", "qrels/test.tsv", "qrels/Dev.tsv"], ["qrels/Dev.tsv"]),
        (["queries.jsonl", "qrels/test.tsv", "qrels/test.csv"], ["qrels/test.csv"]),
        (["queries.jsonl", "qrels/test.tsv", "qrels/test.tsv.gz"], ["qrels/test.tsv.gz"]),
        (["corpus.jsonl.gz", "vectors/a.npy"], ["corpus.jsonl.gz"]),
        (["queries.jsonl"], ["queries.jsonl"]),
    ],
)
def test_beir_reports_files_with_other_names(tmp_path, files, expected):
    for name in (
        "corpus.jsonl",
        *files,
        "README.md",
        ".DS_Store",
        "qrels/.DS_Store" if "qrels" in str(files) else "x/.y",
    ):
        put(tmp_path, name, "{}")
    config = beir.BeirConfig(reader="beir", folder=tmp_path, document_key="", metadata=[])
    source = beir.read(config, lambda *_: None)
    assert (source.counts["unnamed_files"], source.examples.get("unnamed_files", [])) == (len(expected), expected)


def test_a_link_to_a_file_that_is_read_counts_as_read(tmp_path):
    path = put(tmp_path, "data/a.csv", "x")
    folder = tmp_path / "linked"
    folder.symlink_to(path.parent)
    assert unread(folder, [path]) == {}
    assert [*unread(folder, [])] == ["a.csv"]
