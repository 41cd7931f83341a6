"""docs/results.md can be reproduced: its commands have valid settings, and its tables match the kept figures."""

import re
import shlex
from pathlib import Path

import pytest

from flows.ablations.ablation import cells
from flows.ablations.file import ABLATIONS, load
from flows.recipes.recipe import resolve
from flows.recipes.yaml_layers import named
from flows.sentences.recipe import resolve_sentences
from pipeline.ablation import table as ablation_table
from pipeline.ablation.join import join
from pipeline.ablation.kept import read_data_file
from pipeline.data.parquet import read_parquet

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
PRETRAINING = "pretraining.parquet"
"""The loss of every update of each model."""


def build_commands() -> dict[str, list[str]]:
    """{model: the words of the command that builds it}."""
    lines = re.findall(
        r"^\| (\S+) \|.* `cocondenser run ([^`]+)` \|$", (RESULTS / "README.md").read_text(), re.MULTILINE
    )
    return {model: shlex.split(words) for model, words in lines}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("ladder-*.yaml")), ids=lambda path: path.stem)
def test_every_ablation_starts_from_models_that_a_command_builds(path: Path) -> None:
    ablation = load(str(path))
    built = {str(RESULTS / "models" / model) for model in build_commands()}
    for cell in cells(ablation):
        if cell.row == "initialisation only" or ablation.rows[cell.row].start is not None:
            continue
        sections = (cell.recipe.ict, cell.recipe.condenser, cell.recipe.cocondenser)
        finished = {str(ROOT / section.checkpoint) for section in sections if section.checkpoint is not None}
        assert finished, cell.row
        assert finished <= built, cell.row


@pytest.mark.parametrize("path", sorted(RESULTS.glob("ladder-*.yaml")), ids=lambda path: path.stem)
def test_finished_models_are_fine_tuned_as_in_the_projects_ablations(path: Path) -> None:
    """A list of settings replaces the list of the extended file, so settings could be lost."""
    if path.stem not in named(ABLATIONS):
        pytest.skip("only the results have this ablation")
    ours = {(cell.row, cell.size, cell.seed): cell.recipe for cell in cells(load(path.stem))}
    theirs = {(cell.row, cell.size, cell.seed): cell.recipe for cell in cells(load(str(path)))}
    assert theirs.keys() <= ours.keys()
    for cell, recipe in theirs.items():
        for stage in ("bm25", "encoder", "stage1", "mine", "stage2", "encode", "search"):
            assert getattr(recipe, stage) == getattr(ours[cell], stage), (cell, stage)


def test_the_sentence_tasks_start_from_models_that_a_command_builds() -> None:
    models = resolve_sentences(str(RESULTS / "stsb.yaml")).used_models.values()
    assert {str(ROOT / name) for name in models} <= {str(RESULTS / "models" / model) for model in build_commands()}


def test_the_commands_of_the_models_fit_their_recipes() -> None:
    commands = build_commands()
    assert {*commands} == {*read_parquet(RESULTS / PRETRAINING)["model"].unique().to_pylist()}
    for words in commands.values():
        resolve(words[0], [words[n + 1] for n, word in enumerate(words) if word == "--set"])


def test_losses_of_pre_training_are_in_the_results() -> None:
    """The means of the last tenth of the updates, and of the first tenth."""
    history = read_parquet(RESULTS / PRETRAINING).to_pandas()
    rows = (ROOT / "docs/results.md").read_text().partition("## Pre-training\n")[2].partition("\n\n")[0].splitlines()
    names = {"BERT 20 M": "BERT-20M", "Condenser 20 M": "Condenser-20M", "contrastive only": "contrastive-only"}
    names["Condenser continued"] = "Condenser-continued"
    places = [line.strip("| ").split(" | ") for line in rows if line.startswith("| ")][1:]
    assert len(places) == history["model"].nunique()
    for row, *_, text in places:
        row = row.partition(",")[0]
        losses = history[history["model"] == names.get(row, row)].drop(columns=["model", "step"]).dropna(axis=1)
        tenth = len(losses) // 10
        last, first = (sorted(part.mean()) for part in (losses.tail(tenth), losses.head(tenth)))
        figures = [float(figure) for figure in re.findall(r"(?<![\d,])\d*\.\d+", text)]
        ends, starts = sorted(figures[: len(last)]), sorted(figures[len(last) :])
        assert ends == pytest.approx(last, abs=0.0051), row
        assert starts == pytest.approx(first, abs=0.051), row


COMMANDS = [
    shlex.split(line, comments=True)[3:]
    for line in (ROOT / "docs/results.md").read_text().splitlines()
    if line.startswith("    cocondenser ablation join ")
]


def test_all_kept_figures_are_joined_by_a_command() -> None:
    kept = {path for path in RESULTS.glob("*.parquet") if path.name != PRETRAINING}
    assert kept == {ROOT / word for words in COMMANDS for word in words if (ROOT / word).is_file()}
    assert len({words[words.index("--out") + 1] for words in COMMANDS}) == len(COMMANDS)


def test_the_results_are_small_and_without_weights() -> None:
    """Models that a user built there are ignored."""
    files = [path for path in RESULTS.rglob("*") if path.is_file() and RESULTS / "models" not in path.parents]
    assert sum(path.stat().st_size for path in files) < 5e6


@pytest.mark.slow  # SQuAD's 10,570 questions are resampled again
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[words.index("--out") + 1])
def test_joined_means_are_in_the_results(words: list[str]) -> None:
    """Each figure is in a line of the same row."""
    part = ROOT / words[0]
    assert words[1] == "--out"
    data = join([(str(part), read_data_file(part))], None)
    table = ablation_table.markdown(data.config, ablation_table.figures(data), ablation_table.tests(data))
    result_lines = [line.split(" | ") for line in (ROOT / "docs/results.md").read_text().splitlines()]
    joined = [line.split(" | ") for line in table.splitlines()]
    figures = [(row, cell) for row, *rest in joined for cell in re.findall(r"\.\d{3}\*? \[[^]]*\]", " | ".join(rest))]
    assert figures
    for row, figure in figures:
        assert any(line[0] == row and figure in " | ".join(line) for line in result_lines), (row, figure)
