"""The comparison with sentence-transformers, on its command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ready import PASSAGE, QUERY, beir, plain, sentence

ROOT = Path(__file__).parents[2]


def compare(model: Path, collection: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    arguments = ["--model", str(model), "--collection", str(collection), "--store", str(folder / "store")]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "COCONDENSER_"))}
    environment = {**variables, "PREFECT_HOME": str(folder / "prefect"), "OMP_NUM_THREADS": "1", "COLUMNS": "400"}
    command = [sys.executable, "-m", "benchmarks.zero_shot", *arguments, "--tokens", "128"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)


def test_a_wrong_path_is_one_line(tmp_path: Path) -> None:
    result = compare(tmp_path / "none", tmp_path, tmp_path)
    assert result.returncode == 2
    assert result.stderr == f"error: model {tmp_path / 'none'}: no such folder\n"


def test_a_folder_of_transformers_alone_is_refused(tmp_path: Path) -> None:
    """The two tools would compute its vectors in different ways."""
    result = compare(plain(tmp_path / "model"), beir(tmp_path / "lamps"), tmp_path)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith(f"error: --model {tmp_path / 'model'}: no folder of sentence-tr")


@pytest.mark.slow
def test_both_tools_measure_the_same(tmp_path: Path) -> None:
    model = sentence(tmp_path / "model", prompts={"query": QUERY, "document": PASSAGE})
    result = compare(model, beir(tmp_path / "lamps"), tmp_path)
    assert result.returncode == 0, result.stderr
    ours, theirs = json.loads(result.stdout.splitlines()[-1]).values()
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert 0 < ours["nDCG@10"] < 1
