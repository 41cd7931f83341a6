"""README.md and docs/usage.md are correct: commands run, with the 300-document recipe instead of the demo's."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from warming import SOCKET

from flows.deploy.processes import free_port

ROOT = Path(__file__).resolve().parents[1]
README, USAGE = (ROOT / "README.md").read_text(), (ROOT / "docs/usage.md").read_text()
MOST_SECONDS = 300
"""The time limit of a command."""
SERVING = "serve-search"
COMMANDS = [*dict.fromkeys(re.findall(r"^    (cocondenser [^#\n]+?)\s*(?:#.*)?$", USAGE + README, flags=re.MULTILINE))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs/install.md", ROOT / "docs/usage.md"]
PROSE = [ROOT / "README.md", *ROOT.glob("C*.md"), ROOT / "benchmarks/README.md"]
PROSE += [page for page in sorted(ROOT.glob("docs/*.md")) if page.name != "results.md"]


def test_the_pages_name_every_command_and_no_other() -> None:
    from typer.main import get_command

    from flows.cli.main import app

    group = get_command(app)
    commands = set(re.findall(r"cocondenser\s([a-z][a-z-]+)", USAGE))
    assert commands == set(group.commands)  # type: ignore[attr-defined]
    assert {command.split()[1] for command in COMMANDS} <= commands


def test_the_pages_name_every_recipe() -> None:
    from flows.recipes.recipe import resolve
    from flows.recipes.yaml_layers import named

    visible = {name for name in named() if not resolve(name).hidden}
    assert visible == set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`.*?) \|", USAGE, flags=re.MULTILINE))))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_make_targets_and_linked_files_exist(page: Path) -> None:
    makefile, text = (ROOT / "Makefile").read_text(), page.read_text()
    for target in set(
        re.findall(r"\bmake ([a-z-]+)", "\n".join(re.findall(r"`[^`]+`|^    .*", text, flags=re.MULTILINE)))
    ):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PROSE, ids=lambda path: path.name)
def test_prose_wraps_at_100_columns(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    prose = [line for line in text.splitlines() if not line.lstrip().startswith("|") and not line.startswith("    ")]
    assert [line for line in prose if len(line) > 100] == []


@pytest.mark.parametrize("page", PROSE, ids=lambda path: path.name)
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    files = set(
        re.findall(r"\b(?:pipeline|artifacts|tasks|flows|tests|docs)/[\w./-]+\.(?:py|md|yaml)\b", page.read_text())
    )
    assert {name for name in files if not (ROOT / name).exists()} <= {"pipeline/NAME.py"}


def test_the_figures_of_the_readme_are_those_of_the_results() -> None:
    results = (ROOT / "docs/results.md").read_text()
    rows = re.findall(r"^\| (\S+) \| (\.\d.*) \|$", README, flags=re.MULTILINE)
    assert [label for label, _ in rows] == ["BERT", "Condenser", "coCondenser", "RetroMAE"]
    for label, cells in rows:
        published = "\n".join(re.findall(rf"^\| {label} \|.*$", results, flags=re.MULTILINE))
        for figure in cells.split(" | "):
            assert f" {figure} [" in published, (label, figure)


def test_the_recipes_shown_are_complete(tmp_path: Path) -> None:
    from flows.recipes.recipe import resolve

    path, readers = tmp_path / "own.yaml", []
    for text in re.findall(r"^    extends: .*\n(?:    .*\n)+", USAGE, flags=re.MULTILINE):
        path.write_text(text)
        readers.append(resolve(str(path)).ingest.reader)
    assert readers == ["beir", "text"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_runs(tmp_path: Path) -> None:
    users = (name for name in os.environ if not name.startswith(("PREFECT_", "COCONDENSER_", SOCKET)))
    environment = {name: os.environ[name] for name in users}
    environment |= {"PREFECT_HOME": str(tmp_path / "prefect"), "COCONDENSER_STORE": str(tmp_path / "store")}
    # The plan comes before the run on the page, as a newcomer types them.
    for command in COMMANDS:
        code, output = run_command(shlex.split(command.replace("pydocs-small", "tiny"))[1:], environment, tmp_path)
        assert code == 0, f"{command}\n{output}"
        assert output, command
    assert (tmp_path / "my-model/model/modules.json").exists()
    [code] = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(result.stdout.splitlines()) == 5


def run_command(arguments: list[str], environment: dict[str, str], folder: Path) -> tuple[int, str]:
    """(exit code, output) of a command. A command that serves is interrupted when it answers."""
    if serves := arguments[0] == SERVING:
        arguments = [*arguments, "--port", str(free_port())]
    with subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *arguments],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        too_long = threading.Timer(MOST_SECONDS, process.kill)
        too_long.start()
        output = ""
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            if serves and line.startswith("Stop:"):
                process.send_signal(signal.SIGINT)
        too_long.cancel()
    return process.returncode, output
