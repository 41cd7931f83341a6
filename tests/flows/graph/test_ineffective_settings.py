"""Settings that change nothing in a run."""

from functools import partial

import pytest

from flows import flow
from flows.graph.ineffective_settings import ineffective_settings
from flows.recipes.recipe import resolve


@pytest.mark.parametrize(
    "setting",
    [
        "adapt.trains=both_encoders",  # without --adapt
        "generate.batch=3",
        "search.splits=[dev, test]",  # nothing is mined
    ],
)
def test_a_setting_that_changes_nothing_is_reported(setting):
    settings = ["rounds.number=0", setting]
    assert ineffective_settings(partial(resolve, "tiny"), settings, [setting]) == [
        f"--set {setting} changes nothing in this run"
    ]


@pytest.mark.parametrize(
    "setting",
    [
        "stage1.epochs=7",
        "attention.sections=0",
        "report.answers=4",
        "machine.workers=1",
        "title=Mine",
        "adapt.trains=map",  # the recipe's own value
        "report.published=[]",
    ],
)
def test_a_setting_that_is_read_or_changes_nothing_of_the_recipe_is_not(setting):
    assert ineffective_settings(partial(resolve, "tiny"), [setting], [setting]) == []


def test_a_setting_that_others_need_is_not_reported():
    settings = ["index.kind=hnsw", "index.hnsw_m=8"]
    assert ineffective_settings(partial(resolve, "tiny"), settings, settings) == []
    settings = ["encoder.dimensions=[32, 8]", "index.dimension=8"]
    assert ineffective_settings(partial(resolve, "tiny"), settings, settings) == []
    settings = ["rounds.number=2", "evaluate.fusions=[[bm25, stage2-2]]"]
    assert ineffective_settings(partial(resolve, "tiny"), settings, settings) == []
    settings = ["generate.endpoint=http://localhost:1/v1", "generate.model=m", "generate.max_requests=3"]
    assert ineffective_settings(partial(resolve, "generated"), settings, settings) == []


def test_only_the_users_own_settings_are_reported():
    assert (
        ineffective_settings(partial(resolve, "tiny"), ["adapt.seed=7", "stage1.epochs=7"], ["stage1.epochs=7"]) == []
    )


def test_a_run_without_the_command_line_reports_them_too(monkeypatch, tmp_path):
    lines = []
    monkeypatch.setattr(flow, "report_line", lines.append)
    monkeypatch.setattr(flow.run_nodes, "run_graph", lambda *_, **__: None)
    flow.cocondenser.fn("tiny", set=["adapt.seed=7", "stage1.epochs=7"], store=str(tmp_path))
    assert lines == ["--set adapt.seed=7 changes nothing in this run"]


def test_a_plan_warns_of_them(call_cli, tmp_path):
    shown = call_cli("plan", "tiny", "--set", "adapt.seed=7", store=tmp_path)
    assert "warning: --set adapt.seed=7 changes nothing in this run" in shown.stderr
