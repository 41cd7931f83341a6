"""Child processes do not depend on where, and in what environment, the command is given."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime.processes import ROOT, environment, python

TAKEN = "from pathlib import Path; Path({!r}).touch()"
"""A user's own module; it tells that it was executed."""


@pytest.mark.parametrize(
    ("own", "module", "path"),
    [
        ("pipeline.py", "pipeline.errors", None),
        ("pipeline/__init__.py", "pipeline.errors", "."),
        ("random.py", "pipeline.finetune.training_pools", ""),
        ("json.py", "pipeline.runtime.processes", ":nowhere"),
        ("sitecustomize.py", "pipeline.errors", "."),
        ("prefect.py", "prefect", None),
    ],
)
def test_no_module_of_the_current_folder_is_executed(tmp_path, monkeypatch, own, module, path):
    if path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", path)
    executed = tmp_path / "executed"
    (tmp_path / own).parent.mkdir(exist_ok=True)
    (tmp_path / own).write_text(TAKEN.format(str(executed)))
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', 'import {module}'], check=True)"
    for command in ([sys.executable, "-c", grandchild], python("pipeline.errors")):
        subprocess.run(command, cwd=tmp_path, env=environment(), check=True)
    assert not executed.exists()


def test_python_is_started_in_one_place():
    """Elsewhere nobody remembers what a child needs."""
    starts = [
        path.relative_to(ROOT).as_posix()
        for folder in ("pipeline", "artifacts", "tasks", "flows")
        for path in (ROOT / folder).rglob("*.py")
        if "sys.executable" in path.read_text()
    ]
    assert starts == ["pipeline/runtime/processes.py"]


@pytest.mark.parametrize("given", ["", ":", "src:.", "::/usr/share:lib"])
def test_pythonpath_names_the_code_first_and_nothing_of_the_current_folder(monkeypatch, given):
    monkeypatch.setenv("PYTHONPATH", given)
    entries = environment()["PYTHONPATH"].split(os.pathsep)
    assert entries[0] == str(ROOT)
    assert entries[1:] == re.findall(r"/usr/share", given)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "PYTHONINSPECT", "PYTHONIOENCODING"])
def test_what_would_mislead_a_child_is_removed(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert name not in environment()


@pytest.mark.parametrize(
    "given", [{"LC_ALL": "C"}, {"LC_ALL": "xx_YY.ISO-8859-1"}, {"LANG": "C", "PYTHONIOENCODING": "ascii"}, {}]
)
def test_a_child_writes_utf_8(monkeypatch, tmp_path, given):
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    named = tmp_path / "störe-資料"
    named.mkdir()
    code = f"from pathlib import Path; Path({str(named)!r}, 'ß').write_text('ß'); print('ß')"
    said = subprocess.run([sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, check=True).stdout
    assert said == "ß\n".encode()
    assert (named / "ß").read_bytes() == "ß".encode()
    assert Path(os.fsdecode(os.fsencode(named))).is_dir()
