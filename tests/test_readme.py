"""Every command of the README runs, on the 300-document recipe in place of the demo's."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from flows.deploy.processes import free_port

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
MOST_SECONDS = 300
"""Of a command."""
SERVING = "serve-search"
COMMANDS = re.findall(r"^    (cocondenser [^#\n]+?)\s*(?:#.*)?$", README, flags=re.MULTILINE)


def test_the_readme_has_commands() -> None:
    assert len(COMMANDS) >= 12


def test_the_readme_names_every_recipe() -> None:
    from flows.recipes.recipe import resolve
    from flows.recipes.yaml_layers import named

    shown = {name for name in named() if not resolve(name).hidden}
    assert shown == set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`.*?) \|", README, flags=re.MULTILINE))))


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_recipes_shown_are_complete(tmp_path: Path) -> None:
    from flows.recipes.recipe import resolve

    path, readers = tmp_path / "own.yaml", []
    for shown in re.findall(r"^    extends: .*\n(?:    .*\n)+", README, flags=re.MULTILINE):
        path.write_text(shown)
        readers.append(resolve(str(path)).ingest.reader)
    assert readers == ["beir", "text"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_runs(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "COCONDENSER_"))}
    environment |= {"PREFECT_HOME": str(tmp_path / "prefect"), "COCONDENSER_STORE": str(tmp_path / "store")}
    # The plan comes before the run in the README, as a newcomer would type it.
    for command in COMMANDS:
        code, said = ended(shlex.split(command.replace("pydocs-small", "tiny"))[1:], environment, tmp_path)
        assert code == 0, f"{command}\n{said}"
        assert said, command
    assert (tmp_path / "my-model/model/modules.json").exists()


def ended(arguments: list[str], environment: dict[str, str], folder: Path) -> tuple[int, str]:
    """(exit code, all that was said) of a command; one that serves is interrupted when it answers."""
    if serves := arguments[0] == SERVING:
        arguments = [*arguments, "--port", str(free_port())]
    with subprocess.Popen(
        [sys.executable, "-m", "flows.cli.main", *arguments],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        too_long = threading.Timer(MOST_SECONDS, process.kill)
        too_long.start()
        said = ""
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if serves and line.startswith("Stop:"):
                process.send_signal(signal.SIGINT)
        too_long.cancel()
    return process.returncode, said
