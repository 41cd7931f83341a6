"""The benchmarks' data are built once, also if several processes need them at the same time."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import data
from pipeline.runtime.work import Work


@pytest.fixture
def built(monkeypatch, tmp_path):
    """Returns the names of the stages that are built, in stages that only write a file."""
    names: list[str] = []

    def slow(*arguments: object) -> None:
        work = arguments[-1]
        assert isinstance(work, Work)
        names.append(work.out.name.partition(".")[0])
        time.sleep(0.2)
        (work.out / "file").write_text("whole")

    for name in ("ingest", "tokenizer", "tokens"):
        monkeypatch.setattr(data, name, slow)
    monkeypatch.setattr(data.Tokens, "open", lambda folder: (Path(folder) / "file").read_text())
    monkeypatch.setattr(data, "FOLDER", tmp_path / ".benchmarks")
    return names


def test_two_at_once_build_the_data_once(built):
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(data.pydocs) for _ in range(2)]
    assert [run.result() for run in runs] == ["whole", "whole"]
    assert built == ["collection", "tokenizer", "tokens"]


def test_what_a_killed_process_left_is_removed(built):
    left = data.FOLDER / "collection.part" / "passages-9.parquet"
    left.parent.mkdir(parents=True)
    left.touch()
    data.pydocs()
    assert [path.name for path in (data.FOLDER / "collection").iterdir()] == ["file"]
