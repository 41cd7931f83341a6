"""The code of docs/databases.md gives the first ten results of `cocondenser search --by dense`."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from encoders import ENCODER
from exported import DOCUMENTS, Kind, encoder_of, make_run, make_store
from typer.testing import CliRunner

from flows.cli.main import app
from pipeline.data.collection import Passage
from pipeline.data.metadata import keep_metadata

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[3] / "docs/databases.md").read_text()
HEADING = r"^## (\w+).*?^```python\n(.*?)^```"
START, CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], dict(re.findall(HEADING, PAGE, re.M | re.DOTALL))
QUESTION = re.findall(r'encode_query\("(.*?)"\)', START)[0]
PACKAGES = {
    "DuckDB": ["duckdb"],
    "LanceDB": ["lancedb"],
    "Qdrant": ["qdrant_client"],
    "Milvus": ["pymilvus", "milvus_lite"],
    "pgvector": ["psycopg", "pgserver"],
}
KINDS = {
    "tied": Kind(),
    "untied": Kind(architecture="roberta", tied=False, projection=5),
    "normalised": Kind(
        pooling="mean", normalise=True, projection=6, encoder=ENCODER.model_copy(update={"question_prefix": "query:"})
    ),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Callable[[str], tuple[Path, list[str]]]:
    """exported(kind): the folder with the export `my-model`, and the passages that `search` finds."""

    @cache
    def exported(name: str) -> tuple[Path, list[str]]:
        folder, kind = tmp_path_factory.mktemp(name), KINDS[name]
        nodes = make_run(folder / "run", kind)
        _describe(nodes["ingest"])
        store = make_store(nodes, folder / "store", encoder_of(kind))
        float16 = ["--float16"] if name == "tied" else []
        call("export", str(folder / "my-model"), "--only", "model", "--only", "vectors", *float16, store=store.root)
        answers = call("search", QUESTION, "--by", "dense", "-k", "10", store=store.root)
        return folder, [answer["passage_id"] for answer in answers["answers"]]

    return exported


def _describe(collection: Path) -> None:
    """Adds metadata of each type, some of them null."""
    rows = [
        {"source": "a", "year": n, "score": n / 4, "good": n < 9, "day": "2024-02-03"} for n in range(2 * DOCUMENTS)
    ]
    rows[5] = {}
    placed = [("a row", Passage(f"p{n}", "", "", "", row)) for n, row in enumerate(rows)]
    assert len([*keep_metadata(placed, [*rows[0]], collection, {})]) == len(rows)


def call(*arguments: str, store: Path) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json", "--store", str(store)])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_database_of_the_page_is_tested_or_named_as_untested() -> None:
    assert {*CODE} == {*PACKAGES, "Elasticsearch"}
    compile(START + CODE["Elasticsearch"], "Elasticsearch", "exec")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("database", PACKAGES)
def test_a_database_finds_what_search_finds(exported, database, kind, tmp_path, monkeypatch) -> None:
    for package in PACKAGES[database]:
        pytest.importorskip(package)
    folder, expected = exported(kind)
    (tmp_path / "my-model").symlink_to(folder / "my-model")
    monkeypatch.chdir(tmp_path)
    code, known = START + CODE[database], dict[str, Any]()
    if database == "pgvector":
        with postgres(tmp_path / "postgres") as address:
            exec(code.replace("postgresql://localhost/postgres", address), known)
    else:
        exec(code, known)
    assert len(expected) == 10
    assert known["ids"] == expected


def postgres(folder: Path) -> Any:
    """A real server with pgvector, as a context manager that yields its address."""
    from contextlib import contextmanager

    import pgserver

    @contextmanager
    def server() -> Any:
        running = pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield running.get_uri()
        finally:
            running.cleanup()

    return server()


def test_the_table_has_the_metadata_with_their_types(exported) -> None:
    folder, _ = exported("untied")
    with pq.ParquetFile(folder / "my-model/vectors/passages.parquet") as file:
        types = {column.name: str(column.type) for column in file.schema_arrow}
        row = file.read().slice(3, 1).to_pylist()[0]
    vector = types.pop("vector")
    assert vector.startswith("fixed_size_list<")
    assert vector.endswith(" float>[5]")
    texts = dict.fromkeys(("id", "document", "title", "text", "source"), "string")
    assert types == texts | {"year": "int64", "score": "double", "good": "bool", "day": "date32[day]"}
    assert (row["id"], row["document"], row["year"], row["score"], str(row["day"])) == (
        "p1b",
        "d1",
        3,
        0.75,
        "2024-02-03",
    )
