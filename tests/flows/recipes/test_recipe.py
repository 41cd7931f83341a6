"""Recipes: `extends`, merging, and the message for a mistake."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipeline
import tasks.notices
from flows.recipes.recipe import Recipe, configuration, resolve, with_settings
from flows.recipes.yaml_layers import Layer, merge
from flows.sentences.recipe import SentenceRecipe
from pipeline.errors import InputError


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("mine.depth=151", "mine.depth (151) is more than search.train_depth (150)"),
        ("index.kind=ivfpq index.pq_m=48", "index.pq_m (48) does not divide initial.hidden_size (128)"),
        ("index.kind=ivfpq index.pq_m=16 encoder.projection=24", "does not divide encoder.projection (24)"),
        ("index.kind=ivfpq index.pq_m=16 index.dimension=40", "index.pq_m (16) does not divide index.dimension (40)"),
        ("index.dimension=129", "index.dimension (129) is more than initial.hidden_size (128)"),
        ("index.dimension=25 encoder.projection=24", "index.dimension (25) is more than encoder.projection (24)"),
        ("index.dimension=true", "index.dimension: a number is expected"),
        ("encoder.dimensions=[128, 64, 64]", "encoder.dimensions: each dimension must be smaller than the one before"),
        ("encoder.dimensions=[]", "encoder.dimensions: "),
        ("encoder.dimensions=[128, 0]", "encoder.dimensions"),
        ("encoder.dimensions=[64, 32]", "the first (64) must be the whole vector, initial.hidden_size (128)"),
        (
            "encoder.dimensions=[128, 64] encoder.projection=24",
            "the first (128) must be the whole vector, encoder.projection (24)",
        ),
        (
            "encoder.dimensions=[128, 64] stage1.loss=learning_to_rank rounds.number=0",
            "encoder.dimensions: stage1.loss: learning_to_rank weighs the numbers of whole vectors",
        ),
        ("encoder.dimensions=[128, 64] model=DIR", "encoder.dimensions: an existing model is not trained"),
        ("report.answers=9", "report.answers (9) is more than evaluate.answers (5)"),
        ("stage2.negative_depth=61", "stage2.negative_depth (61) is more than bm25.negatives_depth (60)"),
        ("encode.passage_tokens=129", "encode.passage_tokens (129) is more than initial.max_position (128)"),
        ("encode.passage_tokens=81", "encode.passage_tokens (81) is more than stage1.passage_tokens (80)"),
        (
            "encode.passage_tokens=81 stage1.passage_tokens=81",
            "encode.passage_tokens (81) is more than stage2.passage_tokens (80): fine-tuning would never see the ends",
        ),
        ("cocondenser.span_max=127", "cocondenser.span_max + 2 (129) is more than initial.max_position (128)"),
        ("rounds.miner=DIR negatives_file={file: a.tsv, number: null, seed: 0, page_questions: 0}", "rounds.miner and"),
        ("rounds.number=0 rounds.miner=DIR", "rounds.miner and negatives_file are unused with rounds.number: 0"),
        ("search.splits=[dev, test]", "search.splits lacks train, which negatives are mined for"),
        ("search.splits=[train]", "search.splits lacks dev and test"),
        ("search.splits=[train] model=DIR", "search.splits lacks dev and test"),
        ("model=DIR index.kind=hnsw search.approximate=null", "search.approximate is null, but index.kind is hnsw"),
        (
            "search.splits=[train, dev, dev, test]",
            "search.splits: names a split twice",
        ),
        ("rerank={depth: 9, splits: [dev, dev]}", "rerank.splits: names a split twice"),
        ("search.splits=[train, test] rerank={depth: 9, splits: [dev]}", "rerank.splits: dev is not in search.splits"),
        (
            "stage1.loss=learning_to_rank rounds.number=0 rerank={depth: 9, splits: [dev]}",
            "rerank: stage 1's learning_to_rank leaves no run",
        ),
        ("ensemble=2", "ensemble (2) needs rerank"),
        ("encoder.question_tokens=129", "encoder.question_tokens (129) is more than initial.max_position (128)"),
        ("stage1.negatives_per_query=0 stage1.share_negatives=1", "share_negatives: 1 with negatives_per_query: 0"),
        ("stage2.negatives_per_query=0 stage2.loss=soft_labels", "loss: soft_labels needs negatives_per_query"),
        ("stage1.negatives_per_query=0 stage1.batch_queries=1", "batch_queries: 1 with negatives_per_query: 0"),
        ("stage1.loss=soft_labels", "stage1.loss: soft_labels need mined negatives"),
        ("stage1.loss=learning_to_rank", "stage1.loss: learning_to_rank finds nothing to mine"),
        ("stage2.loss=learning_to_rank", "stage2.loss: learning_to_rank is for stage 1"),
        ("denoise.threshold=0.9", "cross_encoder.loss: denoise and pseudo_labels need thresholds"),
        (
            "cross_encoder.passage_tokens=96 rerank={depth: 9, splits: [dev]}",
            "cross_encoder.question_tokens + passage_tokens - 1 (129) is more than initial.max_position (128)",
        ),
        ("cross_encoder.folds=3", "cross_encoder.folds: neither soft labels nor denoise read a cross-encoder"),
        (
            "cross_encoder.folds=2 stage2.loss=soft_labels cross_encoder.checkpoint=given",
            "cross_encoder.folds: cross_encoder.checkpoint is not trained here",
        ),
        (
            "cross_encoder.folds=2 stage2.loss=soft_labels ensemble=2 rerank={depth: 9, splits: [dev]}",
            "ensemble: the 2 cross-encoders of cross_encoder.folds rerank: set ensemble to 1",
        ),
        ("cross_encoder.folds=1 stage2.loss=soft_labels", "cross_encoder.folds: "),
        ("machine.precision=int8", "Input should be 'auto', 'float32' or 'bfloat16' (got 'int8')"),
        ("condenser.skip_from=1", "condenser.skip_from (1) and cocondenser.skip_from (2) differ"),
    ],
)
def test_stages_that_do_not_fit_together_are_reported(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        resolve("pydocs-small", re.split(r" (?=\w+(?:\.\w+)?=)", setting))


def write(folder: Path, text: str, name: str = "mine.yaml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_users_file_extends_a_recipe(tmp_path: Path) -> None:
    path = write(tmp_path, "extends: tiny\ncondenser:\n  optimiser: {learning_rate: 1e-3}\n")
    r, tiny = resolve(path), resolve("tiny")
    assert r.name == "mine"
    assert r.condenser.optimiser.learning_rate == 1e-3
    assert r.condenser.optimiser.weight_decay == tiny.condenser.optimiser.weight_decay
    assert r.condenser.budget == tiny.condenser.budget


def test_texts_are_not_inherited(tmp_path: Path) -> None:
    """Otherwise a run on a user's collection would have the title and the example question of the demo."""
    r = resolve(write(tmp_path, "extends: pydocs-small\n"))
    assert (r.title, r.report.title, r.description, r.example_question) == ("mine", "mine", "", None)
    r = resolve(write(tmp_path, "extends: pydocs-small\ntitle: My notes\nreport: {examples: 3}\n"))
    assert (r.title, r.report.title, r.report.examples) == ("My notes", "My notes", 3)
    r = resolve(write(tmp_path, "extends: tiny\nreport: {title: Notes}\n"))
    assert (r.title, r.report.title) == ("mine", "Notes")


