"""Child processes do not depend on the folder and the environment in which the command is given."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime.processes import ROOT, environment, python

TAKEN = "from pathlib import Path; Path({!r}).touch()"
"""A user's own module; it creates a file when it is executed."""


@pytest.mark.parametrize(
    ("file", "module", "path"),
    [
        ("pipeline.py", "pipeline.errors", None),
        ("pipeline/__init__.py", "pipeline.errors", "."),
        ("random.py", "pipeline.finetune.training_pools", ""),
        ("json.py", "pipeline.runtime.processes", ":nowhere"),
        ("sitecustomize.py", "pipeline.errors", "."),
        ("prefect.py", "prefect", None),
    ],
)
def test_no_module_of_the_current_folder_is_executed(tmp_path, monkeypatch, file, module, path):
    if path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", path)
    executed = tmp_path / "executed"
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(TAKEN.format(str(executed)))
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-c', 'import {module}'], check=True)"
    for command in ([sys.executable, "-c", grandchild], python("pipeline.errors")):
        subprocess.run(command, cwd=tmp_path, env=environment(), check=True)
    assert not executed.exists()


def test_python_is_started_in_one_place():
    """Code in other places would forget what a child needs."""
    starts = [
        path.relative_to(ROOT).as_posix()
        for folder in ("pipeline", "artifacts", "tasks", "flows")
        for path in (ROOT / folder).rglob("*.py")
        if "sys.executable" in path.read_text()
    ]
    assert starts == ["pipeline/runtime/processes.py"]


@pytest.mark.parametrize("value", ["", ":", "src:.", "::/usr/share:lib"])
def test_pythonpath_names_the_code_first_and_nothing_of_the_current_folder(monkeypatch, value):
    monkeypatch.setenv("PYTHONPATH", value)
    entries = environment()["PYTHONPATH"].split(os.pathsep)
    assert entries[0] == str(ROOT)
    assert entries[1:] == re.findall(r"/usr/share", value)


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "PYTHONINSPECT", "PYTHONIOENCODING"])
def test_variables_that_would_mislead_a_child_are_removed(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert name not in environment()


@pytest.mark.parametrize(
    "variables", [{"LC_ALL": "C"}, {"LC_ALL": "xx_YY.ISO-8859-1"}, {"LANG": "C", "PYTHONIOENCODING": "ascii"}, {}]
)
def test_a_child_writes_utf_8(monkeypatch, tmp_path, variables):
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "störe-資料"
    folder.mkdir()
    code = f"from pathlib import Path; Path({str(folder)!r}, 'ß').write_text('ß'); print('ß')"
    output = subprocess.run([sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, check=True).stdout
    assert output == "ß\n".encode()
    assert (folder / "ß").read_bytes() == "ß".encode()
    assert Path(os.fsdecode(os.fsencode(folder))).is_dir()
