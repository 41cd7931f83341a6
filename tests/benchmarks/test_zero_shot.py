"""The comparison with sentence-transformers, as it is called."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_wrong_path_is_one_line(tmp_path: Path) -> None:
    words = ["--model", str(tmp_path / "none"), "--collection", str(tmp_path), "--store", str(tmp_path / "store")]
    command = [sys.executable, "-m", "benchmarks.zero_shot", *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "COLUMNS": "400"})
    assert ended.returncode == 2
    assert ended.stderr == f"error: --model {tmp_path / 'none'}: no such folder\n"
