"""New and changed files: which run an update continues, and a whole update on a small folder."""

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ready import READY

from artifacts.keys import make_key
from artifacts.records import Ref
from artifacts.runs import record_run, runs
from artifacts.store import Request, Store
from flows.dag import nodes
from flows.graph import preflight
from flows.recipes.recipe import configuration, resolve
from flows.updates.counts import update_counts, update_summary
from flows.updates.prepare import ineffective_changes, prepare_update, resolve_update
from pipeline.errors import InputError

OF_TEXTS = [
    *READY[:-2],
    *("ingest-whole", "tokens-whole", "bm25-whole", "encode-whole", "index-whole", "evaluate", "report"),
]
"""The nodes of an update. Those of whole texts, from which no questions are cut, are for `search`."""


def record(store: Store, hour: int, *settings: str, dense: str | None = "stage2", recipe: str = "text") -> Path:
    """Records a finished run. Returns the folder of its model, or of BM25's index."""

    def ref(node: str) -> Ref:
        digest = hashlib.sha256(f"{node} {hour}".encode()).hexdigest()
        (store.objects / digest).mkdir(parents=True)
        return Ref(node, digest, digest, digest, store.objects / digest, {})

    dense_nodes = [dense, f"index-{dense}"] if dense else []
    refs = {n: ref(n) for n in ("ingest", "tokenizer", "bm25", *dense_nodes, "evaluate")}
    metrics = {"dense": dense, "winner_on_dev": "dense" if dense else "bm25", "fusion": None}
    (refs["evaluate"].path / "metrics.json").write_text(json.dumps(metrics))
    details = {"recipe": resolve(recipe, settings).model_dump(mode="json"), "set": list(settings)}
    record_run(store, resolve(recipe).name, refs, details, datetime(2026, 1, 1, hour, tzinfo=UTC))
    return refs[dense or "bm25"].path


def test_the_last_dense_model_of_the_newest_run_is_used_for_new_files(store: Store) -> None:
    record(store, 1, "ingest.path=notes")
    model = record(store, 2, "ingest.path=notes", "ingest.passage_words=50", "stage2.epochs=9")
    record(store, 3, recipe="tiny")
    resolved, settings, engine = resolve_update(store, "text", [])
    assert engine.model == "stage2"
    assert resolved.model == model
    assert resolved.tokenizer.path == engine.run.nodes["tokenizer"].path
    assert (resolved.ingest.path, resolved.ingest.passage_words) == (Path("notes"), 50)
    assert resolve("text", settings) == resolved
    assert [n.name for n in nodes(resolved)] == OF_TEXTS


def test_a_setting_of_a_training_changes_nothing_in_an_update(monkeypatch, store: Store) -> None:
    monkeypatch.setattr(preflight, "check", lambda *arguments: None)
    record(store, 1, "ingest.path=notes", "stage2.epochs=9")
    changes = ["stage1.epochs=7", "bm25.k1=2", "ingest.passage_words=70"]
    assert ineffective_changes(prepare_update("text", changes, store=store.root)) == [
        "--set stage1.epochs=7 changes nothing in this run"
    ]


def test_an_update_adapts_no_adapted_model_again(store: Store) -> None:
    model = record(store, 1, "ingest.path=notes", "adapt.queries=100", "model=somewhere", dense="adapted")
    resolved, settings, engine = resolve_update(store, "text", [])
    assert (engine.model, resolved.model, resolved.adapt.queries) == ("adapted", model, None)
    assert [n.name for n in nodes(resolved)] == OF_TEXTS
    record(store, 2, *settings, dense="model")
    assert len(resolve_update(store, "text", [])[1]) == len(settings)


def test_the_commands_settings_replace_those_of_the_run(store: Store) -> None:
    record(store, 1, "ingest.path=notes", "bm25.k1=1")
    resolved, _, _ = resolve_update(store, "text", ["bm25.k1=2"])
    assert resolved.bm25.k1 == 2


def test_an_update_continues_from_the_update_before(store: Store) -> None:
    record(store, 1, "ingest.path=notes")
    _, settings, _ = resolve_update(store, "text", [])
    model = record(store, 2, *settings, dense="model")
    resolved, again, engine = resolve_update(store, "text", [])
    assert (engine.model, resolved.model) == ("model", model)
    assert len(again) == len(settings)


def test_an_update_removes_fusions_of_runs_that_it_does_not_build(store: Store) -> None:
    record(store, 1, "evaluate.fusions=[[bm25, stage1]]")
    resolved, settings, _ = resolve_update(store, "text", [])
    assert resolved.evaluate.fusions == []
    assert [n.name for n in nodes(resolved)] == OF_TEXTS
    record(store, 2, *settings, dense="model")
    assert len(resolve_update(store, "text", [])[1]) == len(settings)