def test_a_recipe_extends_a_file_next_to_it(tmp_path: Path) -> None:
    write(tmp_path, "extends: tiny\nmine: {seed: 5}\n", "below.yaml")
    assert resolve(write(tmp_path, "extends: below.yaml\n")).mine.seed == 5


def test_a_recipe_that_extends_itself_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "extends: mine.yaml\n")
    with pytest.raises(InputError, match=r"mine\.yaml: extends itself"):
        resolve(path)


def test_another_reader_replaces_the_section(tmp_path: Path) -> None:
    path = write(
        tmp_path, "extends: tiny\ningest:\n  reader: beir\n  folder: some/where\n  document_key: ''\n  metadata: []\n"
    )
    ingest = resolve(path).ingest
    assert ingest.reader == "beir"
    assert ingest.folder == tmp_path / "some/where"


def test_the_same_reader_keeps_the_section() -> None:
    below = Layer({"ingest": {"reader": "a", "x": 1, "y": 2}})
    assert merge(below, Layer({"ingest": {"reader": "a", "y": 3}})).data["ingest"] == {"reader": "a", "x": 1, "y": 3}
    assert merge(below, Layer({"ingest": {"reader": "b"}})).data["ingest"] == {"reader": "b"}
    assert below.data["ingest"]["y"] == 2


