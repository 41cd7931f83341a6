"""`cocondenser ablation join`, as it is called."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from artifacts.objects import seal
from flows.cli.main import app
from pipeline.ablation import files
from pipeline.ablation.config import AblationConfig, CellConfig
from pipeline.ablation.data import AblationData, Cell, RunResults
from pipeline.errors import InputError
from pipeline.evaluate.bootstrap import summary
from pipeline.evaluate.measures import HITS, MEASURES


def run(seed: int) -> RunResults:
    values_QM = np.random.default_rng(seed).random((9, len(MEASURES)))
    figures = summary({"run": values_QM}, MEASURES, [], 100, 0)["systems"]["run"]
    questions = pd.DataFrame(values_QM, columns=[*MEASURES]).assign(**dict.fromkeys(HITS, np.nan))
    questions.insert(0, "query_id", [f"q{n}" for n in range(len(questions))])
    return RunResults(figures, questions)


def part(folder: Path, row: str, drawn: int) -> Path:
    """The data alone of an ablation of one row."""
    folder.mkdir()
    words, systems = ["cocondenser", "run", "tiny"], {"bm25": "stage1", "mined": "stage2"}
    one = CellConfig(row=row, size=None, seed=1, systems=systems, epochs=1, command=words, start=None)
    fields = {"title": "All", "reference": row, "measures": ["RR@10"], "test": "randomisation"}
    config = AblationConfig(**fields, samples=100, seed=1, cells=[one])
    cells = [Cell({("dev", "bm25"): run(drawn), ("dev", "mined"): run(10 + drawn)}, None, {})]
    files.write_data(AblationData(config, cells, "BM25", {"dev": run(0)}, 5, []), folder)
    return folder


@pytest.fixture
def parts(tmp_path: Path) -> list[str]:
    return [str(part(tmp_path / row, row, n)) for n, row in enumerate(("plain", "good"), 1)]


def test_the_tables_of_all_rows_are_printed(parts: list[str], tmp_path: Path) -> None:
    out = tmp_path / "both"
    shown = CliRunner().invoke(app, ["ablation", "join", *parts, "--out", str(out)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert [line.split()[0] for line in shown.output.splitlines() if "[." in line] == ["BM25", "plain", "good"]
    assert f"Page:   {out}/ablation.html" in shown.output
    tables = {"table.json", "table.csv", "table.md", "tests.json", "gains.json"}
    assert {path.name for path in out.iterdir()} == {*tables, "ablation.html", "pictures", *files.FILES}


def test_json_has_the_table_and_both_kinds_of_tests(parts: list[str], tmp_path: Path) -> None:
    arguments = ["ablation", "join", *parts, "--out", str(tmp_path / "both"), "--reference", "good", "--json"]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert found["out"] == str(tmp_path / "both")
    assert {f["row"] for f in found["table"]} == {"BM25", "plain", "good"}
    assert {(t["row"], t["reference"]) for t in found["tests"]} == {("plain", "good")}
    assert {(g["row"], g["reference_negatives"]) for g in found["gains"]} == {("plain", "bm25"), ("good", "bm25")}


def test_figures_are_kept_in_one_file_and_joined_from_it(parts: list[str], tmp_path: Path) -> None:
    kept, tables = tmp_path / "kept.parquet", []
    for given, out in ((parts, "both"), ([str(kept)], "again")):
        arguments = ["ablation", "join", *given, "--out", str(tmp_path / out), "--keep", str(kept)]
        shown = CliRunner().invoke(app, arguments)
        assert shown.exit_code == 0, shown.output
        tables.append((tmp_path / out / "table.json").read_bytes())
    assert tables[0] == tables[1]


@pytest.mark.parametrize("name", files.FILES)
def test_what_a_manifest_contradicts_is_refused(parts: list[str], tmp_path: Path, name: str) -> None:
    """A figure within the bounds of all other checks, for one."""
    arguments = ["ablation", "join", *parts, "--out", str(tmp_path / "both")]
    seal(Path(parts[1]))
    path = Path(parts[1], name)
    path.write_bytes(path.read_bytes() + b" ")
    ended = CliRunner().invoke(app, arguments)
    assert isinstance(ended.exception, InputError)
    assert str(ended.exception).startswith(f"{path}: changed since it was written; copy it again, or `cocondenser")
    assert not (tmp_path / "both").exists()


def test_a_file_is_no_folder_of_a_part(parts: list[str], tmp_path: Path) -> None:
    path = Path(parts[0], "cells.json")
    ended = CliRunner().invoke(app, ["ablation", "join", str(path), str(path), "--out", str(tmp_path / "both")])
    assert isinstance(ended.exception, InputError)
    assert str(ended.exception).startswith(f"{path}: a file, not a folder")


def test_what_does_not_go_together_is_reported(parts: list[str], tmp_path: Path) -> None:
    arguments = ["ablation", "join", parts[0], parts[0], "--out", str(tmp_path / "both")]
    ended = CliRunner().invoke(app, arguments)
    assert isinstance(ended.exception, InputError)
    assert str(ended.exception) == f"{parts[0]} and {parts[0]}: plain, all questions, seed 1 is in both"
    assert not (tmp_path / "both").exists()