def test_an_update_continues_the_run_of_the_same_folder(store: Store) -> None:
    notes = record(store, 1, "ingest.path=notes")
    mails = record(store, 2, "ingest.path=mails")
    assert resolve_update(store, "text", ["ingest.path=notes"])[0].model == notes
    assert resolve_update(store, "text", [])[0].model == mails
    assert resolve_update(store, "text", ["ingest.path=moved"])[0].model == mails


def test_a_path_with_yaml_characters_is_used_unchanged(tmp_path: Path) -> None:
    store = Store(tmp_path / "a: #b 'c' é")
    model = record(store, 1, "ingest.path=notes")
    assert resolve_update(store, "text", [])[0].model == model


def test_an_update_without_a_run_is_refused(store: Store) -> None:
    record(store, 1, recipe="tiny")
    record(store, 2, dense=None)
    with pytest.raises(InputError) as error:
        resolve_update(store, "text", [])
    assert str(error.value) == (f"{store.root}: no finished run of text with a model; `cocondenser run text` makes one")


def test_settings_that_differ_from_the_models_training_are_refused(store: Store) -> None:
    record(store, 1, "encoder.title_tokens=8")
    with pytest.raises(InputError, match=r"encoder\.title_tokens: 9, but the model was trained with 8"):
        resolve_update(store, "text", ["encoder.title_tokens=9"])


def test_questions_about_another_collection_are_refused_before_the_update(store: Store, tmp_path: Path) -> None:
    record(store, 1, "ingest.path=notes")
    (run,) = runs(store)
    pq.write_table(pa.table({"doc_id": ["a.md"]}), run.nodes["ingest"].path / "passages.parquet")
    (tmp_path / "judged" / "qrels").mkdir(parents=True)
    (tmp_path / "judged" / "queries.jsonl").write_text('{"_id": "q", "text": "harbour"}\n')
    (tmp_path / "judged" / "qrels" / "test.tsv").write_text("q 0 b.md 1\n")
    with pytest.raises(InputError, match=f"^{tmp_path}/judged: no test question has a relevant document"):
        prepare_update("text", [], tmp_path / "judged", store=store.root)


def test_a_model_with_trained_prefixes_is_updated(store: Store) -> None:
    model = record(store, 1, "encoder.dimensions=[768, 384]", "index.dimension=384", "initial.hidden_size=768")
    resolved, settings, _ = resolve_update(store, "text", [])
    assert (resolved.model, resolved.encoder.dimensions, resolved.index.dimension) == (model, None, 384)
    record(store, 2, *settings, dense="model")
    assert len(resolve_update(store, "text", [])[1]) == len(settings)


def test_an_existing_model_needs_no_field_of_a_training() -> None:
    recipe = resolve("tiny", ["model=absent", "condenser.skip_from=9", "stage2.negative_depth=999999"])
    assert [n.name for n in nodes(recipe)] == READY
    assert next(n for n in nodes(recipe) if n.name == "search-model").config.splits == ["dev", "test"]
    assert "absent" not in json.dumps(configuration(recipe))
    with pytest.raises(InputError, match=r" model: .*rerank"):
        resolve("tiny", ["model=given", "rerank={splits: [dev, test], depth: 9}"])


def test_a_path_without_a_model_is_reported_before_the_run(store: Store, tmp_path: Path) -> None:
    for setting in ("model", "rounds.miner"):
        messages = []
        for path in (tmp_path / "absent", tmp_path):
            dag = nodes(resolve("tiny", [f"{setting}={path}"]))
            with pytest.raises(InputError) as error:
                preflight.check(store, dag, [n for n in dag if n.stage == "adopt"])
            messages.append(str(error.value))
        assert messages == [
            f"{setting}: {tmp_path / 'absent'}: no such file or folder",
            f"{setting}: {tmp_path / 'config.json'}: missing; a checkpoint is a Hugging Face model folder",
        ]


def test_the_counts_of_an_update_are_those_of_the_whole_texts(store: Store) -> None:
    def ref(node: str, **metrics: int) -> Ref:
        def write(out: Path, checkpoints: Path) -> dict[str, int]:
            (out / "file").write_text(node)
            return metrics

        return store.build(Request(make_key(node, {}, {}, {}, {}, {}), node=node), write).ref

    before = datetime.now(UTC)
    refs = {
        "ingest": ref("ingest", documents=3, passages=9),
        "encode-model": ref("encode-model", shards=5, shards_reused=5),
    }
    assert update_counts(store, refs, before)["shards"] == 5
    refs["ingest-whole"] = ref("ingest-whole", documents=1200, passages=3600)
    refs["encode-whole"] = ref("encode-whole", shards=10, shards_reused=7)
    summary = update_summary(update_counts(store, refs, before))
    assert summary == "1,200 documents, 3,600 passages: 3 of 10 shards encoded again, 7 reused"
    again = update_summary(update_counts(store, refs, datetime.now(UTC)))
    assert again == "1,200 documents, 3,600 passages: 0 of 10 shards encoded again, 10 reused"