MISTAKES = [
    ("extends: tiny\nstage1: {optimiser: {betas: [0.9]}}\n", r"mine\.yaml:2: stage1\.optimiser\.betas: missing"),
    (
        "extends: tiny\ncondenser:\n  bugdet: 3\n",
        r"mine\.yaml:3: condenser\.bugdet: unknown field \(did you mean budget",
    ),
    ("extends: tiny\nstage3: {}\n", r"mine\.yaml:2: stage3: unknown field \(did you mean stage"),
    (
        "extends: tiny\nstage1:\n  optimiser:\n    learning_rat: 1\n",
        r"mine\.yaml:4: stage1\.optimiser\.learning_rat: unknown field \(did you mean learning_rate",
    ),
    ("extends: tiny\nmine:\n  depth: deep\n", r"mine\.yaml:3: mine\.depth: .*integer.*\(got 'deep'\)"),
    ("extends: tiny\nmine:\n  depth: 0\n", r"mine\.yaml:3: mine\.depth: .*greater than or equal to 1"),
    (
        "extends: tiny\ntrain_subset:\n  queries: 0\n",
        r"mine\.yaml:3: train_subset\.queries: .*greater than or equal to 1, or null \(got 0\)$",
    ),
    ("extends: tiny\nmine: 3\n", r"mine\.yaml:2: mine: is a section; a field of it is mine\.FIELD$"),
    ("title: alone\n", r"mine\.yaml.*missing"),
    ("extends: tinny\n", r"mine\.yaml:1: no recipe 'tinny' .*did you mean tiny"),
    ("title: x\nextends: none.yaml\n", r"mine\.yaml:2: .*none\.yaml: no such recipe file"),
    ("extends: tiny\nmine: {seed: 1}\nmine: {seed: 2}\n", r"mine\.yaml:3: mine appears twice"),
    ("extends: [a, b]\n", r"mine\.yaml:1: extends"),
    ("- a\n- b\n", r"mine\.yaml:1: every recipe is a mapping"),
    ("extends: tiny\nmine: {\n", r"mine\.yaml:3: not YAML"),
    ("", r"mine\.yaml:1: every recipe is a mapping"),
    ("extends: tiny\nmine: " + "[" * 900 + "]" * 900 + "\n", r"mine\.yaml: nested too deeply$"),
    ("extends: tiny\nmine: " + "{a: " * 900 + "1" + "}" * 900 + "\n", r"mine\.yaml: nested too deeply$"),
    ("extends: tiny\nmine: &m {depth: *m}\n", r"mine\.yaml: nested too deeply$"),
    ("extends: tiny\nmine: {depth: " + "9" * 5000 + "}\n", r"mine\.yaml: not a YAML text: Exceeds the limit"),
    ("extends: tiny\ningest:\n  reader: pydoc\n", r"mine\.yaml:\d: ingest: .*'pydoc'.*'pydocs'"),
    (
        "extends: tiny\npretraining:\n  reader: several\n  parts:\n    - {reader: beir, foldr: x}\n",
        r"mine\.yaml:4: pretraining\.parts\.0\.foldr: unknown field \(did you mean folder",
    ),
    (
        "extends: tiny\npretraining:\n  reader: several\n  parts:\n    - {reader: beir, folder: x}\n",
        r"mine\.yaml:4: pretraining\.parts\.0\.document_key: missing, and so are pretraining\.parts\.0\.metadata",
    ),
    (
        "extends: tiny\npretraining:\n  reader: several\n  parts:\n"
        "    - {reader: beir, folder: x, document_key: '', metadata: [source]}\n",
        r"mine\.yaml:2: pretraining: parts\.0\.metadata: several sources keep no metadata",
    ),
    ("extends: tiny\ningest:\n  reader: beir\n  foldr: x\n", r"mine\.yaml:4: ingest\.foldr: unknown field .*folder"),
    ("extends: tiny\ncondenser:\n  budget: 3\n", r"condenser\.budget: a number and its unit"),
]


