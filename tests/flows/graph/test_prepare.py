"""A run is prepared once, without Prefect. It has the user's arguments and the nodes to build."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows import flow
from flows.ablations import flow as ablation_flow
from flows.ablations.choice import Choice
from flows.ablations.prepare import prepare_ablation
from flows.graph import run_nodes
from flows.graph.prepare import prepare
from flows.recipes.recipe import resolve
from flows.sentences import flow as sentences_flow
from flows.sentences.prepare import prepare_sentences
from pipeline.errors import InputError


def test_a_run_has_the_complete_recipe_and_the_users_arguments(tmp_path: Path) -> None:
    run = prepare("tiny", ["stage2.epochs=2"], "tokens", refresh=["ingest"], keep=["tokens"], store=tmp_path)
    assert run.recipe == resolve("tiny", ["stage2.epochs=2"])
    assert [node.name for node in run.wanted] == ["ingest", "tokenizer", "tokens"]
    assert (run.refreshed, [order.keep for order in run.orders]) == ({"ingest"}, [False, False, True])
    arguments = {"recipe": "tiny", "set": ["stage2.epochs=2"], "until": "tokens", "only": None}
    options = {"refresh": ["ingest"], "keep": ["tokens"], "store": str(tmp_path), "device": None}
    assert run.parameters == arguments | options
    assert run.details == arguments | {"recipe": run.recipe.model_dump(mode="json")}


def test_the_device_is_the_last_setting_and_is_not_recorded(tmp_path: Path) -> None:
    settings = ["machine.device=auto"]
    for run in (
        prepare("tiny", settings, store=tmp_path, device="cpu"),
        prepare(resolve("tiny", settings), settings, store=tmp_path, device="cpu"),
        prepare_ablation("tiny", Choice(settings), tmp_path, "cpu").run,
    ):
        assert (run.machine.device, run.orders[0].machine.device) == ("cpu", "cpu")
        assert run.parameters["set"] == run.details["set"] == settings


def test_the_inputs_of_a_single_stage_must_be_in_the_store(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--only: tokens needs ingest, .* `cocondenser run tiny --until ingest`"):
        prepare("tiny", only="tokens", store=tmp_path)


@pytest.mark.parametrize("kind", ["run", "ablation", "sentences"])
def test_a_flow_runs_a_prepared_run_unchanged(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    tables = [f"table.{split}={tmp_path}" for split in ("train", "dev", "test")]
    model = [f"models.{label}=null" for label in resolve_models()] + [f"models.mine={tmp_path / 'model'}"]
    monkeypatch.setattr("flows.graph.preflight.check", lambda *_: None)
    store = tmp_path / "store"
    prepared_by_kind = {
        "run": lambda: (flow, prepare("tiny", store=store)),
        "ablation": lambda: (ablation_flow, prepare_ablation("tiny", store=store)),
        "sentences": lambda: (sentences_flow, prepare_sentences("stsb", [*model, *tables], store)),
    }
    module, prepared = prepared_by_kind[kind]()
    run = prepared.run if kind == "ablation" else prepared
    started: list[Any] = []
    monkeypatch.setattr(run_nodes, "run_graph", lambda run_to_start, *_, **__: started.append(run_to_start))
    for name in ("resolve", "load"):
        for module_name in ("flows.graph.prepare", "flows.ablations.prepare", "flows.sentences.prepare"):
            monkeypatch.setattr(f"{module_name}.{name}", None, raising=False)  # nothing is read again
    module.flow_of(prepared).fn(**run.parameters)
    assert started == [run]


def resolve_models() -> list[str]:
    from flows.sentences.recipe import resolve_sentences

    return [*resolve_sentences("stsb").models]


def test_preparing_imports_no_prefect() -> None:
    modules = "flows.graph.prepare, flows.ablations.prepare, flows.sentences.prepare"
    code = f"import sys, {modules}; sys.exit('prefect' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
