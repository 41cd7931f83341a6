"""Collections that `cocondenser evaluate-model` finds: folders, recipes and catalogues' ids."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from machines import make_machine
from ready import WORDS, beir, plain

from artifacts.store import Store
from flows.dag import nodes
from flows.recipes.recipe import resolve
from flows.runs.find_collection import NO_TRAINING, find_collection
from flows.runs.zero_shot import zero_shot_recipe
from pipeline.errors import InputError
from pipeline.runtime.work import Work, silent


def test_missing_collections_are_reported(tmp_path: Path) -> None:
    folder = beir(tmp_path / "unasked")
    (folder / "queries.jsonl").unlink()
    (tmp_path / "file").write_text("")
    (tmp_path / "bare").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    for name, line in {
        str(tmp_path / "none"): "no such folder",
        str(tmp_path / "loop"): f"the link {tmp_path / 'loop'} leads back to itself",
        str(tmp_path / "file"): "is a file, not a folder in BEIR's layout or an id of ir_datasets",
        str(tmp_path / "bare"): "corpus.jsonl does not exist, plain or compressed; for a folder of texts: `cocondenser "
        f"run text --model MODEL --adapt --set ingest.path={tmp_path / 'bare'}`",
        str(folder): "queries.jsonl does not exist, plain or compressed",
        "beir/scifct": "no such folder, no recipe, and no dataset of ir_datasets (did you mean beir/scifact or ",
    }.items():
        with pytest.raises(InputError) as error:
            find_collection(name)
        assert str(error.value).startswith(f"collection {name}: {line}")


def test_only_a_training_needs_judgements(tmp_path: Path) -> None:
    folder = beir(tmp_path / "unjudged", splits=["train"])
    assert find_collection(str(folder)).ingest["folder"] == str(folder)
    with pytest.raises(InputError, match="no judgements: neither qrels/dev"):
        find_collection(str(folder), trains=True)
    shutil.rmtree(folder / "qrels")
    (folder / "queries.jsonl").unlink()
    assert find_collection(str(folder)).ingest["folder"] == str(folder)
    with pytest.raises(InputError, match=r"queries\.jsonl does not exist.*`cocondenser run text --set ingest"):
        find_collection(str(folder), trains=True)


def a_file(qrels: Path) -> None:
    qrels.write_text("")


def a_link_to_nothing(qrels: Path) -> None:
    qrels.symlink_to("gone")


def of_other_files(qrels: Path) -> None:
    qrels.mkdir()
    (qrels / "readme.txt").write_text("")


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (a_file, "a folder with train.tsv, dev.tsv, test.tsv is expected, but it cannot be read: Not a directory"),
        (
            a_link_to_nothing,
            "a folder with train.tsv, dev.tsv, test.tsv is expected, but it cannot be read: No such file",
        ),
        (of_other_files, "holds none of train.tsv, dev.tsv, test.tsv; without judgements, remove this folder"),
    ],
)
def test_judgements_that_cannot_be_read_are_reported(tmp_path: Path, make: Callable[[Path], None], line: str) -> None:
    folder = beir(tmp_path / "house", splits=["test"])
    shutil.rmtree(folder / "qrels")
    make(folder / "qrels")
    with pytest.raises(InputError) as error:
        find_collection(str(folder))
    assert str(error.value).startswith(f"collection {folder}: {folder}/qrels: {line}")


@pytest.fixture
def catalogue() -> Iterator[None]:
    """`house` and `barn` have only documents; their splits are judged, but not `house/rest`."""
    import ir_datasets
    from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, GenericDoc, GenericQuery, TrecQrel

    class Docs(BaseDocs):
        def docs_iter(self):
            return iter([GenericDoc(f"d{n}", word) for n, word in enumerate(WORDS)])

        def docs_cls(self):
            return GenericDoc

    class Queries(BaseQueries):
        def queries_iter(self):
            return iter([GenericQuery("q", "ledger")])

        def queries_cls(self):
            return GenericQuery

    class Qrels(BaseQrels):
        def qrels_iter(self):
            return iter([TrecQrel("q", "d0", 1, "0")])

        def qrels_cls(self):
            return TrecQrel

        def qrels_defs(self):
            return {}

    judged = ir_datasets.Dataset(Docs(), Queries(), Qrels())
    datasets = {"house": ir_datasets.Dataset(Docs()), "house/test": judged, "house/dev": judged}
    datasets["house/rest"] = datasets["shed"] = ir_datasets.Dataset(Docs(), Queries())
    datasets["shed/odd"] = datasets["barn/train"] = datasets["barn/dev"] = judged
    datasets["barn"] = ir_datasets.Dataset(Docs())
    for name, dataset in datasets.items():
        ir_datasets.registry.register(name, dataset)
    yield
    for name in datasets:
        ir_datasets.registry._registered.pop(name)


def test_a_catalogues_id_gives_its_judged_splits(catalogue, store: Store, tmp_path: Path) -> None:
    def splits(dataset_id: str) -> tuple[str | None, ...]:
        reader = find_collection(dataset_id).ingest
        return reader["collection"], reader["train"], reader["dev"], reader["test"]

    assert splits("house") == ("house", None, "house/dev", "house/test")
    assert splits("house/test") == ("house/test", None, None, "house/test")
    assert splits("house/dev") == ("house/dev", None, "house/dev", None)
    for dataset_id, line in {
        "shed": "ir_datasets has no judgements for its questions; use one of shed/odd",
        "house/rest": "ir_datasets has no judgements for its questions",
    }.items():
        with pytest.raises(InputError) as error:
            find_collection(dataset_id)
        assert str(error.value) == f"collection {dataset_id}: {line}"
    recipe, _ = zero_shot_recipe(store, str(plain(tmp_path / "m")), "house/test")
    assert recipe.name == "m on house-test"
    from pipeline.data.ingest import ingest

    out = tmp_path / "out"
    out.mkdir()
    counts = ingest(recipe.ingest, Work(out, out, make_machine(), silent))
    assert (counts["passages"], counts["queries"], counts["qrels"]) == (20, 1, 1)


def test_a_catalogues_id_has_training_questions(catalogue) -> None:
    ingest = find_collection("barn", trains=True).ingest
    assert (ingest["train"], ingest["dev"], ingest["test"]) == ("barn/train", "barn/dev", None)
    with pytest.raises(InputError) as error:
        find_collection("house", trains=True)
    assert str(error.value) == f"collection house: {NO_TRAINING}: ir_datasets has no house/train"


def test_a_recipe_has_training_questions(tmp_path: Path) -> None:
    path, folder = tmp_path / "mine.yaml", beir(tmp_path / "untrained", splits=["test"])
    for lines, why in (
        ("extends: nq\ningest: {train: null}", "ingest.train is empty"),
        ("extends: marco\ningest: {train_queries: null, train_qrels: null}", "ingest.train_qrels is empty"),
        ("extends: text\ningest: {questions: []}", "ingest.questions is empty"),
        (f"extends: adapt\ningest: {{folder: {folder}}}", "qrels/train.tsv does not exist"),
    ):
        path.write_text(lines)
        with pytest.raises(InputError) as error:
            find_collection(str(path), trains=True)
        assert str(error.value) == f"collection {path}: {NO_TRAINING}: {why}"
        assert find_collection(str(path)).name
    for name in ("tiny", "text", "marco", "nq"):
        assert find_collection(name, trains=True).name == name


def test_the_collection_of_a_recipe_has_its_first_stage(store: Store, tmp_path: Path) -> None:
    model = str(plain(tmp_path / "m"))
    recipe, tiny = zero_shot_recipe(store, model, "tiny", [])[0], resolve("tiny")
    shared = [(node.stage, node.config) for node in nodes(tiny) if node.name in ("ingest", "bm25")]
    assert [(node.stage, node.config) for node in nodes(recipe) if node.name in ("ingest", "bm25")] == shared
    assert (recipe.name, recipe.example_question) == ("m on tiny", tiny.example_question)
