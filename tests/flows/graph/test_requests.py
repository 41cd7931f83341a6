"""The requests and the cost that a plan shows."""

import json
from pathlib import Path

import pytest
from language_models import chat, server
from typer.testing import CliRunner

from artifacts.store import Request, Store
from flows.cli.main import app
from flows.dag import nodes
from flows.graph.plan import plan
from flows.graph.requests import requests_text, with_requests
from flows.graph.text_size import text_size
from flows.recipes.recipe import Recipe, resolve
from pipeline.data.ingest import ingest
from pipeline.generate.answer_store import AnswerStore
from pipeline.generate.generate import generate
from pipeline.generate.requests import read_requests
from pipeline.language_model.chat_completion import Answer
from pipeline.runtime.work import Work, silent
from tasks.keys import key_of
from tasks.node import Node

PRICE = "generate.price_per_million_tokens={input: 10, output: 1000}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(6):
        words = " ".join(f"word{number}x{n}" for n in range(40))
        (texts / f"{number}.md").write_text(f"# A title of file {number}\n\n{words}\n")
    return texts


def settings(folder: Path, address: str) -> list[str]:
    return [f"ingest.path={folder}", f"generate.endpoint={address}", "generate.model=m", PRICE]


def build_collection(store: Store, recipe: Recipe, node: Node) -> Path:
    def make(out: Path, checkpoints: Path) -> dict:
        return ingest(node.config, Work(out, checkpoints, recipe.machine, silent))

    return store.build(Request(key_of(store, "ingest", node.config, {}), node="ingest"), make).ref.path


def test_requests_are_guessed_then_counted_and_those_with_an_answer_cost_nothing(folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with server([chat("What is it?", 100, 20)]) as running:
        recipe = resolve("text", [*settings(folder, running.address), "generate.passages=4"])
        dag = nodes(recipe)
        (guessed,) = (s.requests for s in with_requests(plan(store, dag), dag, store) if s.requests)
        assert guessed.estimated
        assert 1 <= guessed.requests <= 4
        assert guessed.cost is not None

        collection = build_collection(store, recipe, dag[0])
        (step,) = (s for s in with_requests(plan(store, dag), dag, store) if s.requests)
        counted = step.requests
        assert counted is not None
        assert (counted.requests, counted.stored, counted.at_most, counted.estimated) == (4, 0, True, False)
        assert counted.cost == pytest.approx(4 * 200 * 1000 / 1e6, rel=0.1)
        assert step.why[0].startswith("4 requests to a language model, cost at most 0.8")
        assert not (store.root / "kept").exists()

        out = tmp_path / "generated"
        out.mkdir()
        work = Work(out, tmp_path / "checkpoints", recipe.machine, silent, kept=store.kept / "generate")
        config = recipe.generate.model_copy(update={"passages": 3})
        with pytest.raises(Exception, match="no question is left"):  # the same for each passage
            generate(config, collection, None, None, None, work)
        (after,) = (s.requests for s in with_requests(plan(store, dag), dag, store) if s.requests)
        assert (after.requests, after.stored, after.at_most) == (1, 3, False)
        assert after.cost == pytest.approx(20 * 1000 / 1e6, rel=0.5)
        assert requests_text(after).startswith("1 request to a language model (3 more are answered), cost about 0.02")


def test_the_store_hashes_a_local_models_files(folder: Path, tmp_path: Path, monkeypatch) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(bytes(100))
    store = Store(tmp_path / "store")
    recipe = resolve("text", [f"ingest.path={folder}", f"generate.checkpoint={model}", "generate.passages=4"])
    dag = nodes(recipe)
    collection = build_collection(store, recipe, dag[0])
    first, *_ = read_requests(recipe.generate, collection, model)
    with AnswerStore(store.kept / "generate") as answers:
        answers.add([(first.key, Answer("What is it?", 100, 20))])
    hashed: list[Path] = []
    own = store.source_digests
    monkeypatch.setattr(store, "source_digests", lambda named: hashed.extend(named.values()) or own(named))
    (step,) = (s for s in with_requests(plan(store, dag), dag, store) if s.requests)
    assert step.requests is not None
    assert (step.requests.requests, step.requests.stored) == (3, 1)
    assert {model / "config.json", model / "model.safetensors"} <= {*hashed}


def test_the_trainings_questions_are_guessed_too(folder: Path, tmp_path: Path) -> None:
    more = ["generate.passages=4", "generate.kinds=[question, title]", "generate.questions=3"]
    dag = nodes(resolve("text", [*settings(folder, "http://localhost/v1"), *more]))
    steps = {step.node: step for step in plan(Store(tmp_path / "store"), dag)}
    by_name = {node.name: node for node in dag}
    own, written = (text_size(by_name[name], steps) for name in ("tokens", "tokens-generate"))
    assert own is not None
    assert written is not None
    assert own.train_questions is not None
    assert written.train_questions is not None
    assert 0 < written.train_questions - own.train_questions <= 4 * 2 * 3
    assert written.passages == own.passages


def test_the_command_shows_them_also_as_json(folder: Path, tmp_path: Path) -> None:
    with server([chat("What is it?")]) as running:
        given = [part for setting in settings(folder, running.address) for part in ("--set", setting)]
        options = ["text", *given, "--until", "generate", "--store", str(tmp_path / "store")]
        shown = CliRunner().invoke(app, ["plan", *options], env={"COLUMNS": "160"})
        listed = json.loads(CliRunner().invoke(app, ["plan", *options, "--json"]).stdout)
    steps = {step["node"]: step for step in listed}
    assert "fewer if some are answered, to a language model, cost at most" in shown.stdout
    assert steps["generate"]["requests"]["requests"] > 0
    assert steps["generate"]["requests"]["cost"] > 0
    assert steps["ingest"]["requests"] is None
    assert running.requests == []
