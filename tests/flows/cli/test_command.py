"""The command on the report computes the same again. Only the papers' recipes have published figures."""

from itertools import pairwise
from typing import Any

import pytest

from flows.dag import nodes
from flows.recipes.command_line import IGNORED, command
from flows.recipes.recipe import Recipe, configuration, resolve
from flows.recipes.yaml_layers import named, read
from pipeline.errors import InputError

SETTINGS = [
    ["stage2.epochs=2", "bm25.k1=1e-4"],
    [
        "pseudo_labels={depth: 50, positive_above: 0.9, negative_below: 0.1, positives: 1, negatives: 4}",
        "negatives_file=null",
    ],
    ["encoder.question_prefix=query:", 'encoder.passage_prefix="true"', "search.splits=[dev]"],
]


def settings(words: list[str]) -> list[str]:
    return [word for flag, word in pairwise(words) if flag == "--set"]


def computed(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in configuration(recipe).items() if name not in IGNORED}


@pytest.mark.parametrize("changes", SETTINGS)
def test_the_command_resolves_to_the_same_recipe(changes: list[str]) -> None:
    recipe = resolve("nq", [*changes, "search.unjudged_train_questions=true", "cross_encoder.loss=pointwise"])
    words = command(recipe)
    assert words[:3] == ["cocondenser", "run", "nq"]
    assert configuration(resolve("nq", settings(words))) == configuration(recipe)


def test_settings_that_change_no_result_are_not_shown() -> None:
    assert command(resolve("tiny", ["machine.workers=3", "report.examples=0"])) == ["cocondenser", "run", "tiny"]


def test_the_folders_of_paths_are_not_shown() -> None:
    words = command(resolve("text", ["ingest.path=/home/me/my notes"]))
    assert words == ["cocondenser", "run", "text", "--set", "ingest.path=PATH/my notes"]


def test_another_reader_replaces_the_section() -> None:
    recipe = resolve("tiny", ["ingest={reader: beir, folder: a/b, document_key: doc, metadata: []}"])
    (setting,) = settings(command(recipe))
    assert setting == 'ingest={"reader": "beir", "folder": "PATH/b", "document_key": "doc", "metadata": []}'


@pytest.mark.parametrize("changes", [[], SETTINGS[0], SETTINGS[2]])
def test_a_users_recipe_is_shown_as_changes_of_the_projects_recipe(tmp_path, changes: list[str]) -> None:
    """The reader of a report or a model card does not have the user's file."""
    (tmp_path / "mine.yaml").write_text("extends: nq\nstage1:\n  epochs: 9\n")
    recipe = resolve(str(tmp_path / "mine.yaml"), changes)
    words = command(recipe)
    assert words[:3] == ["cocondenser", "run", "nq"]
    assert "stage1.epochs=9" in settings(words)
    resolved = resolve("nq", settings(words))
    assert computed(resolved) == computed(recipe)
    assert recipe.report.published == []  # published figures are of nq, and this recipe differs


def test_the_report_contains_the_command() -> None:
    report = nodes(resolve("tiny", ["stage2.epochs=2"]))[-1]
    assert report.shared["command"] == ["cocondenser", "run", "tiny", "--set", "stage2.epochs=2"]


def test_published_measures_are_known() -> None:
    row = "{row: bm25, label: A, split: dev, measures: {%s: 0.3}, source: B}"
    (published,) = resolve("tiny", [f"report.published=[{row % 'MRR@10'}]"]).report.published
    assert published.measures == {"RR@10": 0.3}
    with pytest.raises(InputError, match=r"report\.published.*unknown measure; known are RR@10"):
        resolve("tiny", [f"report.published=[{row % 'MRR@11'}]"])


def test_published_figures_have_known_rows_and_measures() -> None:
    from pipeline.evaluate.measures import MEASURES

    known = {*MEASURES, "hits@5", "hits@20", "hits@100"}
    published = {name: read(name).data["report"]["published"] for name in named()}
    assert {name for name, rows in published.items() if rows} == {
        *("marco", "marco-bert", "marco-ict", "marco-doc", "marco-soft", "continued", "low-data", "nq", "trivia")
    }
    for rows in published.values():
        assert {measure for row in rows for measure in row["measures"]} <= known
        assert {row["row"] for row in rows} <= {"bm25", "stage1", "stage2"}
    best = {(name, row["split"]): row["measures"] for name, rows in published.items() for row in rows}
    assert best["marco", "dev"] == {"RR@10": 0.382, "R@100": 0.913, "R@1000": 0.984}
    assert best["nq", "test"] == {"hits@5": 0.758, "hits@20": 0.843, "hits@100": 0.89}
