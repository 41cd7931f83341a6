"""What a run prints at its end."""

import io
import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from others import OTHERS, WORSE
from rich.console import Console

from artifacts.records import Ref
from flows.cli.running.run import run_outcome
from flows.graph.run_schema import read_dimensions, read_others
from flows.graph.summary import markdown, mined_pages, next_line, show
from flows.recipes.recipe import resolve
from pipeline.errors import InputError
from pipeline.evaluate.tables.short_tables import NO_QUESTIONS
from tasks.terminal import TERMINAL


def test_the_next_command_is_a_search(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COCONDENSER_STORE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert next_line("How?", tmp_path) == 'cocondenser search "How?"'
    assert next_line(None, tmp_path) == 'cocondenser search "..."'
    other = tmp_path / "an other"
    assert next_line("How?", other) == f"cocondenser search \"How?\" --store '{other}'"


def test_the_next_command_works_where_the_environment_is_not_active(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COCONDENSER_STORE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(sys, "argv", [".venv/bin/cocondenser", "run"])
    assert next_line("How?", tmp_path) == '.venv/bin/cocondenser search "How?"'
    monkeypatch.setattr(sys, "argv", ["flows/cli/main.py", "run"])
    assert next_line("How?", tmp_path) == 'cocondenser search "How?"'


def test_only_existing_pages_of_negatives_are_listed(tmp_path: Path) -> None:
    for name in ("stage1", "mine", "mine-2"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine" / "negatives.html").touch()
    refs: dict[str, Any] = {name: SimpleNamespace(path=tmp_path / name) for name in ("stage1", "mine", "mine-2")}
    assert mined_pages(refs) == [tmp_path / "mine" / "negatives.html"]


def test_the_table_has_figures_with_intervals() -> None:
    figure = {"mean": 0.4966, "low": 0.475, "high": 0.519}
    systems = {"stage1": dict.fromkeys(("RR@10", "nDCG@10", "R@100"), figure)}
    metrics = {"labels": {"stage1": "stage 1"}, "splits": {"dev": {"questions": 1234, "systems": systems}}}
    cell = ".497 [.475, .519]"
    assert markdown(metrics).splitlines() == [
        "| dev, 1,234 questions | MRR@10 | nDCG@10 | R@100 |",
        "|---|---|---|---|",
        f"| stage 1 | {cell} | {cell} | {cell} |",
    ]


def test_without_questions_a_line_takes_the_place_of_the_table() -> None:
    metrics = {"labels": {"model": "existing model"}, "splits": {}, "fusion": None, "fusions": {}}
    assert markdown(metrics) == NO_QUESTIONS


def test_a_split_with_answers_has_a_table_of_hits() -> None:
    figure = {"mean": 0.8431, "low": 0.831, "high": 0.855}
    hits = {"questions": 3610, "questions_without_results": {"bm25": 2}, "differences": {},
            "systems": {"bm25": dict.fromkeys(("hits@5", "hits@20", "hits@100"), figure)}}  # fmt: skip
    test = {"questions": 0, "questions_without_relevant": 3610, "questions_without_results": {}, "systems": {}}
    metrics: dict[str, Any] = {"labels": {"bm25": "BM25"}, "splits": {"test": {**test, "answers": hits}}}
    cell = ".843 [.831, .855]"
    table = [
        "| test, 3,610 questions with answers | hits@5 | hits@20 | hits@100 |",
        "|---|---|---|---|",
        f"| BM25 | {cell} | {cell} | {cell} |",
        "",
        "BM25: questions with answers, but without results, each counted as zero: 2",
    ]
    assert markdown(metrics).splitlines() == table
    judged = {"questions": 9, "systems": {"bm25": dict.fromkeys(("RR@10", "nDCG@10", "R@100"), figure)}}
    metrics["splits"]["test"] |= judged | {"questions_without_relevant": 0}
    metrics["splits"]["test"]["questions_without_results"] = {"bm25": 2}
    assert markdown(metrics).count("without results") == 1  # the same questions for both
    metrics["splits"]["test"]["questions_without_results"] = {}
    lines = markdown(metrics).splitlines()
    assert lines[0] == "| test, 9 questions | MRR@10 | nDCG@10 | R@100 |"
    assert lines[4:] == table


def test_other_collections_follow_the_results() -> None:
    figure = {"mean": 0.4966, "low": 0.475, "high": 0.519}
    systems = {"stage2": dict.fromkeys(("RR@10", "nDCG@10", "R@100"), figure)}
    metrics = {"labels": {"stage2": "stage 2"}, "splits": {"dev": {"questions": 9, "systems": systems}}}
    lines = markdown(metrics, OTHERS).splitlines()
    columns = "difference | p (Holm) | wins | ties | losses |"
    assert lines[4:] == [
        f"| other collections, nDCG@10 | questions | existing model | stage 2 | {columns}",
        "|---|---|---|---|---|---|---|---|---|",
        "| nfcorpus | 1,234 test | .300 | .281 | −.019 [−.029, −.009] | .004 | 3 | 1,000 | 231 |",
        "| <adi> | 1,234 test | .310 | .312 | .002 [−.008, .012] | .710 | 3 | 1,000 | 231 |",
        "",
        WORSE,
    ]


def others_ref(folder: Path, others: dict[str, Any]) -> dict[str, Ref]:
    (folder / "others.json").write_text(json.dumps(others))
    return {"others": Ref("others", *["0" * 64] * 3, folder, {})}


def test_json_has_the_other_collections_and_the_sentences(tmp_path: Path) -> None:
    assert run_outcome({})["others"] is None
    assert run_outcome(others_ref(tmp_path, OTHERS))["others"] == {**OTHERS, "worse": [WORSE]}


def test_a_damaged_table_of_other_collections_is_one_line(tmp_path: Path) -> None:
    for damaged in ({}, {**OTHERS, "collections": []}, {**OTHERS, "collections": [{"collection": "adi"}]}):
        with pytest.raises(InputError, match=r"others\.json: [^\n]+$"):
            read_others(others_ref(tmp_path, damaged))


FIGURES = {"nDCG@10": {"mean": 0.4, "low": 0.35, "high": 0.45}, "R@100": {"mean": 0.9, "low": 0.85, "high": 0.95}}
DIMENSIONS: dict[str, Any] = {
    "split": "test",
    "questions": 225,
    "rows": [{"dimension": n, **FIGURES, "bytes": 4 * n, "questions_per_second": 4e5 / n} for n in (384, 192)],
}


def dimensions_ref(folder: Path, dimensions: dict[str, Any]) -> dict[str, Ref]:
    (folder / "dimensions.json").write_text(json.dumps(dimensions))
    return {"dimensions": Ref("dimensions", *["0" * 64] * 3, folder, {})}


def test_the_dimensions_follow_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = [
        "| dimensions, 225 questions of test | nDCG@10 | R@100 | bytes per passage | questions/s |",
        "|---|---|---|---|---|",
        "| 384 | .400 [.350, .450] | .900 [.850, .950] | 1,536 | 1,042 |",
        "| 192 | .400 [.350, .450] | .900 [.850, .950] | 768 | 2,083 |",
    ]
    assert markdown({"labels": {}, "splits": {}}, None, DIMENSIONS).splitlines()[-4:] == table
    refs = dimensions_ref(tmp_path, DIMENSIONS)
    assert run_outcome(refs)["dimensions"] == DIMENSIONS
    assert run_outcome({})["dimensions"] is None
    shown = Console(record=True, width=120, file=io.StringIO())
    monkeypatch.setattr("prefect.get_run_logger", lambda: logging.getLogger("test"))
    token = TERMINAL.set(shown)
    try:
        show(resolve("tiny"), refs, tmp_path)
    finally:
        TERMINAL.reset(token)
    text = " ".join(shown.export_text().split())
    assert "dimensions, 225 questions of test, mean [95 % interval]" in text
    assert "192 .400 [.350, .450] .900 [.850, .950] 768 2,083" in text


@pytest.mark.parametrize("damaged", [{}, {**DIMENSIONS, "rows": []}, {**DIMENSIONS, "rows": [{"dimension": 4}]}])
def test_a_damaged_table_of_dimensions_is_one_line(tmp_path: Path, damaged: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"dimensions\.json: [^\n]+$"):
        read_dimensions(dimensions_ref(tmp_path, damaged))
