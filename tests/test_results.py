"""docs/results.md can be repeated: its files are complete, its commands' settings fit, its kept figures can be read."""

import re
import shlex
from pathlib import Path

import pytest

from flows.ablation import cells
from flows.ablation_file import load
from flows.recipe import resolve
from flows.sentences.recipe import resolve as resolve_sentences
from pipeline import ablation_files
from pipeline.checkpoint import head_objective

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("ladder-*.yaml")), ids=lambda path: path.stem)
def test_every_ablation_starts_from_models_that_are_there(path: Path) -> None:
    finished = [
        section.checkpoint
        for cell in cells(load(str(path)))
        for section in (cell.recipe.ict, cell.recipe.condenser, cell.recipe.cocondenser)
        if section.checkpoint is not None
    ]
    assert finished
    assert {one for one in finished if not (ROOT / one / "model.safetensors").is_file()} == set()


def test_every_head_says_what_it_was_trained_for() -> None:
    heads = sorted(RESULTS.glob("models/*/head.safetensors"))
    assert heads
    for head in heads:
        assert head_objective(head.parent) == ("retromae" if head.parent.name == "RetroMAE" else "condenser")


def test_the_models_of_the_sentence_tasks_are_there() -> None:
    recipe = resolve_sentences(str(RESULTS / "stsb.yaml"))
    assert {name for name in recipe.given.values() if not (ROOT / name / "model.safetensors").is_file()} == set()


def test_the_models_commands_fit_their_recipes() -> None:
    found = re.findall("`cocondenser run ([^`]+)`", (RESULTS / "models/README.md").read_text())
    assert len(found) == len([path for path in (RESULTS / "models").iterdir() if path.is_dir()])
    for words in map(shlex.split, found):
        resolve(words[0], [words[n + 1] for n, word in enumerate(words) if word == "--set"])


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("cells.json")), ids=lambda path: path.parent.name)
def test_kept_figures_can_be_joined(path: Path) -> None:
    assert ablation_files.read(path.parent).cells
