"""Reader of the catalogue ir_datasets, on generated data."""

from typing import NamedTuple

import pytest
from pydantic import TypeAdapter

from pipeline.data.ingest import IngestConfig, missing
from pipeline.data.readers import irdatasets
from pipeline.errors import InputError

CONFIG = TypeAdapter(IngestConfig)


class Paper(NamedTuple):
    """A document without a field called text."""

    doc_id: str
    title: str
    abstract: str

    def default_text(self) -> str:
        return f"{self.title} {self.abstract}"


class Clip(NamedTuple):
    """A document whose text is available only from its own default_text."""

    doc_id: str
    subtitles: str

    def default_text(self) -> str:
        return self.subtitles


@pytest.fixture
def catalogue(tmp_path, monkeypatch):
    """`house` and `house/clips`, registered in the way users register their own datasets."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    ir_datasets = pytest.importorskip("ir_datasets")
    from ir_datasets.formats import (
        BaseDocPairs,
        BaseDocs,
        BaseQrels,
        BaseQueries,
        GenericDocPair,
        GenericQuery,
        TrecQrel,
    )

    class Docs(BaseDocs):
        def __init__(self, rows):
            self.rows = rows

        def docs_iter(self):
            return iter(self.rows)

        def docs_cls(self):
            return type(self.rows[0])

    class Queries(BaseQueries):
        def queries_iter(self):
            return iter([GenericQuery("q1", "first?"), GenericQuery("q2", "not judged")])

        def queries_cls(self):
            return GenericQuery

    class Qrels(BaseQrels):
        def qrels_iter(self):
            return iter([TrecQrel("q1", "a", 2, "0"), TrecQrel("q1", "b", 0, "0")])

        def qrels_cls(self):
            return TrecQrel

        def qrels_defs(self):
            return {}

    class Pairs(BaseDocPairs):
        def docpairs_iter(self):
            return iter([GenericDocPair("q1", "a", "b"), GenericDocPair("q1", "a", "b")])

        def docpairs_cls(self):
            return GenericDocPair

    papers = [Paper("a", "Title", "an abstract"), Paper("b", "Other", "another")]
    whole = ir_datasets.Dataset(Docs(papers), Queries(), Qrels(), Pairs())
    datasets = {"house": whole, "house/clips": ir_datasets.Dataset(Docs([Clip("c", "words heard")]))}
    for name, dataset in datasets.items():
        ir_datasets.registry.register(name, dataset)
    yield datasets
    for name in datasets:
        ir_datasets.registry._registered.pop(name)


def house(**changed) -> dict:
    fields = {"reader": "ir_datasets", "collection": "house", "train": None, "dev": None, "test": "house"}
    return fields | {"negatives": "house", "negatives_per_query": 5, "metadata": []} | changed


def test_ir_datasets(catalogue, ingested):
    result = ingested(**house())
    assert result.passages == [("a", "a", "Title", "an abstract"), ("b", "b", "Other", "another")]
    assert result.queries == [("q1", "test", "first?", [])]
    assert result.qrels == {"q1": {"a": 2, "b": 0}}
    assert result.negatives == {"q1": ["b"]}
    assert result.counts["unjudged_queries"] == 1
    clips = ingested(**house(collection="house/clips", test=None, negatives=None))
    assert clips.passages == [("c", "c", "", "words heard")]


def test_ir_datasets_fields(catalogue, ingested):
    result = ingested(**house(metadata=["abstract"]))
    assert result.metadata == [{"abstract": "an abstract"}, {"abstract": "another"}]
    with pytest.raises(InputError, match=r"house: docs 1: ingest.metadata: no column 'url' among abstract, doc_id, "):
        ingested(**house(metadata=["url"]))


def test_ir_datasets_unknown_id_and_absent_part(catalogue, ingested):
    with pytest.raises(InputError, match="ir_datasets has no dataset 'hose'"):
        ingested(**house(collection="hose"))
    with pytest.raises(InputError, match="ir_datasets house/clips has no qrels"):
        ingested(**house(test="house/clips", negatives=None))


def test_ir_datasets_missing_only_without_copy_and_host(tmp_path, monkeypatch):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    monkeypatch.setattr(irdatasets, "answers", lambda address, seconds: False)
    config = CONFIG.validate_python(house(collection="antique", test="beir/scifact/test", negatives=None))
    first, second = missing(config)
    assert "ir_datasets antique is not on this machine and ciir.cs.umass.edu does not answer" in first
    assert "ir_datasets beir" in second
    (tmp_path / "antique").mkdir()
    assert missing(config) == [second]
    monkeypatch.setattr(irdatasets, "answers", lambda address, seconds: True)
    assert missing(config) == []
    monkeypatch.setattr(irdatasets, "answers", lambda address, seconds: False)
    assert missing(CONFIG.validate_python(house())) == []
