"""The container files without a container engine: the Dockerfile's steps copy and run in a folder instead of /app."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from cyclopts import CycloptsError
from packaging.requirements import Requirement

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
"""An editable install that downloads nothing."""


def steps() -> list[tuple[str, str]]:
    """(COPY, sources and target) and (RUN, shell command), in order. Continued lines are joined."""
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
    """/app after all steps that copy or install."""
    app, tools = tmp_path_factory.mktemp("app"), tmp_path_factory.mktemp("tools")
    (tools / "pip").write_text(PIP)
    (tools / "pip").chmod(0o755)
    (tools / "pip-wheels").mkdir()
    (tools / "python").symlink_to(sys.executable)
    for kind, arguments in steps():
        if kind == "COPY":
            copy(arguments.split()[:-1], app)
        elif "pip install" in arguments:
            environment = {"PATH": f"{tools}:{os.environ['PATH']}", "FAISS": "cpu"}
            result = subprocess.run(["sh", "-c", arguments], cwd=app, env=environment, capture_output=True, text=True)
            assert result.returncode == 0, result.stderr
            assert len(list((tools / "pip-wheels").glob("*.whl"))) == 1
    return app


def test_the_editable_install_finds_every_package(app: Path) -> None:
    assert {kind for kind, _ in steps()} == {"COPY", "RUN"}
    assert {"pipeline.data.readers", "flows.recipes"} <= set(PACKAGES)
    assert all((app / name.replace(".", "/") / "__init__.py").is_file() for name in PACKAGES)


@pytest.mark.parametrize("name", PACKAGES)
def test_every_module_of_a_package_is_copied(app: Path, name: str) -> None:
    folder = name.replace(".", "/")
    modules = {path.name for path in (ROOT / folder).glob("*.py")}
    assert modules
    assert modules == {path.name for path in (app / folder).glob("*.py")}


def test_other_files_that_the_project_reads_are_copied(app: Path) -> None:
    assert (app / "prefect.yaml").is_file()
    assert (app / "flows" / "recipes" / "base.yaml").is_file()


def prefect_commands() -> list[list[str]]:
    """The words of every command of Prefect in compose.yaml."""
    services = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    lines = [shlex.join([*one.get("entrypoint", []), *one.get("command", [])]) for one in services.values()]
    scripts = [shlex.split(line)[-1] if line.startswith("sh -c") else line for line in lines]
    parts = [shlex.split(part.removeprefix("exec ")) for script in scripts for part in script.strip().split(" && ")]
    return [words[1:] for words in parts if words[:1] == ["prefect"]]


def parsed(words: list[str]) -> str:
    """Returns the name of the function that Prefect would call. Raises CycloptsError for what it does not know."""
    from prefect.cli._app import _app

    own = [word for word in words if word != "--no-prompt"]  # which belongs to all commands
    return _app.parse_args(own, exit_on_error=False, print_error=False)[0].__name__


def test_the_containers_commands_are_known_to_prefect() -> None:
    commands = prefect_commands()
    assert [" ".join(words[:2]) for words in commands] == [
        "server start",
        "work-pool create",
        "--no-prompt deploy",
        "worker start",
    ]
    assert [parsed(words) for words in commands] == ["start", "create", "deploy", "start"]
    with pytest.raises(CycloptsError):
        parsed(["server", "start", "--hosts", "0.0.0.0"])


def test_the_image_installs_a_torch_of_the_supported_range() -> None:
    pinned = re.search(r"^torch==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (supported,) = (one for one in map(Requirement, dependencies) if one.name == "torch")
    assert pinned
    assert pinned[1] in supported.specifier
    assert "grep '^torch==' constraints.txt" in DOCKERFILE
