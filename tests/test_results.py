"""docs/results.md can be repeated: its files are complete, its commands' settings fit, its kept figures can be read."""

import re
import shlex
from pathlib import Path

import pytest

from flows.ablations.ablation import cells
from flows.ablations.file import ABLATIONS, load
from flows.recipes.recipe import resolve
from flows.recipes.yaml_layers import named
from flows.sentences.recipe import resolve as resolve_sentences
from pipeline.ablation.join import join_folders
from pipeline.modeling.checkpoint import head_objective

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("ladder-*.yaml")), ids=lambda path: path.stem)
def test_every_ablation_starts_from_models_that_are_there(path: Path) -> None:
    ablation = load(str(path))
    for cell in cells(ablation):
        if cell.row == "initialisation only" or ablation.rows[cell.row].start is not None:
            continue
        sections = (cell.recipe.ict, cell.recipe.condenser, cell.recipe.cocondenser)
        finished = [section.checkpoint for section in sections if section.checkpoint is not None]
        assert finished, cell.row
        assert all((ROOT / one / "model.safetensors").is_file() for one in finished), cell.row


@pytest.mark.parametrize("path", sorted(RESULTS.glob("ladder-*.yaml")), ids=lambda path: path.stem)
def test_finished_models_are_fine_tuned_as_the_project_does(path: Path) -> None:
    """A list of settings replaces the one of the file that is extended, and could lose some."""
    if path.stem not in named(ABLATIONS):
        pytest.skip("an ablation of the results alone")
    ours = {(cell.row, cell.size, cell.seed): cell.recipe for cell in cells(load(path.stem))}
    theirs = {(cell.row, cell.size, cell.seed): cell.recipe for cell in cells(load(str(path)))}
    assert theirs.keys() <= ours.keys()
    for cell, recipe in theirs.items():
        for stage in ("bm25", "encoder", "stage1", "mine", "stage2", "encode", "search"):
            assert getattr(recipe, stage) == getattr(ours[cell], stage), (cell, stage)


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


COMMANDS = [
    shlex.split(line, comments=True)[3:]
    for line in (ROOT / "docs/results.md").read_text().splitlines()
    if line.startswith("    cocondenser ablation join ")
]


def test_all_kept_figures_are_joined_by_a_command() -> None:
    kept = {path.parent for path in RESULTS.rglob("cells.json")}
    assert kept == {folder for words in COMMANDS for word in words for folder in ROOT.glob(word)} & kept
    assert len({words[words.index("--out") + 1] for words in COMMANDS}) == len(COMMANDS)


@pytest.mark.slow  # SQuAD's 10,570 questions are resampled again
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[words.index("--out") + 1])
def test_joined_means_stand_in_the_results(words: list[str], tmp_path: Path) -> None:
    """In a line of the same row."""
    place = words.index("--out")
    folders = [folder for word in words[:place] for folder in sorted(ROOT.glob(word))]
    reference = words[words.index("--reference") + 1] if "--reference" in words else None
    join_folders(folders, tmp_path / "joined", reference)
    told = [line.split(" | ") for line in (ROOT / "docs/results.md").read_text().splitlines()]
    joined = [line.split(" | ") for line in (tmp_path / "joined/table.md").read_text().splitlines()]
    figures = [(row, one) for row, *rest in joined for one in re.findall(r"\.\d{3}\*? \[[^]]*\]", " | ".join(rest))]
    assert figures
    for row, figure in figures:
        assert any(line[0] == row and figure in " | ".join(line) for line in told), (row, figure)