WORDS = [
    *("ledger", "harbour", "violin", "glacier", "orchard", "compass"),
    *("lantern", "thicket", "quarry", "meadow", "beacon", "cellar"),
]


def write_note(folder: Path, number: int, subject: str) -> None:
    words = [WORDS[(number * step + step) % len(WORDS)] for step in range(1, 60)]
    text = f"# Notes on the {subject} number {number}\n"
    for i in range(4):
        part = " ".join(words[i::4])
        text += f"\n## About the {subject} {WORDS[i]}\n\nIt says what {part} is about. {part}.\n"
    (folder / f"note{number:03d}.md").write_text(text)


@pytest.mark.slow
def test_an_update_end_to_end(run_served, call_cli, tmp_path: Path) -> None:
    notes, store, recipe = tmp_path / "notes", tmp_path / "store", tmp_path / "mine.yaml"
    notes.mkdir()
    for number in range(80):
        write_note(notes, number, f"{WORDS[number % 12]} {WORDS[number // 12]}")
    recipe.write_text(
        f"extends: text\ningest: {{path: {notes}, remaining_words: 5, near_duplicates: null}}\n"
        "tokenizer: {vocab_size: 400}\n"
        "initial: {layers: 2, hidden_size: 32, heads: 2, intermediate_size: 64}\n"
        "condenser: {budget: 2 steps, head_layers: 1, skip_from: 1}\n"
        "cocondenser: {budget: 2 steps, skip_from: 1, span_min: 4}\n"
        "stage1: {epochs: 1}\nrounds: {number: 0}\nencode: {shard_passages: 16}\n"
        "evaluate: {bootstrap_samples: 100}\nmachine: {ranks: 1, workers: 1}\n"
    )

    def call(command: str, *options: str) -> tuple[dict[str, dict], dict[str, Any]]:
        result = run_served(command, str(recipe), *options, "--json", "--device", "cpu", store=store)
        assert result.returncode == 0, result.stderr
        output = json.loads(result.stdout)
        done = output.get("update", {})
        if done:
            assert f"\n{update_summary(done)}\nRR@10 on " in result.stderr
        return output["artifacts"], done

    none = run_served("update", str(recipe), store=store)
    assert (none.returncode, len(none.stderr.splitlines())) == (2, 1)
    assert none.stderr == f"error: {store}: no such store; `cocondenser run RECIPE` makes one\n"

    call("run")
    write_note(notes, 900, "zymurgy")
    (notes / "note040.md").write_text((notes / "note041.md").read_text().replace("41", "forty"))
    first, done = call("update")
    assert [*first] == OF_TEXTS
    for node in ("encode-model", "encode-whole"):
        encoded = first[node]["metrics"]
        assert encoded["shards"] - 8 <= encoded["shards_reused"] < encoded["shards"]
        assert encoded["shards"] > 20
    assert (done["documents"], done["passages"]) == (81, encoded["passages"])
    assert (done["shards"], done["shards_reused"]) == (encoded["shards"], encoded["shards_reused"])
    again = call("update")[1]
    assert (again["shards_encoded"], again["shards_reused"]) == (0, encoded["shards"])
    by_bm25 = json.loads(call_cli("search", "zymurgy", "--json", "--by", "bm25", store=store).stdout)
    assert by_bm25["answers"][0]["doc_id"] == "note900.md"
    by_dense = call_cli("search", "notes on the zymurgy", "-k", "100", "--json", "--by", "dense", store=store)
    assert "note900.md" in [answer["doc_id"] for answer in json.loads(by_dense.stdout)["answers"]]

    judged = tmp_path / "judged"
    (judged / "qrels").mkdir(parents=True)
    (judged / "queries.jsonl").write_text('{"_id": "z", "text": "zymurgy"}\n{"_id": "l", "text": "ledger violin"}\n')
    (judged / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nz\tnote900.md\t1\nl\tnote024.md\t1\n")
    (notes / "note900.md").unlink()
    second, done = call("update", "--judged", str(judged))
    figures = done["figures"]
    assert (figures["of"], figures["questions"], figures["measure"]) == (str(judged), 1, "RR@10")
    assert figures["before"] == min(run.created for run in runs(Store(store)))
    assert second["model"]["digest"] == first["model"]["digest"]
    encoded = second["encode-model"]["metrics"]
    assert encoded["shards"] - 4 <= encoded["shards_reused"]
    by_bm25 = json.loads(call_cli("search", "zymurgy", "--json", "--by", "bm25", "-k", "100", store=store).stdout)
    assert "note900.md" not in [answer["doc_id"] for answer in by_bm25["answers"]]
