"""The comparison with sentence-transformers, as it is called."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ready import PASSAGE, QUERY, beir, plain, sentence

ROOT = Path(__file__).parents[2]


def compare(model: Path, collection: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    words = ["--model", str(model), "--collection", str(collection), "--store", str(folder / "store")]
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "COCONDENSER_"))}
    environment = {**mine, "PREFECT_HOME": str(folder / "prefect"), "OMP_NUM_THREADS": "1", "COLUMNS": "400"}
    command = [sys.executable, "-m", "benchmarks.zero_shot", *words, "--tokens", "128"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)


def test_a_wrong_path_is_one_line(tmp_path: Path) -> None:
    ended = compare(tmp_path / "none", tmp_path, tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == f"error: model {tmp_path / 'none'}: no such folder\n"


def test_a_folder_of_transformers_alone_is_refused(tmp_path: Path) -> None:
    """The two would make vectors in different ways."""
    ended = compare(plain(tmp_path / "model"), beir(tmp_path / "lamps"), tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(f"error: --model {tmp_path / 'model'}: no folder of sentence-tr")


@pytest.mark.slow
def test_both_measure_the_same(tmp_path: Path) -> None:
    model = sentence(tmp_path / "model", prompts={"query": QUERY, "document": PASSAGE})
    ended = compare(model, beir(tmp_path / "lamps"), tmp_path)
    assert ended.returncode == 0, ended.stderr
    ours, theirs = json.loads(ended.stdout.splitlines()[-1]).values()
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert 0 < ours["nDCG@10"] < 1
