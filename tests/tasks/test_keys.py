"""What enters a key."""

from pathlib import Path

import pytest
from sentences import SPLITS, scored

from artifacts.records import Ref
from artifacts.store import Store
from flows.ablations import file as ablation_file
from flows.ablations.shared_nodes import merge_cells
from flows.dag import nodes
from flows.recipes.recipe import resolve
from flows.sentences.dag import sentence_nodes
from flows.sentences.recipe import resolve_sentences
from pipeline.config import Config
from tasks.keys import key_of, paths, sources_of, stage_code, without_paths
from tasks.stages import STAGES


class Inner(Config):
    folder: Path | None
    number: int


class Outer(Config):
    inner: Inner
    files: list[Path]
    named: dict[str, Path]
    rates: tuple[float, float]
    other: Inner | None


OUTER = Outer(
    inner=Inner(folder=Path("a"), number=1),
    files=[Path("b"), Path("c")],
    named={"x": Path("d")},
    rates=(1, 2),
    other=None,
)


def test_paths_are_listed_by_their_names() -> None:
    assert paths(OUTER) == [
        ("inner.folder", Path("a")),
        ("files.0", Path("b")),
        ("files.1", Path("c")),
        ("named.x", Path("d")),
    ]


def test_without_paths_keeps_all_other_fields() -> None:
    assert without_paths(OUTER) == {"inner": {"number": 1}, "files": [], "named": {}, "rates": [1, 2], "other": None}


def test_an_absent_path_stays_in_the_configuration() -> None:
    assert without_paths(Inner(folder=None, number=1)) == {"folder": None, "number": 1}


