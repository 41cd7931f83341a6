"""The image's own steps, without an engine: what the Dockerfile copies and runs, in a folder that stands for /app."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()
FOLDERS = ("pipeline", "artifacts", "tasks", "flows")
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts) for name in FOLDERS for path in (ROOT / name).rglob("__init__.py")
)
PIP = f"""#!{sys.executable}
import sys
from setuptools import build_meta
if "--editable" in sys.argv:
    build_meta.build_editable(sys.argv[0] + "-wheels")
"""
"""An editable install without what it would download."""


def steps() -> list[tuple[str, str]]:
    """(COPY, sources and target) and (RUN, shell command), in their order; lines that are continued in one."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    return re.findall(r"^(COPY|RUN) (.*)$", joined, re.MULTILINE)


def copy(sources: list[str], app: Path) -> None:
    for name in sources:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, app / name, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / name, app / name)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """/app, once all steps that copy or install there are done."""
    app, tools = tmp_path_factory.mktemp("app"), tmp_path_factory.mktemp("tools")
    (tools / "pip").write_text(PIP)
    (tools / "pip").chmod(0o755)
    (tools / "pip-wheels").mkdir()
    (tools / "python").symlink_to(sys.executable)
    for kind, what in steps():
        if kind == "COPY":
            copy(what.split()[:-1], app)
        elif "pip install" in what:
            here = {"PATH": f"{tools}:{os.environ['PATH']}", "FAISS": "cpu"}
            ended = subprocess.run(["sh", "-c", what], cwd=app, env=here, capture_output=True, text=True)
            assert ended.returncode == 0, ended.stderr
            assert len(list((tools / "pip-wheels").glob("*.whl"))) == 1
    return app


def test_the_editable_install_finds_every_package(app: Path) -> None:
    assert {kind for kind, _ in steps()} == {"COPY", "RUN"}
    assert {"pipeline.data.readers", "flows.recipes"} <= set(PACKAGES)
    assert all((app / name.replace(".", "/") / "__init__.py").is_file() for name in PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_is_copied_whole(app: Path, name: str) -> None:
    folder = name.replace(".", "/")
    there = {path.name for path in (ROOT / folder).glob("*.py")}
    assert there
    assert there == {path.name for path in (app / folder).glob("*.py")}


def test_what_the_project_reads_besides_code_is_copied(app: Path) -> None:
    assert (app / "prefect.yaml").is_file()
    assert (app / "flows" / "recipes" / "base.yaml").is_file()
