"""A run is prepared once, without Prefect, and says what the user gave and what is to be done."""

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


def test_a_run_has_the_complete_recipe_and_what_the_user_gave(tmp_path: Path) -> None:
    run = prepare("tiny", ["stage2.epochs=2"], "tokens", refresh=["ingest"], keep=["tokens"], store=tmp_path)
    assert run.recipe == resolve("tiny", ["stage2.epochs=2"])
    assert [node.name for node in run.wanted] == ["ingest", "tokenizer", "tokens"]
    assert (run.refreshed, [order.keep for order in run.orders]) == ({"ingest"}, [False, False, True])
    given = {"recipe": "tiny", "set": ["stage2.epochs=2"], "until": "tokens", "only": None}
    options = {"refresh": ["ingest"], "keep": ["tokens"], "store": str(tmp_path), "device": None}
    assert run.parameters == given | options
    assert run.details == given | {"recipe": run.recipe.model_dump(mode="json")}


def test_the_device_is_the_last_setting_and_no_setting_of_the_record(tmp_path: Path) -> None:
    settings = ["machine.device=auto"]
    for run in (
        prepare("tiny", settings, store=tmp_path, device="cpu"),
        prepare(resolve("tiny", settings), settings, store=tmp_path, device="cpu"),
        prepare_ablation("tiny", Choice(settings), tmp_path, "cpu").run,
    ):
        assert (run.machine.device, run.orders[0].machine.device) == ("cpu", "cpu")
        assert run.parameters["set"] == run.details["set"] == settings


def test_what_a_stage_alone_reads_must_be_in_the_store(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--only: tokens needs ingest, .* `cocondenser run tiny --until ingest`"):
        prepare("tiny", only="tokens", store=tmp_path)


@pytest.mark.parametrize("kind", ["run", "ablation", "sentences"])
def test_a_flow_takes_a_run_that_is_prepared_as_it_is(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    tables = [f"table.{split}={tmp_path}" for split in ("train", "dev", "test")]
    model = [f"models.{label}=null" for label in resolve_models()] + [f"models.mine={tmp_path / 'model'}"]
    monkeypatch.setattr("flows.graph.preflight.check", lambda *_: None)
    one = {
        "run": lambda: (flow, prepare("tiny", store=tmp_path)),
        "ablation": lambda: (ablation_flow, prepare_ablation("tiny", store=tmp_path)),
        "sentences": lambda: (sentences_flow, prepare_sentences("stsb", [*model, *tables], tmp_path)),
    }
    module, prepared = one[kind]()
    run = prepared.run if kind == "ablation" else prepared
    taken: list[Any] = []
    monkeypatch.setattr(run_nodes, "run_graph", lambda given, *_, **__: taken.append(given))
    for name in ("resolve", "load"):
        for where in ("flows.graph.prepare", "flows.ablations.prepare", "flows.sentences.prepare"):
            monkeypatch.setattr(f"{where}.{name}", None, raising=False)  # nothing is read again
    module.flow_of(prepared).fn(**run.parameters)
    assert taken == [run]


def resolve_models() -> list[str]:
    from flows.sentences.recipe import resolve_sentences

    return [*resolve_sentences("stsb").models]


def test_preparing_imports_no_prefect() -> None:
    modules = "flows.graph.prepare, flows.ablations.prepare, flows.sentences.prepare"
    code = f"import sys, {modules}; sys.exit('prefect' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
