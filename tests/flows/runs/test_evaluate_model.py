"""`cocondenser evaluate-model`: any existing model on any collection, zero-shot."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapted import EASY, bag_of_words
from ready import PASSAGE, PROMPTS, READY, WORDS, beir, plain, sentence, theirs
from typer.testing import CliRunner
from writing import put

from artifacts.store import Store
from flows.cli.evaluate_model import print_adaptation, print_measures
from flows.cli.main import app
from flows.recipes.recipe import resolve
from flows.runs.zero_shot import zero_shot_recipe
from pipeline.evaluate.tables.short_tables import NO_QUESTIONS

ROOT = Path(__file__).parents[3]


def test_the_recipe_is_written_as_a_file(store: Store, tmp_path: Path, collection: Path) -> None:
    model, path = str(plain(tmp_path / "m")), tmp_path / "mine.yaml"
    arguments = ["evaluate-model", model, str(collection), "--store", str(store.root)]
    settings = ["--set", "encoder.pooling=mean", "--relevance", "2", "--device", "cpu"]
    result = CliRunner().invoke(app, [*arguments, *settings, "--write", str(path)])
    assert result.exit_code == 0, result.output
    expected = zero_shot_recipe(store, model, str(collection), ["encoder.pooling=mean", "evaluate.relevance=2"])[0]
    assert resolve(str(path)) == expected
    planned = json.loads(CliRunner().invoke(app, ["plan", str(path), "--store", str(store.root), "--json"]).stdout)
    assert [step["node"] for step in planned] == READY


def test_an_adapted_model_is_planned_with_its_start(store: Store, tmp_path: Path, collection: Path) -> None:
    model, path = str(sentence(tmp_path / "m")), tmp_path / "mine.yaml"
    arguments = ["evaluate-model", model, str(collection), "--adapt", "--store", str(store.root), "--write", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    recipe = resolve(str(path))
    assert recipe == zero_shot_recipe(store, model, str(collection), adapt=True)[0]
    assert (recipe.adapt.queries, recipe.evaluate.fusions) == (1000, [["bm25", "model"]])
    planned = json.loads(CliRunner().invoke(app, ["plan", str(path), "--store", str(store.root), "--json"]).stdout)
    own = ["adapted", "encode-adapted", "index-adapted", "search-adapted"]
    assert [step["node"] for step in planned] == [*READY[:-2], *own, *READY[-2:]]
    refused = CliRunner().invoke(app, [*arguments[:-2], "--set", "bm25.run=run.trec"])
    expected = "adapt: bm25.run has no index for generated queries: set adapt.queries to null"
    assert str(refused.exception) == f"--set bm25.run=run.trec: {expected}"


def test_the_differences_of_an_adapted_model_are_shown(capsys) -> None:
    figures = {"mean": 0.0125, "low": 0.01, "high": 0.02, "p_holm": 0.004, "wins": 5, "ties": 1, "losses": 2}
    labels = {"model": "existing model", "adapted": "adapted without questions"}
    labels |= {"fusion": "BM25 + adapted without questions", "bm25 + model": "BM25 + existing model"}
    pairs = ("adapted - model", "fusion - bm25 + model", "fusion - bm25")
    differences = {pair: dict.fromkeys(("RR@10", "nDCG@10", "R@100", "AP"), figures) for pair in pairs}
    print_adaptation({"labels": labels, "splits": {"test": {"differences": differences}, "dev": {}}})
    output = capsys.readouterr().out
    assert "test: adapted without questions − existing model, difference" in output
    assert "test: BM25 + adapted without questions − BM25 + existing model, difference" in output
    assert output.count(".004") == 6
    assert "dev" not in output


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_an_adapted_model_is_searched_and_exported(served: dict[str, str], tmp_path: Path) -> None:
    model, folder, store = bag_of_words(tmp_path / "first"), beir(tmp_path / "lamps", documents=40), tmp_path / "store"

    def call(*arguments: str) -> str:
        command = [sys.executable, "-m", "flows.cli", *arguments, "--store", str(store)]
        result = subprocess.run(command, env=served, cwd=ROOT, capture_output=True, text=True, timeout=500)
        assert result.returncode == 0, result.stderr
        return result.stdout

    changes = [f"adapt.{field}={json.dumps(value)}" for field, value in EASY.model_dump(mode="json").items()]
    changes += ["evaluate.bootstrap_samples=100", "machine.precision=float32"]
    changes.append(f"evaluate.others=[{beir(tmp_path / 'ships', documents=30)}]")
    settings = [word for change in changes for word in ("--set", change)]
    output = json.loads(
        call("evaluate-model", str(model), str(folder), "--adapt", "--device", "cpu", "--json", *settings)
    )
    systems = output["results"]["splits"]["test"]["systems"]
    assert [*systems] == ["bm25", "model", "adapted", "fusion", "bm25 + model"]
    [ships] = output["others"]["collections"]
    assert (ships["collection"], ships["split"], ships["questions"], ships["model"]) == ("ships", "test", 8, "adapted")
    adapted = output["artifacts"]["adapted"]
    assert adapted["metrics"]["used"] == "yes"
    assert (Path(adapted["path"]) / "2_Dense").is_dir()
    assert json.loads(call("search", "Which ledger?", "--by", "dense", "--json"))
    out = tmp_path / "exported"
    exported = json.loads(call("export", str(out), "--only", "model", "--only", "onnx", "--json"))
    assert exported["onnx"]["files"]["model.onnx"]["greatest_difference"] < 1e-5  # from the vectors of torch
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    expected = theirs(out / "model", "document", [f"{row['title']} {row['text']}".strip() for row in rows])
    shards = sorted(Path(output["artifacts"]["encode-adapted"]["path"]).glob("*.npy"))
    np.testing.assert_allclose(np.concatenate([np.load(path) for path in shards]), expected, atol=2e-3)  # float16


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_folder_without_questions_is_indexed_and_searched(served: dict[str, str], tmp_path: Path) -> None:
    """Neither the texts nor BEIR's corpus.jsonl alone give a question: nothing is measured, and search answers."""
    model, store, texts, corpus = sentence(tmp_path / "m"), tmp_path / "store", tmp_path / "texts", tmp_path / "corpus"
    for name in ("ledger", "harbour", "violin"):
        put(texts, f"{name}.txt", f"the {name} and a glacier")
    put(corpus, "corpus.jsonl", *(json.dumps({"_id": f"d{n}", "text": f"a {word}"}) for n, word in enumerate(WORDS)))

    def call(*arguments: str) -> tuple[Any, str]:
        command = [sys.executable, "-m", "flows.cli", *arguments, "--store", str(store), "--json"]
        result = subprocess.run(command, env=served, cwd=ROOT, capture_output=True, text=True, timeout=500)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout), result.stderr

    run = ["run", "text", "--model", str(model), "--adapt", "--device", "cpu"]
    settings = [f"ingest.path={texts}", "attention.sections=0", "machine.precision=float32", "adapt.queries=10"]
    output, stderr = call(*run, *(word for setting in settings for word in ("--set", setting)))
    assert output["results"]["splits"] == {}
    assert output["notes"][0] == NO_QUESTIONS
    assert NO_QUESTIONS in stderr
    assert any("no questions from ingest.questions" in line for line in output["notices"]["ingest"])
    assert NO_QUESTIONS in (Path(output["artifacts"]["report"]["path"]) / "report.html").read_text()
    found, _ = call("search", "Where is the violin?")
    assert (found["by"], found["fusion"]["why"], len(found["answers"])) == ("fusion", "default: no dev questions", 3)
    assert found["answers"][0]["doc_id"] == "violin.txt"
    output, _ = call("evaluate-model", str(model), str(corpus), "--device", "cpu", "--set", "machine.precision=float32")
    assert output["notes"][0] == NO_QUESTIONS
    assert call("search", "Which fjord?", "--by", "bm25")[0]["answers"][0]["doc_id"] == f"d{WORDS.index('fjord')}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_models_share_the_stages_of_the_collection(served: dict[str, str], tmp_path: Path) -> None:
    first, folder = sentence(tmp_path / "first", prompts=PROMPTS), beir(tmp_path / "lamps", ["train", "dev", "test"])
    second, store = plain(tmp_path / "second", seed=3), tmp_path / "store"

    def call(model: Path) -> tuple[dict, str]:
        options = ("--device", "cpu", "--json")
        changes = ("encode.passage_tokens=40", "evaluate.bootstrap_samples=100", "machine.precision=float32")
        settings = [word for change in changes for word in ("--set", change)]
        command = [
            sys.executable,
            "-m",
            "flows.cli",
            "evaluate-model",
            str(model),
            str(folder),
            *options,
            *settings,
            "--store",
            str(store),
        ]
        result = subprocess.run(command, env=served, cwd=ROOT, capture_output=True, text=True, timeout=500)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout), result.stderr

    output, stderr = call(first)
    assert output["recipe"] == "first on lamps"
    assert [*output["artifacts"]] == READY
    for split in ("dev", "test"):
        systems = output["results"]["splits"][split]["systems"]
        assert {*systems} == {"bm25", "model", "fusion"}
        assert {"mean", "low", "high"} <= {*systems["model"]["R@1000"]}
        assert systems["model"]["R@1000"]["mean"] == 1.0  # all 24 passages are in every list
    shards = sorted(Path(output["artifacts"]["encode-model"]["path"]).glob("*.npy"))
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    expected = theirs(first, "document", [f"{row['title']} {row['text']}".strip() for row in rows], prompt=PASSAGE)
    np.testing.assert_allclose(np.concatenate([np.load(path) for path in shards]), expected, atol=1e-3)  # float16
    assert "built" in stderr
    again, stderr = call(first)
    assert again == output
    assert "built" not in stderr
    other, stderr = call(second)
    same = [node for node in READY if other["artifacts"][node]["digest"] == output["artifacts"][node]["digest"]]
    assert same == ["ingest", "tokenizer", "tokens", "bm25"]
    built = [line.split()[0] for line in stderr.splitlines() if " built " in line]
    assert built == ["tokenizer", *READY[4:]]
    listed = json.loads(CliRunner().invoke(app, ["runs", "--json", "--store", str(store)]).stdout)
    assert [run["recipe"] for run in listed] == ["second on lamps", "first on lamps", "first on lamps"]


def test_hits_are_shown_where_there_are_no_judgements(capsys) -> None:
    figures = {"hits@5": {"mean": 0.25, "low": 0.2, "high": 0.3}}
    answered = {"questions": 8, "systems": {"model": figures}}
    print_measures(
        {"labels": {"model": "MiniLM"}, "splits": {"test": {"questions": 0, "systems": {}, "answers": answered}}}
    )
    output = capsys.readouterr().out
    assert "test: 8 questions with answers" in output
    assert "hits@5" in output
    assert ".250" in output
    assert "0 questions" not in output