def test_the_content_of_a_file_enters_the_key_and_its_folder_does_not(tmp_path: Path, store: Store) -> None:
    keys = []
    for name, text in (("a", "one"), ("b", "one"), ("c", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text(text)
        config = resolve("tiny", [f"tokenizer.path={tmp_path / name / 'vocab.txt'}"]).tokenizer
        assert sources_of("tokenizer", config) == {"path": tmp_path / name / "vocab.txt"}
        keys.append(key_of(store, "tokenizer", config, {}).hex)
    assert keys[0] == keys[1] != keys[2]


def test_an_input_that_only_messages_read_enters_no_key(store: Store) -> None:
    node = next(node for node in nodes(resolve("tiny")) if node.stage == "encode")
    refs = {name: Ref(name, name, name, name, Path(name), {}) for name in node.inputs}
    other = {**refs, "collection": Ref("ingest", "k", "d", "other", Path("other"), {})}
    retokenised = {**refs, "tokens": Ref("tokens", "k", "d", "other", Path("other"), {})}
    keys = [key_of(store, "encode", node.config, one, node.shared).hex for one in (refs, other, retokenised)]
    assert keys[0] == keys[1] != keys[2]


def test_a_text_files_name_enters_the_key(tmp_path: Path, store: Store) -> None:
    keys = []
    for name in ("a/x.txt", "b/x.txt", "a/y.txt", "a/x.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"text": "the same bytes"}')
        fields = {"reader": "text", "path": path, "pattern": "*", "documents": "lines"}
        config = resolve("text").ingest.model_copy(update=fields)
        keys.append(key_of(store, "ingest", config, {}).hex)
    assert keys[0] == keys[1]
    assert len({*keys}) == 3


@pytest.mark.parametrize("stage", sorted(set(STAGES) - {"ingest"}))  # its key would read the whole environment
def test_each_key_holds_the_code_of_its_stage(stage: str, store: Store, tmp_path: Path) -> None:
    pseudo = "pseudo_labels={depth: 5, positive_above: 0.9, negative_below: 0.1, positives: null, negatives: null}"
    labelled = ["denoise.threshold=0.1", pseudo, "search.unjudged_train_questions=true", "cross_encoder.loss=pointwise"]
    reranked = ["rerank={depth: 5, splits: [dev]}"]
    file = tmp_path / "n.tsv"
    file.write_text("q\tp\n")
    source = {
        "adopt": [f"rounds.miner={tmp_path}"],
        "negatives_file": [f"negatives_file={{file: {file}, number: null, seed: 0, page_questions: 0}}"],
        "generate": [f"generate.checkpoint={tmp_path}"],
        "dimensions": ["encoder.dimensions=[32, 8]"],
        "others": [f"evaluate.others=[{tmp_path}]", f"initial.checkpoint={tmp_path}"],
        "fusion_labels": [
            *("stage2.loss=soft_labels", "pseudo_labels=null"),
            "fusion_labels={negatives_from: bm25, negative_depth: null}",
        ],
    }
    dag = nodes(
        resolve(
            "tiny",
            [
                "ingest.limit=1",
                "ict.budget=1 steps",
                "adapt.queries=10",
                "attention.sections=1",
                *labelled,
                *reranked,
                *source.get(stage, []),
            ],
        )
    )
    cells = ablation_file.load("tiny")
    dag += merge_cells(cells, [*cells.rows]).nodes
    scored(tmp_path)
    tables = [f"table.{split}={tmp_path / f'sts-{split}.csv'}" for split in SPLITS]
    dag += sentence_nodes(resolve_sentences("stsb", tables), store)
    key = key_of(store, stage, next(node.config for node in dag if node.stage == stage), {})
    module = STAGES[stage].function.__module__.replace(".", "/")
    assert any(file.removesuffix(".py").startswith(module) for file in key.code)
    assert not [file for file in key.code if not file.startswith("pipeline/")]
    assert ("pyserini" in key.libraries) == (stage in ("bm25", "adapt", "generate"))


@pytest.mark.parametrize(
    ("stage", "inside", "outside"),
    [
        ("bm25", {"bm25", "index_process", "lucene", "java"}, {"searcher", "search_process", "loop", "launch"}),
        ("encode", {"encode", "biencoder", "precision"}, {"searcher", "loop", "exact", "launch"}),
        ("index", {"index", "exact"}, {"searcher", "loop", "biencoder", "launch"}),
        ("search", {"search", "exact", "biencoder"}, {"searcher", "loop", "passages", "launch"}),
    ],
)
def test_code_that_builds_no_artifact_enters_no_key(stage, inside, outside) -> None:
    modules = {Path(file).stem for file in stage_code(stage)}
    assert inside <= modules
    assert not modules & outside


@pytest.mark.parametrize(
    ("settings", "differ"),
    [
        (["index.hnsw_m=8", "index.pq_m=4", "search.approximate.candidates=9"], False),
        (["index.kind=hnsw"], True),
    ],
)
def test_a_flat_index_and_its_search_depend_on_no_field_of_the_others(settings, differ, store: Store) -> None:
    plain, changed = (nodes(resolve("tiny", changes)) for changes in ([], settings))
    for one, other in zip(plain, changed, strict=True):
        if one.stage in ("index", "search"):
            keys = [key_of(store, node.stage, node.config, {}, node.shared).hex for node in (one, other)]
            assert (keys[0] != keys[1]) == differ


def test_what_the_report_shows_of_the_recipe_enters_its_key(store: Store) -> None:
    shown = [nodes(resolve("tiny", settings))[-1].shared for settings in ([], ["machine.ranks=2"], ["stage2.epochs=2"])]
    report = nodes(resolve("tiny"))[-1]
    same, other_machine, other_recipe = (key_of(store, "report", report.config, {}, shared).hex for shared in shown)
    assert same == other_machine != other_recipe


def test_the_version_of_faiss_enters_only_the_keys_of_its_indexes(store: Store) -> None:
    for kind, libraries in (("flat", set()), ("hnsw", {"faiss"})):
        for node in nodes(resolve("tiny", [f"index.kind={kind}"])):
            if node.stage in ("index", "search"):
                assert {*key_of(store, node.stage, node.config, {}, node.shared).libraries} == libraries
