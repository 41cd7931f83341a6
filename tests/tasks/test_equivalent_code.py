"""Older code that builds the same bytes: its artifacts stay valid, and no others."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from artifacts.keys import Equivalent, Key, code_hash, make_key
from artifacts.store import Request, Store
from flows.dag import nodes
from flows.recipes.recipe import resolve
from pipeline.config import Config
from tasks import equivalent_code, older_names
from tasks.equivalent_code import compare_builds, read_table, updated
from tasks.keys import stage_code
from tasks.stages import STAGES

OLD, NEW, NEWEST = ({"pipeline/train.py": name} for name in ("old", "new", "newest"))
NONE = Equivalent()
LABELLED = ["stage2.loss=soft_labels", "rerank={depth: 10, splits: [dev]}", "attention.sections=9"]


def key(code: dict[str, str], equivalent: Equivalent = NONE, **config: object) -> Key:
    return make_key("train", code, {"steps": 3, **config}, {}, {}, {}, equivalent)


def build_artifact(store: Store, key: Key, text: str = "bytes", name: str = "model.bin") -> Path:
    def make(out: Path, checkpoints: Path) -> dict[str, float]:
        (out / name).write_text(text)
        return {}

    return store.build(Request(key, node="train"), make).ref.path


def never(out: Path, checkpoints: Path) -> dict[str, float]:
    raise AssertionError("is built again")


def test_an_artifact_of_equivalent_code_is_reused(store: Store) -> None:
    path = build_artifact(store, key(OLD))
    same = key(NEW, Equivalent(frozenset({code_hash(OLD)})))
    ref = store.lookup(same)
    assert ref is not None
    assert ref.path == path
    again = store.build(Request(same, node="train"), never)
    assert (again.hit, again.kept, again.ref.path) == (True, False, path)
    assert store.record(same.hex) is None  # the older record stays the artifact's history


def test_other_code_and_other_settings_are_not_equivalent(store: Store) -> None:
    build_artifact(store, key(OLD))
    assert store.lookup(key(NEW)) is None
    assert store.lookup(key(NEW, Equivalent(frozenset({code_hash(NEWEST)})))) is None
    assert store.lookup(key(NEW, Equivalent(frozenset({code_hash(OLD)})), rate=0.1)) is None


def test_a_renamed_stage_and_field_are_the_same(store: Store) -> None:
    older = make_key("scores", OLD, {"rate": 1}, {}, {"pseudo": "a"}, {})
    path = build_artifact(store, older)

    def todays(config: Mapping[str, Any]) -> dict[str, Any]:
        return {"learning_rate": config["rate"]} if "rate" in config else dict(config)

    same = Equivalent(frozenset({code_hash(OLD)}), ("scores",), todays, older_names.todays_inputs)
    ref = store.lookup(make_key("soft_labels", NEW, {"learning_rate": 1}, {}, {"pseudo_labels": "a"}, {}, same))
    assert ref is not None
    assert ref.path == path
    other = make_key("soft_labels", NEW, {"learning_rate": 2}, {}, {"pseudo_labels": "a"}, {}, same)
    assert store.lookup(other) is None


ADAM = {"learning_rate": 0.1}


@pytest.mark.parametrize(
    ("stage", "older", "todays"),
    [
        ("condenser", {"steps": None, "epochs": 8.0, "tokens": None}, {"budget": "8 epochs"}),
        ("condenser", {"steps": 0, "epochs": None, "tokens": None}, {"budget": None}),
        ("cocondenser", {"steps": None, "epochs": None, "tokens": 9}, {"budget": "9 tokens"}),
        ("ict", {"steps": 6, "epochs": None}, {"budget": "6 steps"}),
        ("ict", {"optimiser": ADAM | {"seed": 5}}, {"optimiser": ADAM, "seed": 5}),
        ("index", {"pq_bytes": 8, "ivf_lists": 0, "seed": 0}, {"pq_m": 8, "nlist": "auto", "seed": 0}),
        ("search", {"unjudged": False}, {"unjudged_train_questions": False}),
        ("encode", {"encoder": {"projection": 0}}, {"encoder": {"projection": None}}),
        ("tokens", {"max_tokens": 0}, {"max_tokens": None}),
        ("ingest", {"parts": [{"passage_words": 0}]}, {"parts": [{"passage_words": None}]}),
        (
            "sentence_summary",
            {"trainings": [{"size": 0, "epochs": 0}, {"size": 0, "epochs": 4}, {"size": 9, "epochs": 4}]},
            {"trainings": [{"size": 0, "epochs": 0}, {"size": None, "epochs": 4}, {"size": 9, "epochs": 4}]},
        ),
        ("evaluate", {"neighbours": [50]}, {"nb_recall": [50]}),
    ],
)
def test_older_configurations_are_converted_to_todays(
    stage: str, older: dict[str, Any], todays: dict[str, Any]
) -> None:
    assert older_names.todays_config(stage, older) == todays


def test_a_training_has_one_seed() -> None:
    older = {"seed": 1, "optimiser": ADAM | {"seed": 1}, "max_queries": 0, "subset_seed": 4, "mix": "twice"}
    assert older_names.todays_config("finetune", older) == {
        "seed": 1,
        "optimiser": ADAM,
        "train_subset": {"queries": None, "seed": 4},
        "mix_negatives": "separate_epochs",
    }
    assert older_names.todays_config("finetune", older | {"seed": 2}) is None


def test_a_configuration_of_today_stays_unchanged() -> None:
    for node in nodes(resolve("tiny", LABELLED)):
        config = node.config.model_dump(mode="json") | {
            name: value.model_dump(mode="json") for name, value in node.shared.items() if isinstance(value, Config)
        }
        assert older_names.todays_config(node.stage, config) == config, node.name


def test_a_damaged_artifact_of_equivalent_code_is_not_reused(store: Store) -> None:
    path = build_artifact(store, key(OLD))
    (path / "model.bin").write_text("other bytes")
    assert store.lookup(key(NEW, Equivalent(frozenset({code_hash(OLD)})))) is None


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("bytes", "model.bin", None),
        ("others", "model.bin", "train: model.bin differs"),
        ("bytes", "weights.bin", "train: model.bin differs"),
    ],
)
def test_only_equal_bytes_enter_the_table(tmp_path: Path, text: str, name: str, problem: str | None) -> None:
    before, after = Store(tmp_path / "before"), Store(tmp_path / "after")
    build_artifact(before, key(OLD))
    build_artifact(after, key(NEW), text, name)
    comparison = compare_builds(before.records(), after.records(), [before.objects, after.objects])
    assert comparison.different == ({} if problem is None else {"train": problem})
    assert comparison.codes == ({"train": (code_hash(OLD), code_hash(NEW))} if problem is None else {})


@pytest.mark.parametrize(("mean", "problem"), [(0.5, None), (0.6, "evaluate: metrics.json differs")])
def test_a_field_that_was_renamed_in_metrics_is_no_difference(tmp_path: Path, mean: float, problem: str | None) -> None:
    stores = [Store(tmp_path / name) for name in ("before", "after")]
    contents = {"config": {"neighbours": 3}, "mean": 0.5}, {"config": {"nb_recall": 3}, "mean": mean}
    for store, code, content in zip(stores, (OLD, NEW), contents, strict=True):

        def make(out: Path, checkpoints: Path, content: dict[str, Any] = content) -> dict[str, float]:
            (out / "metrics.json").write_text(json.dumps(content))
            return {}

        store.build(Request(make_key("evaluate", code, {}, {}, {}, {}), node="evaluate"), make)
    both = [[*store.records()] for store in stores]
    comparison = compare_builds(*both, [store.objects for store in stores])
    assert comparison.different == ({} if problem is None else {"evaluate": problem})


@pytest.mark.parametrize(("today", "line"), [("bytes", "1 stages"), ("others", "train: train: model.bin differs")])
def test_the_command_compares_both_builds_and_writes_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], today: str, line: str
) -> None:
    """The builds themselves take minutes: here each of them is one artifact."""
    older, table = tmp_path / "older", tmp_path / "today" / "table.json"
    (older / "flows" / "recipes").mkdir(parents=True)
    (older / "flows" / "recipes" / "base.yaml").write_text("condenser:\n  steps: 3\n")
    shutil.copytree(older, tmp_path / "today")
    table.write_text('{"mine": {"a": "b"}}')
    ran: list[tuple[Path, list[str]]] = []

    def run_command(code: Path, words: list[str], store: Path) -> None:
        ran.append((code, words))
        build_artifact(Store(store), *((key(OLD), "bytes") if code == older else (key(NEW), today)))

    monkeypatch.setattr(equivalent_code, "run_command", run_command)
    monkeypatch.setattr(equivalent_code, "checkout", lambda commit: nullcontext(older))
    monkeypatch.setattr(equivalent_code, "TABLE", table)
    monkeypatch.setattr(equivalent_code, "ROOT", tmp_path / "today")
    monkeypatch.setattr(equivalent_code, "read_table", lambda: json.loads(table.read_text()))
    (tmp_path / "today" / "flows" / "recipes" / "base.yaml").write_text("condenser:\n  budget: 3 steps\n")
    monkeypatch.setattr("sys.argv", ["equivalent_code", "f19", "--only", "methods", "--stores", str(tmp_path)])
    same = today == "bytes"
    assert equivalent_code.main() == (0 if same else 1)
    assert line in capsys.readouterr().out
    written = json.loads(table.read_text())
    assert written == {"mine": {"a": "b"}} | ({"train": {code_hash(OLD): code_hash(NEW)}} if same else {})
    assert [code for code, _ in ran] == [older, tmp_path / "today"]
    assert "condenser.steps=0" in ran[0][1]
    assert "condenser.budget=null" in ran[1][1]


def test_a_checkout_is_temporary_and_runs_its_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    (repository / "flows").mkdir(parents=True)
    program = "import sys; from pathlib import Path; Path(sys.argv[-1]).write_text(' '.join(sys.argv[1:-1]))"
    (repository / "flows" / "cli.py").write_text(program)
    own = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "Program"]):
        subprocess.run([*own, *words], check=True)
    (repository / "flows" / "cli.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr(equivalent_code, "ROOT", repository)
    with equivalent_code.checkout("HEAD") as code:
        equivalent_code.run_command(code, ["run", "tiny"], tmp_path / "store")
    assert (tmp_path / "store").read_text() == "run tiny --store"
    assert not code.exists()
    with pytest.raises(subprocess.CalledProcessError):
        equivalent_code.run_command(repository, ["run", "tiny"], tmp_path / "store")


def test_older_hashes_point_to_the_newest_code() -> None:
    table = updated({}, {"train": ("a", "b")})
    assert table == {"train": {"a": "b"}}
    assert updated(table, {"train": ("b", "c")}) == {"train": {"a": "c", "b": "c"}}
    assert updated(table, {"train": ("b", "b")}) == table
    assert updated(table, {"train": ("x", "y")}) == {"train": {"x": "y"}}  # b builds other bytes than y


def test_the_table_points_to_todays_code() -> None:
    """Fails when a stage's code changes: either its bytes stay equal, and `make equivalent SINCE=COMMIT` writes the
    table again, or its entry is deleted, and its artifacts are built again."""
    stale = {stage for stage, entry in read_table().items() if {*entry.values()} - {code_hash(stage_code(stage))}}
    assert not stale
    assert {*read_table()} <= {*STAGES}
