"""The steps of a plan, with stages that write one line each."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import updates
from ready import plain
from transformers import AutoModelForMaskedLM

from artifacts.store import Request, Store
from flows.dag import nodes
from flows.graph import preflight
from flows.graph.plan import plan
from flows.graph.selection import up_to, upstream
from flows.recipes.recipe import resolve
from pipeline.errors import InputError
from pipeline.runtime import hub
from pipeline.runtime.work import Machine
from tasks.keys import key_of, sources_of
from tasks.node import Node

TEXT = (
    "{reader: text, path: x, pattern: '*', documents: lines, id_key: '', title_key: '', text_key: text, "
    "metadata: [], passage_words: null, endings: [], questions: [], heading_words: 2, sentence_words: [4, 40], "
    "crop_share: [0.05, 0.5], remaining_words: 20, kept_share: 0.1, dev_share: 0.1, test_share: 0.1, seed: 42}"
)


def file_node(path: Path, **config) -> Node:
    """An ingest node that reads one file."""
    settings = [f"ingest.{name}={value}" for name, value in {"path": path, **config}.items()]
    return nodes(resolve("tiny", [f"ingest={TEXT}", *settings]))[0]


def make(store: Store, node: Node, text: str = "made", inputs: dict | None = None):
    def write(out: Path, checkpoints: Path) -> dict:
        (out / "file").write_text(text)
        return {}

    return store.build(Request(key_of(store, node.stage, node.config, inputs or {}), node=node.name), write).ref


def test_a_missing_gpu_is_reported_before_anything_is_built(tmp_path: Path, monkeypatch) -> None:
    recipe = resolve("tiny", ["machine.device=cuda"])
    dag, machine, store = nodes(recipe), recipe.machine, Store(tmp_path)
    monkeypatch.setattr(preflight, "gpus", lambda: 0)
    with pytest.raises(InputError, match=r"^machine\.device: cuda, but there is no CUDA device here"):
        preflight.check(store, dag, dag, machine)
    with pytest.raises(InputError, match=r"^machine\.device: cuda"):  # trainings do not run on the cluster
        preflight.check(store, dag, up_to(dag, "condenser"), machine.model_copy(update={"ray": "local"}))
    preflight.check(store, dag, up_to(dag, "tokens"), machine)
    preflight.check(store, dag, dag, machine.model_copy(update={"device": "cpu"}))
    monkeypatch.setattr(preflight, "gpus", lambda: 1)
    preflight.check(store, dag, dag, machine)


def test_a_macs_gpu_is_refused_elsewhere_for_several_processes_and_on_ray(tmp_path: Path, monkeypatch) -> None:
    recipe = resolve("tiny", ["machine.device=mps", "machine.ranks=auto"])
    dag, machine, store = nodes(recipe), recipe.machine, Store(tmp_path)
    monkeypatch.setattr(preflight, "has_apple_silicon", lambda: False)
    with pytest.raises(InputError, match=r"^machine\.device: mps, but this is no Mac with Apple silicon"):
        preflight.check(store, dag, dag, machine)
    preflight.check(store, dag, up_to(dag, "tokens"), machine)
    monkeypatch.setattr(preflight, "has_apple_silicon", lambda: True)
    preflight.check(store, dag, dag, machine)
    with pytest.raises(InputError, match=r"^machine\.ranks: 2, but a Mac's GPU has one process"):
        preflight.check(store, dag, dag, machine.model_copy(update={"ranks": 2}))
    with pytest.raises(InputError, match=r"^machine\.device: mps, but parts on a Ray cluster use cuda or cpu"):
        preflight.check(store, dag, dag, machine.model_copy(update={"ray": "local"}))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("a line\n")
    return path


def test_an_existing_artifact_is_reused(store: Store, source: Path) -> None:
    node = file_node(source)
    ref = make(store, node)
    (step,) = plan(store, [node])
    assert (step.action, step.ref, step.why, step.seconds) == ("reuse", ref, [], 0.0)


def test_a_plan_shows_the_reason_and_the_expected_cost(store: Store, source: Path) -> None:
    make(store, file_node(source))
    (step,) = plan(store, [file_node(source, passage_words=5)])
    assert step.action == "build"
    assert step.why == ["config passage_words: null -> 5"]
    assert step.bytes == len("made")
    assert step.seconds is not None
    source.write_text("another line\n")
    (step,) = plan(store, [file_node(source)])
    assert step.why == ["source path changed"]


def test_the_expected_cost_is_only_that_of_the_same_recipe(store: Store, source: Path) -> None:
    """The twelve minutes of the demo are no estimate for MS MARCO."""
    node = file_node(source)
    key = key_of(store, node.stage, node.config, {})
    store.build(Request(key, node=node.name, recipe="small"), lambda out, _: (out / "file").write_text("made") and {})
    changed = file_node(source, passage_words=5)
    assert plan(store, [changed], "large")[0].seconds is None
    assert plan(store, [changed], "small")[0].bytes == len("made")


def test_the_folder_of_a_source_is_ignored(store: Store, source: Path, tmp_path: Path) -> None:
    make(store, file_node(source))
    other = tmp_path / "elsewhere" / source.name
    other.parent.mkdir()
    other.write_bytes(source.read_bytes())
    assert plan(store, [file_node(other)])[0].action == "reuse"


def test_a_missing_source_is_a_reason_to_build(store: Store, source: Path) -> None:
    node = file_node(source)
    source.unlink()
    (step,) = plan(store, [node])
    assert step.action == "build"
    assert str(source) in step.why[0]


def test_nodes_after_one_to_build_are_unknown(store: Store, source: Path) -> None:
    ingest = file_node(source)
    tokenizer = Node("tokenizer", "tokenizer", resolve("tiny").tokenizer, {"collection": ingest})
    ingest_ref = make(store, ingest)
    make(store, tokenizer, inputs={"collection": ingest_ref})
    assert [step.action for step in plan(store, [ingest, tokenizer])] == ["reuse", "reuse"]
    source.write_text("changed\n")
    steps = plan(store, [ingest, tokenizer])
    assert [step.action for step in steps] == ["build", "unknown"]
    assert steps[1].why == ["unknown until ingest is built"]
    inputs = {f"input{n}": replace(ingest, name=f"ingest{n}") for n in range(3)}
    *_, last = plan(store, [*inputs.values(), Node("tokens", "tokens", tokenizer.config, inputs)])
    assert last.why == ["unknown until ingest0, ingest1 and ingest2 are built"]


def test_a_broken_artifact_is_reported_and_not_removed(store: Store, source: Path) -> None:
    node = file_node(source)
    ref = make(store, node)
    (ref.path / "file").write_text("longer than before")
    (step,) = plan(store, [node])
    assert step.action == "build"
    assert "missing or broken" in step.why[0]
    assert ref.path.exists()


def test_only_reports_the_command_that_builds_the_missing_input(store: Store, source: Path) -> None:
    ingest = file_node(source)
    tokenizer = Node("tokenizer", "tokenizer", resolve("tiny").tokenizer, {"collection": ingest})
    with pytest.raises(InputError, match=r"needs ingest, which is not in .*`cocondenser run mine --until ingest`"):
        upstream(store, [ingest, tokenizer], [tokenizer], "mine")
    ingest_ref = make(store, ingest)
    assert upstream(store, [ingest, tokenizer], [tokenizer], "mine") == {"ingest": ingest_ref}


def test_preflight_reports_a_missing_source(store: Store, source: Path) -> None:
    node = file_node(source)
    preflight.check(store, [node], [node])
    source.unlink()
    with pytest.raises(InputError, match=r"lines\.txt"):
        preflight.check(store, [node], [node])


@pytest.mark.parametrize("stage", ["condenser", "cocondenser"])
def test_a_finished_checkpoint_that_does_not_fit_is_reported_before_a_run(
    store: Store, tmp_path: Path, stage: str
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    recipe = resolve("tiny", [f"{stage}.checkpoint={tmp_path}"])
    dag = nodes(recipe)
    with pytest.raises(InputError, match=rf"{stage}\.checkpoint: .*config\.json: model_type 'gpt2'"):
        preflight.check(store, dag, [node for node in dag if node.name == stage])


def test_an_objective_that_the_initial_model_cannot_have_is_reported_before_a_run(store: Store, tmp_path: Path) -> None:
    config = updates.configuration("deberta-v2", updates.SMALL, 0.0)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    dag = nodes(resolve("tiny", [f"initial.checkpoint={tmp_path}"]))
    with pytest.raises(InputError, match=r"^condenser\.objective: condenser needs packed layers"):
        preflight.check(store, dag, dag)


@pytest.mark.parametrize(
    ("setting", "until"),
    [
        ("cross_encoder.checkpoint", "tokens-cross-encoder"),
        ("rounds.miner", "tokens-miner"),
        ("cross_encoder_initial.checkpoint", "tokens-cross-initial"),
    ],
)
def test_a_partial_run_accepts_no_model_that_the_whole_run_refuses(
    store: Store, tmp_path: Path, setting: str, until: str
) -> None:
    folder = plain(tmp_path / "model")
    path = folder / "config.json"
    own = json.loads(path.read_text())
    labels = {"id2label": {"0": "LABEL_0"}, "architectures": ["BertForSequenceClassification"]}
    path.write_text(json.dumps({**own, **(labels if setting == "cross_encoder.checkpoint" else {}), "vocab_size": 7}))
    settings = [f"{setting}={folder}", "rerank={depth: 9, splits: [dev]}"]
    dag = nodes(resolve("tiny", settings))
    for wanted in (dag, up_to(dag, until)):
        with pytest.raises(
            InputError, match=rf"^{setting}: .*config\.json: vocab_size is 7, but the weights have \d+ "
        ):
            preflight.check(store, dag, wanted)
    preflight.check(store, dag, up_to(dag, "tokens"))


def test_a_partial_run_lists_the_sources_of_a_node_once_for_each_check(monkeypatch) -> None:
    """Of pydocs they are thousands of files: to list them for each stage takes seconds."""
    listed: list[str] = []

    def count(stage: str, config: Any) -> dict[str, Path]:
        listed.append(stage)
        return sources_of(stage, config)

    monkeypatch.setattr(preflight, "sources_of", count)
    dag = nodes(resolve("tiny"))
    preflight.missing_inputs(dag, up_to(dag, "ingest"))
    assert listed.count("ingest") == 2  # its own check, and whether it reads a model


def test_a_partial_run_does_not_list_the_sources_of_other_stages(store: Store) -> None:
    general = "pretraining={reader: pydocs, distributions: [nope], docstring_characters: 9, passage_words: 9, "
    dag = nodes(resolve("tiny", [general + "remaining_words: 9, passage_overlap: 0, limit: null, metadata: []}"]))
    preflight.check(store, dag, up_to(dag, "ingest"))


def test_the_model_of_an_existing_artifact_is_not_downloaded(store: Store, source: Path, monkeypatch) -> None:
    monkeypatch.setattr("pipeline.runtime.hub.reachable", lambda seconds: False)
    monkeypatch.setattr("pipeline.runtime.hub.cached", lambda *a: None)
    ingest = file_node(source)
    config = resolve("tiny", ["tokenizer.pretrained=some/model"]).tokenizer
    tokenizer = Node("tokenizer", "tokenizer", config, {"collection": ingest})
    dag = [ingest, tokenizer]
    with pytest.raises(InputError, match="some/model is not on this machine: `hf download some/model`"):
        preflight.check(store, dag, dag)
    make(store, tokenizer, inputs={"collection": make(store, ingest)})
    preflight.check(store, dag, dag)


def test_the_general_text_is_reported_with_the_recipes_section(store: Store, monkeypatch) -> None:
    monkeypatch.setattr("pipeline.runtime.hub.reachable", lambda seconds: False)
    marco = {node.name: node for node in nodes(resolve("marco"))}
    message = " ".join(preflight.missing(marco["ingest-pretraining"]))
    assert "wikimedia/wikipedia" in message
    assert "pretraining.passages.folder" in message


def test_a_path_that_holds_the_sections_name_is_shown_unchanged(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = "my.ingest.folder/ingest.path"
    dag = nodes(resolve("tiny", [f"pretraining={{reader: beir, folder: {folder}, document_key: '', metadata: []}}"]))
    (message,) = [line for node in dag for line in preflight.missing(node)]
    assert message == f"pretraining.folder: {tmp_path / folder} is not a folder"


@pytest.mark.parametrize("field", ["cross_encoder.checkpoint", "cross_encoder_initial.checkpoint", "rounds.miner"])
def test_an_absent_model_of_other_texts_is_reported_with_its_field(field: str, tmp_path: Path, store: Store) -> None:
    def refused(folder: str) -> str:
        dag = nodes(resolve("tiny", [f"{field}={folder}", "rerank={depth: 9, splits: [dev]}"]))
        with pytest.raises(InputError) as error:
            preflight.check(store, dag, dag)
        return str(error.value)

    assert refused("gone") == f"{field}: {Path.cwd() / 'gone'}: no such file or folder"
    assert refused(str(tmp_path)).startswith(f"{field}: {tmp_path}: has no tokenizer: tokenizer.json, ")


def test_another_start_of_cross_encoders_that_is_not_here_is_named(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "reachable", lambda seconds: False)
    dag = nodes(resolve("tiny", ["cross_encoder_initial.pretrained=a/b", "rerank={depth: 9, splits: [dev]}"]))
    line = (
        "model a/b is not on this machine: `hf download a/b`, or set cross_encoder_initial.checkpoint to a local folder"
    )
    with pytest.raises(InputError, match=re.escape(line)):
        preflight.check(store, dag, dag)


def test_an_absent_first_stage_of_the_whole_texts_is_reported_with_its_field() -> None:
    dag = [node for node in nodes(resolve("text", ["bm25.run=gone"])) if node.stage == "bm25"]
    assert [node.name for node in dag] == ["bm25", "bm25-whole"]
    assert [preflight.missing(node) for node in dag] == [
        [f"bm25.run: {Path.cwd() / 'gone'}: no such file or folder"]
    ] * 2


def test_the_machine_is_in_no_key(store: Store, source: Path) -> None:
    assert not set(Machine.model_fields) & set(key_of(store, "ingest", file_node(source).config, {}).config)
