"""`cocondenser ablation join` on the command line."""

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
from pipeline.evaluate.measures import HITS, MEASURES
from pipeline.evaluate.significance.bootstrap import summary


def run(seed: int) -> RunResults:
    values_QM = np.random.default_rng(seed).random((9, len(MEASURES)))
    figures = summary({"run": values_QM}, MEASURES, [], 100, 0)["systems"]["run"]
    questions = pd.DataFrame(values_QM, columns=[*MEASURES]).assign(**dict.fromkeys(HITS, np.nan))
    questions.insert(0, "query_id", [f"q{n}" for n in range(len(questions))])
    return RunResults(figures, questions)


def part(folder: Path, row: str, seed: int) -> Path:
    """Writes only the data of an ablation of one row."""
    folder.mkdir()
    words, systems = ["cocondenser", "run", "tiny"], {"bm25": "stage1", "mined": "stage2"}
    one = CellConfig(row=row, size=None, seed=1, systems=systems, epochs=1, command=words, start=None)
    fields = {"title": "All", "reference": row, "measures": ["RR@10"], "test": "randomisation"}
    config = AblationConfig(**fields, samples=100, seed=1, cells=[one])
    cells = [Cell({("dev", "bm25"): run(seed), ("dev", "mined"): run(10 + seed)}, None, {})]
    files.write_data(AblationData(config, cells, "BM25", {"dev": run(0)}, 5, []), folder)
    return folder


@pytest.fixture
def parts(tmp_path: Path) -> list[str]:
    return [str(part(tmp_path / row, row, n)) for n, row in enumerate(("plain", "good"), 1)]


def test_the_tables_of_all_rows_are_printed(parts: list[str], tmp_path: Path) -> None:
    out = tmp_path / "both"
    result = CliRunner().invoke(app, ["ablation", "join", *parts, "--out", str(out)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines() if "[." in line] == ["BM25", "plain", "good"]
    assert f"Page:   {out}/ablation.html" in result.output
    tables = {"table.json", "table.csv", "table.md", "tests.json", "gains.json"}
    assert {path.name for path in out.iterdir()} == {*tables, "ablation.html", "pictures", *files.FILES}


def test_json_has_the_table_and_both_kinds_of_tests(parts: list[str], tmp_path: Path) -> None:
    arguments = ["ablation", "join", *parts, "--out", str(tmp_path / "both"), "--reference", "good", "--json"]
    output = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert output["out"] == str(tmp_path / "both")
    assert {f["row"] for f in output["table"]} == {"BM25", "plain", "good"}
    assert {(t["row"], t["reference"]) for t in output["tests"]} == {("plain", "good")}
    assert {(g["row"], g["reference_negatives"]) for g in output["gains"]} == {("plain", "bm25"), ("good", "bm25")}


def test_figures_are_kept_in_one_file_and_joined_from_it(parts: list[str], tmp_path: Path) -> None:
    kept, tables = tmp_path / "kept.parquet", []
    for inputs, out in ((parts, "both"), ([str(kept)], "again")):
        arguments = ["ablation", "join", *inputs, "--out", str(tmp_path / out), "--keep", str(kept)]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        tables.append((tmp_path / out / "table.json").read_bytes())
    assert tables[0] == tables[1]


@pytest.mark.parametrize("name", files.FILES)
def test_a_part_that_differs_from_its_manifest_is_refused(parts: list[str], tmp_path: Path, name: str) -> None:
    """Also a changed figure that all other checks accept."""
    arguments = ["ablation", "join", *parts, "--out", str(tmp_path / "both")]
    seal(Path(parts[1]))
    path = Path(parts[1], name)
    path.write_bytes(path.read_bytes() + b" ")
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"{path}: changed since it was written; copy it again, or `cocondenser")
    assert not (tmp_path / "both").exists()


def test_a_file_instead_of_the_folder_of_a_part_is_refused(parts: list[str], tmp_path: Path) -> None:
    path = Path(parts[0], "cells.json")
    result = CliRunner().invoke(app, ["ablation", "join", str(path), str(path), "--out", str(tmp_path / "both")])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"{path}: a file, not a folder")


def test_parts_that_do_not_fit_together_are_reported(parts: list[str], tmp_path: Path) -> None:
    arguments = ["ablation", "join", parts[0], parts[0], "--out", str(tmp_path / "both")]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == f"{parts[0]} and {parts[0]}: plain, all questions, seed 1 is in both"
    assert not (tmp_path / "both").exists()