def test_a_duplicate_number_of_neighbours_is_refused() -> None:
    with pytest.raises(InputError, match=r"evaluate\.nb_recall: contains a duplicate number \(got \[50, 50\]\)$"):
        resolve("tiny", ["evaluate.nb_recall=[50, 50]"])


@pytest.mark.parametrize(
    "where",
    [
        "not a url",
        "localhost:5000",
        "htp://127.0.0.1:5000",
        "http://",
        "http://:5000",
        "http://a:b",
        "http://a b",
        '" "',
    ],
)
def test_invalid_locations_of_mlflow_are_reported(where: str) -> None:
    with pytest.raises(
        InputError, match=r"tracking\.mlflow: write a server's address \(http://HOST:PORT\), or"
    ) as error:
        resolve("tiny", [f"tracking.mlflow={where}"])
    assert "\n" not in str(error.value)


def test_a_setting_that_is_nested_too_deeply_is_reported() -> None:
    with pytest.raises(InputError, match=r"^--set mine\.depth: the value is nested too deeply$"):
        resolve("tiny", ["mine.depth=" + "[" * 900 + "]" * 900])


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        resolve(write(tmp_path, text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("section", ["cross_encoder: *own", "cross_encoder:\n  <<: *own\n  epochs: 5"])
def test_a_mistake_in_a_field_of_an_anchor_is_reported_with_the_anchors_line(tmp_path: Path, section: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"extends: tiny\nstage1: &own\n  epochs: 2\n  temperature: 0.5\n{section}\n")
    with pytest.raises(InputError) as error:
        resolve(str(file))
    assert str(error.value).startswith(f"{file}:4: cross_encoder.temperature: unknown field")


def test_a_field_next_to_a_merge_key_replaces_that_of_the_anchor(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("extends: tiny\nstage1: &own\n  epochs: 2\n  batch_queries: 9\nstage2:\n  epochs: 5\n  <<: *own\n")
    recipe = resolve(str(file))
    assert (recipe.stage1.epochs, recipe.stage1.batch_queries) == (2, 9)
    assert (recipe.stage2.epochs, recipe.stage2.batch_queries) == (5, 9)
    assert recipe.stage2.seed == resolve("tiny").stage2.seed  # an anchor has only the fields of its own file
    file.write_text(file.read_text().replace("epochs: 5\n  <<: *own", "<<: *own\n  epochs: many"))
    with pytest.raises(InputError) as error:
        resolve(str(file))
    assert str(error.value).startswith(f"{file}:7: stage2.epochs: ")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such recipe file"):
        resolve(str(tmp_path / "none.yaml"))


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"mine\.yaml: not a YAML text"):
        resolve(str(tmp_path / "mine.yaml"))


def test_settings_replace_fields_of_a_recipe() -> None:
    settings = [
        "condenser.optimiser.learning_rate=2e-5",
        "condenser.budget=7 steps",
        "search.splits=[train, test]",
        "condenser.checkpoint=some/folder",
        "stage1.dropout=0",
        "title=About a=b",
    ]
    r = resolve("tiny", settings)
    assert r.condenser.optimiser.learning_rate == 2e-5
    assert r.condenser.budget == "7 steps"
    assert r.search.splits == ["train", "test"]
    assert r.condenser.checkpoint == Path("some/folder")
    assert r.stage1.dropout == 0
    assert r.title == "About a=b"
    assert with_settings(resolve("tiny"), settings) == r


def test_a_text_that_looks_like_a_mapping_is_a_text() -> None:
    assert resolve("tiny", ["encoder.question_prefix=query: "]).encoder.question_prefix == "query: "
    assert resolve("tiny", ["title=condenser: why"]).title == "condenser: why"
    rerank = resolve("tiny", ["rerank={depth: 9, splits: [dev]}"]).rerank
    assert rerank
    assert rerank.depth == 9


def test_numbers_are_those_of_yaml_1_2() -> None:
    # YAML 1.1 reads the first as a number to base 60 and the second as one to base 8.
    assert resolve("tiny", ["title=1:30"]).title == "1:30"
    assert resolve("tiny", ["bm25.language=no"]).bm25.language == "no"
    assert resolve("tiny", ["mine.seed=010"]).mine.seed == 10
    assert resolve("tiny", ["mine.seed=0x1F"]).mine.seed == 31
    assert resolve("tiny", ["mine.seed=1_000"]).mine.seed == 1000


def test_the_last_set_wins_and_a_whole_section_may_be_set() -> None:
    assert resolve("tiny", ["mine.seed=1", "mine.seed=2"]).mine.seed == 2
    assert resolve("marco", ["pretraining=null"]).pretraining is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('encoder.passage_prefix="\\ud800: "', r"encoder\.passage_prefix: half of a surrogate pair"),
        ("condenser.bugdet=3", r"--set condenser\.bugdet=3: condenser\.bugdet: unknown field \(did you mean budget"),
        (
            "condenser.budget=many",
            r"--set condenser\.budget=many: condenser\.budget: a number and its unit .*\(got 'many'\)",
        ),
        ("conden.budget=3", r"--set conden\.budget=3: conden: unknown field \(did you mean condenser"),
        ("condenser.budget", "write stage.field=value"),
        ("=3", "write stage.field=value"),
        ("machine.device=tpu", r"machine\.device: .*'auto', 'cpu', 'cuda' or 'mps'"),
        ("condenser.optimiser.learning_rate=.nan", r"learning_rate: .*finite"),
        ("condenser.batch_blocks.x=3", r"--set condenser\.batch_blocks\.x=3: condenser\.batch_blocks: .*integer"),
        ("condenser.batch_blocks=[1: 2", r"--set condenser\.batch_blocks=\[1: 2: condenser\.batch_blocks: .*integer"),
        ("ingest.reader=beir", r"--set ingest\.reader=beir: ingest\.folder: missing"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_text(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        resolve("tiny", [setting])
    assert "\n" not in str(error.value)


def test_the_reports_configuration_holds_no_path_and_no_machine(tmp_path: Path) -> None:
    here = configuration(resolve("tiny", [f"condenser.checkpoint={tmp_path}", "machine.device=cuda"]))
    assert "machine" not in here
    assert str(tmp_path) not in str(here)
    assert here["condenser"]["budget"] == "6 steps"


def test_another_objective_does_not_fit_cocondenser() -> None:
    for name, objective in (("marco-mlm", "mlm"), ("marco-retromae", "retromae")):
        recipe = resolve(name)
        assert recipe.condenser.objective == objective
        assert recipe.cocondenser.budget is None
        with pytest.raises(InputError, match=rf"condenser.objective \({objective}\) leaves no Condenser head"):
            resolve(name, ["cocondenser.budget=5 steps"])
    with pytest.raises(InputError, match=r"head_layers \(2\) does not go with the objective mlm"):
        resolve("marco", ["condenser.objective=mlm"])


def test_a_head_beyond_the_layers_of_a_new_model_is_refused() -> None:
    with pytest.raises(InputError, match=r"condenser.skip_from \+ 1 \(5\) is more than initial.layers \(4\)"):
        resolve("pydocs", ["condenser.skip_from=4", "cocondenser.skip_from=4"])


def test_fields_that_do_not_fit_together_are_reported_at_the_users_setting(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^--set cocondenser.batch_tokens=100: cocondenser: batch_tokens \(100\)"):
        resolve("pydocs-small", ["cocondenser.batch_tokens=100"])
    (tmp_path / "mine.yaml").write_text("extends: tiny\nsearch:\n  train_depth: 1\n")
    with pytest.raises(InputError, match=r"mine\.yaml:3: mine\.depth \(\d+\) is more than search\.train_depth \(1\)"):
        resolve(str(tmp_path / "mine.yaml"))


def test_a_finished_checkpoint_need_not_have_the_new_models_shape(tmp_path: Path) -> None:
    deep = ["condenser.skip_from=6", "cocondenser.skip_from=6"]
    resolve("pydocs", [*deep, f"condenser.checkpoint={tmp_path}"])
    with pytest.raises(InputError, match=r"is more than initial\.layers"):
        resolve("pydocs", deep)


def test_all_missing_fields_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: tiny\ningest:\n  reader: text\n  path: .\n")
    with pytest.raises(InputError, match=r"mine\.yaml:2: ingest\.passage_words: missing, and so are ingest\.pattern,"):
        resolve(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("setting", "form"),
    [
        ("machine.torchrun=--nnodes=2", "[--nnodes=2] (got '--nnodes=2')"),
        ("ingest.questions=titles", "[titles] (got 'titles')"),
        ("evaluate.fusion_weights=0.5", "[0.5] (got 0.5)"),
        ("search.splits=null", "[A, B] (got None)"),
        ("search.splits={dev: 1}", "[A, B]"),
    ],
)
def test_the_form_of_a_list_is_explained(setting: str, form: str) -> None:
    with pytest.raises(InputError) as error:
        resolve("text", [setting])
    assert str(error.value).endswith(f"{setting.partition('=')[0]}: a list is expected: write {form}")


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[2J", "half \udcff", "n" * 201])
def test_a_name_that_no_record_of_a_run_can_hold_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.yaml"
    path.write_text("extends: tiny\ntitle: One\ndescription: Two.\n")
    with pytest.raises(
        InputError, match=r"name: .*(control character|at most 200 characters|raw data as a unicode string)"
    ):
        resolve(str(path))


NO_FIELDS = ("html", "json", "jsonl", "npy", "npz", "parquet", "safetensors", "tsv", "txt")
"""Endings of file names."""


def fields(schema: dict[str, Any], part: dict[str, Any], before: str = "") -> Iterator[str]:
    """Every field below a part of a JSON schema, with dots: `.bm25`, `.bm25.k1`."""
    part = schema["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
    for choice in (*part.get("anyOf", ()), *part.get("oneOf", ())):
        yield from fields(schema, choice, before)
    for name, below in part.get("properties", {}).items():
        yield f"{before}.{name}"
        yield from fields(schema, below, f"{before}.{name}")


def named(source: str) -> set[str]:
    """The `section.field` names in the strings of a module, without docstrings, files and modules."""
    nodes = list(ast.walk(ast.parse(source)))
    described = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in described]
    names = {name for text in texts if isinstance(text, str) for name in re.findall(r"\b[a-z]\w*\.[a-z]\w*\b", text)}
    return {name for name in names if not name.endswith(NO_FIELDS) and not name.startswith("pipeline.")}


def test_the_fields_that_notices_advise_to_change_exist() -> None:
    schemas = [recipe.model_json_schema() for recipe in (Recipe, SentenceRecipe)]
    known = [field for schema in schemas for field in fields(schema, schema)]
    files = [*Path(pipeline.__file__).parent.rglob("*.py"), Path(tasks.notices.__file__)]
    sources = [path.read_text("utf-8") for path in files]
    advised = {name for text in sources if re.search(r"\b(notice|of_counts)\b", text) for name in named(text)}
    assert {"bm25.run", "ingest.endings", "mine.depth", "optimiser.learning_rate"} < advised
    assert [name for name in sorted(advised) if not any(field.endswith(f".{name}") for field in known)] == []
