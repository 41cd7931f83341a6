"""What the flow checks on its way."""

from dataclasses import replace
from pathlib import Path

import pytest

from artifacts.records import Ref
from flows.dag import nodes
from flows.flow import check_pretraining, check_training_data
from flows.recipe import resolve
from flows.selection import up_to
from pipeline.errors import InputError


def collection(**metrics: int) -> Ref:
    return Ref("ingest", "key", "digest", "digest", Path("nowhere"), metrics)


def test_without_training_questions_fine_tuning_fails_before_pre_training() -> None:
    dag = nodes(resolve("tiny"))
    for counts in ({"test_queries": 3}, {"train_queries": 3, "train_qrels": 3, "train_relevant": 0}):
        with pytest.raises(InputError, match="stage1: the collection has no training questions"):
            check_training_data(collection(passages=5, **counts), dag)
    check_training_data(collection(passages=5, train_queries=1, train_relevant=1), dag)
    check_training_data(collection(passages=5), up_to(dag, "cocondenser"))


def test_negatives_of_the_collection_must_be_there(tmp_path: Path) -> None:
    dag = nodes(resolve("tiny", ["stage2.negatives_from=collection"]))
    ingest = replace(collection(train_relevant=1), path=tmp_path)
    with pytest.raises(InputError, match=r"stage2\.negatives_from: the collection came without negatives"):
        check_training_data(ingest, dag)
    (tmp_path / "negatives.parquet").touch()
    check_training_data(ingest, dag)


def test_settings_may_complete_a_recipe(run_cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: tiny\ningest: {reader: beir, document_key: ''}")
    given = ("--set", f"ingest.folder={tmp_path / 'gone'}")
    ended = run_cli("run", str(tmp_path / "mine.yaml"), *given, store=tmp_path / "store")
    assert (ended.returncode, ended.stderr) == (2, f"error: {tmp_path / 'gone'} is no folder\n")


def test_what_cocondenser_cannot_do_fails_before_condenser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("flows.flow.check_cocondenser", lambda *given: asked.append(given))
    recipe = resolve("tiny")
    tokens, initial = (replace(collection(), path=tmp_path / name) for name in ("tokens", "initial"))
    check_pretraining(tokens, initial.path, up_to(nodes(recipe), "condenser"))
    assert not asked
    check_pretraining(tokens, initial.path, nodes(recipe))
    assert asked == [(recipe.cocondenser, tokens.path, initial.path)]


def test_a_batch_that_the_collection_cannot_fill_ends_a_run_before_condenser(run_cli, tmp_path: Path) -> None:
    given = ("--set", "cocondenser.batch_tokens=null", "--set", "cocondenser.batch_documents=9999")
    ended = run_cli("run", "tiny", *given, store=tmp_path / "store")
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("error: cocondenser.batch_documents: 9,999 asked for, but")
    assert "condenser " not in ended.stderr + ended.stdout
