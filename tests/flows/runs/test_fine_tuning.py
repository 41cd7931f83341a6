"""`cocondenser run` and `plan` with `--model` and `--collection`: an existing model, fine-tuned by a recipe."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from ready import PASSAGE, PROMPTS, QUERY, beir, plain, sentence
from typer.testing import CliRunner

from artifacts.store import Store
from flows.cli.main import app
from flows.dag import nodes
from flows.recipes.recipe import Recipe, resolve
from flows.runs.fine_tuning import fine_tuning
from flows.runs.zero_shot import zero_shot_recipe
from pipeline.errors import InputError
from pipeline.runtime import hub, launch

DENSE = ("Transformer", "Pooling", "Dense", "Normalize")


def complete(store: Store, recipe: str, model: Path, *settings: str, collection: Path | None = None) -> Recipe:
    return resolve(
        recipe, fine_tuning(store, recipe, str(model), str(collection) if collection else None, settings).settings
    )


@pytest.mark.parametrize("recipe", ["text", "adapt"])
def test_the_folder_says_how_the_model_reads_texts_as_in_evaluate_model(
    store: Store, tmp_path: Path, collection: Path, recipe: str
) -> None:
    folder = sentence(tmp_path / "m", DENSE, prompts=PROMPTS)
    measured = zero_shot_recipe(store, str(folder), str(collection))[0]
    trained = complete(store, recipe, folder)
    assert trained.encoder == measured.encoder
    assert (trained.encoder.pooling, trained.encoder.normalise, trained.encoder.projection) == ("mean", True, 16)
    assert (trained.encoder.question_prefix, trained.encoder.passage_prefix) == (QUERY, PASSAGE)
    lengths = (trained.stage1.passage_tokens, trained.stage2.passage_tokens, trained.encode.passage_tokens)
    assert lengths == (measured.encode.passage_tokens,) * 3 == (40,) * 3
    assert (trained.initial.checkpoint, trained.initial.pretrained) == (folder, None)
    assert (trained.tokenizer.path, trained.tokenizer.pretrained) == (folder, None)


def test_text_trains_an_existing_model_on_its_own_questions_as_adapt_does(store: Store, tmp_path: Path) -> None:
    recipe, text, adapt = complete(store, "text", sentence(tmp_path / "m")), resolve("text"), resolve("adapt")
    names = {node.name for node in nodes(recipe)}
    assert not {"ict", "condenser", "cocondenser"} & names
    assert {"initial", "stage1", "mine", "stage2", "encode-whole"} <= names
    assert (recipe.ingest, recipe.bm25, recipe.search) == (text.ingest, text.bm25, text.search)
    assert recipe.encode.shard_passages == text.encode.shard_passages
    for stage, expected in ((recipe.stage1, adapt.stage1), (recipe.stage2, adapt.stage2)):
        assert (stage.optimiser, stage.epochs, stage.batch_queries) == (
            expected.optimiser,
            expected.epochs,
            expected.batch_queries,
        )
        assert (stage.temperature, stage.dropout, stage.positives_considered) == (0.05, "checkpoint", 3)
    assert recipe.mine.margin_relative == adapt.mine.margin_relative


def test_adapt_trains_nothing_and_searches_with_the_adapted_model(store: Store, tmp_path: Path) -> None:
    folder = sentence(tmp_path / "m", prompts=PROMPTS)
    recipe = resolve("text", fine_tuning(store, "text", str(folder), None, adapt=True).settings)
    names = {node.name for node in nodes(recipe)}
    assert not {"initial", "stage1", "mine", "stage2", "attention"} & names
    assert {"model", "adapted", "search-adapted", "encode-whole"} <= names
    assert (recipe.model, recipe.tokenizer.path, recipe.encoder.question_prefix) == (folder, folder, QUERY)
    assert recipe.evaluate.fusions == [["bm25", "model"]]
    with pytest.raises(InputError, match=r"^--adapt: needs --model"):
        fine_tuning(store, "text", None, None, adapt=True)
    with pytest.raises(InputError, match=r"^model: .*other, but --model has"):
        fine_tuning(store, "text", str(folder), None, ["model=other"], adapt=True)


def test_a_collection_without_training_questions_is_adapted_to(store: Store, tmp_path: Path, collection: Path) -> None:
    (collection / "qrels" / "train.tsv").unlink(missing_ok=True)
    settings = fine_tuning(store, "adapt", str(sentence(tmp_path / "m")), str(collection), adapt=True).settings
    recipe = resolve("adapt", settings)
    assert str(recipe.ingest.folder) == str(collection)
    assert "adapted" in {node.name for node in nodes(recipe)}


@pytest.mark.parametrize(
    ("gpus", "device", "settings", "trains"),
    [
        (0, None, [], "map"),
        (1, None, [], "both_encoders"),
        (1, "auto", ["machine.device=cpu"], "both_encoders"),
        (1, "cpu", [], "map"),
        (1, None, ["machine.device=cpu"], "map"),
        (1, None, ["adapt.trains=query_encoder"], "query_encoder"),
    ],
)
def test_all_weights_are_adapted_on_a_gpu(
    monkeypatch, store: Store, tmp_path: Path, collection: Path, gpus: int, device, settings: list[str], trains: str
) -> None:
    monkeypatch.setattr(launch, "gpus", lambda: gpus)
    folder = str(sentence(tmp_path / "m"))
    result = fine_tuning(store, "text", folder, None, settings, adapt=True, device=device)
    assert resolve("text", result.settings).adapt.trains == trains
    assert f"adapted without questions (adapt.trains={trains})" in result.notes[0]
    measured = zero_shot_recipe(store, folder, str(collection), settings, adapt=True, device=device)[0]
    assert measured.adapt.trains == trains


def test_the_users_file_says_what_is_adapted_on_a_gpu(monkeypatch, store: Store, tmp_path: Path) -> None:
    monkeypatch.setattr(launch, "gpus", lambda: 1)
    path, folder = tmp_path / "mine.yaml", str(sentence(tmp_path / "m"))
    path.write_text("extends: text\nname: mine\nadapt: {trains: map}\n")
    recipe = resolve(str(path), fine_tuning(store, str(path), folder, None, adapt=True).settings)
    assert (recipe.adapt.trains, recipe.adapt.queries) == ("map", 1000)
    assert recipe.evaluate.fusions == [["bm25", "model"]]


def test_adapt_keeps_queries_and_fusions_of_the_users_file(store: Store, tmp_path: Path) -> None:
    path, folder = tmp_path / "mine.yaml", str(sentence(tmp_path / "m"))
    fusions = [["bm25", "model"], ["bm25", "adapted"]]
    sections = f"adapt: {{queries: 3000}}\nevaluate: {{fusions: {json.dumps(fusions)}}}\n"
    path.write_text(f"extends: text\nname: mine\n{sections}")
    recipe = resolve(str(path), fine_tuning(store, str(path), folder, None, adapt=True).settings)
    assert (recipe.adapt.queries, recipe.evaluate.fusions) == (3000, fusions)


def test_adapt_without_queries_is_a_contradiction(store: Store, tmp_path: Path, collection: Path) -> None:
    folder, settings = str(sentence(tmp_path / "m")), ["adapt.queries=null"]
    with pytest.raises(InputError, match="--adapt: contradicts --set adapt"):
        fine_tuning(store, "text", folder, None, settings, adapt=True)
    with pytest.raises(InputError, match="--adapt: contradicts --set adapt"):
        zero_shot_recipe(store, folder, str(collection), settings, adapt=True)


@pytest.mark.parametrize(("setting", "error"), [("device=x", "Input should be"), ("x=1", "unknown field")])
def test_a_wrong_machine_is_reported_with_its_place(store: Store, tmp_path: Path, setting: str, error: str) -> None:
    folder = str(sentence(tmp_path / "m"))
    with pytest.raises(InputError, match=f"^--set machine.{setting}: machine.*{error}"):
        fine_tuning(store, "text", folder, None, [f"machine.{setting}"], adapt=True)


def test_questions_of_a_language_model_are_learned_by_soft_labels(store: Store, tmp_path: Path) -> None:
    folder, writes = sentence(tmp_path / "m"), "generate.checkpoint=a-language-model"
    for recipe in ("text", "adapt", "generated"):
        trained = complete(store, recipe, folder, writes)
        assert (trained.stage1.loss, trained.stage2.loss) == ("contrastive", "soft_labels")
        names = {node.name for node in nodes(trained)}
        assert {"generate", "search-teacher", "fusion-labels"} <= names
        assert not {"cross-encoder", "soft-labels"} & names
    for chosen in ("stage2.loss=contrastive", "fusion_labels=null"):
        assert complete(store, "text", folder, writes, chosen).fusion_labels is None
    assert complete(store, "text", folder).stage2.loss == "contrastive"


def test_a_collection_needs_no_training_questions_if_a_language_model_writes_them(
    store: Store, tmp_path: Path, collection: Path
) -> None:
    folder, own = sentence(tmp_path / "m"), tmp_path / "own"
    shutil.copytree(collection, own)
    for path in (own / "qrels").glob("train*"):
        path.unlink()
    with pytest.raises(InputError, match="training"):
        complete(store, "adapt", folder, collection=own)
    recipe = complete(store, "generated", folder, "generate.checkpoint=a-language-model", collection=own)
    assert recipe.ingest.folder == own
    with pytest.raises(InputError, match=r"corpus\.jsonl"):
        complete(store, "generated", folder, "generate.checkpoint=a-language-model", collection=tmp_path)


def test_vectors_of_any_length_are_trained_without_temperature(store: Store, tmp_path: Path) -> None:
    result = fine_tuning(store, "adapt", str(plain(tmp_path / "m")), None)
    recipe = resolve("adapt", result.settings)
    assert (recipe.encoder.pooling, recipe.encoder.normalise) == ("cls", False)
    assert recipe.stage1.temperature == recipe.stage2.temperature == 1.0
    assert result.notes[0].startswith("model: m (cls pooling, no normalisation, 24 dimensions, questions to 32 tokens")
    assert result.notes[1] == ("its folder does not name the pooling: cls is used; --set encoder.pooling=mean or cls")
    assert complete(store, "adapt", tmp_path / "m", "encoder.pooling=mean").encoder.pooling == "mean"


def test_what_the_user_sets_stays(store: Store, tmp_path: Path) -> None:
    folder, path = sentence(tmp_path / "m", prompts=PROMPTS), tmp_path / "mine.yaml"
    path.write_text(
        "extends: text\nencoder: {question_prefix: 'ask: '}\nencode: {passage_tokens: 24}\n"
        "initial: {checkpoint: models/other}\nstage1: {optimiser: {learning_rate: 1e-6}}\n"
    )
    recipe = complete(store, str(path), folder, "encoder.question_tokens=16", "cocondenser.budget=9 steps")
    assert (recipe.encoder.question_prefix, recipe.encoder.question_tokens) == ("ask: ", 16)
    assert (recipe.encode.passage_tokens, recipe.stage1.passage_tokens) == (24, 40)
    assert (recipe.stage1.optimiser.learning_rate, recipe.stage2.optimiser.learning_rate) == (1e-6, 2e-5)
    assert recipe.initial.checkpoint == folder  # the option names the model
    assert (recipe.condenser.budget, recipe.cocondenser.budget) == (None, "9 steps")


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("encoder.pooling=cls", "encoder.pooling: cls, but the model in {} has mean"),
        ("encoder.normalise=false", "encoder.normalise: false, but the model in {} has true"),
        ("encoder.projection=8", "encoder.projection: 8, but the model in {} has null"),
        ("encoder.question_tokens=129", "encoder.question_tokens: 129, but the model in {} has 128 positions"),
        ("initial.checkpoint=/else", "initial.checkpoint: /else, but --model has {}"),
        ("tokenizer.path=/else", "tokenizer.path: /else, but --model has {}"),
        ("condenser.checkpoint=/else", "condenser.checkpoint: /else, but --model starts from {}"),
        ("model=/else", "model: /else replaces all training, but --model names a model to train: set null"),
    ],
)
def test_a_contradiction_is_one_line_with_both_values(store: Store, tmp_path: Path, setting: str, line: str) -> None:
    folder = sentence(tmp_path / "m")
    path = tmp_path / "mine.yaml"
    field, _, value = setting.partition("=")
    section, _, key = field.partition(".")
    path.write_text(f"extends: adapt\n{section}: {f'{{{key}: {value}}}' if key else value}\n")
    cases = [("adapt", [setting])]
    if not line.endswith("--model has {}"):  # the option replaces the model of a file
        cases.append((str(path), []))
    for recipe, settings in cases:
        with pytest.raises(InputError) as error:
            fine_tuning(store, recipe, str(folder), None, settings)
        assert str(error.value) == line.format(folder)


def untied(folder: Path) -> Path:
    sentence(folder / "query")
    shutil.copytree(folder / "query", folder / "passage")
    return folder


def inner(folder: Path) -> Path:
    """As sentence-transformers' first releases wrote a folder."""
    sentence(folder)
    own = folder / "0_Transformer"
    own.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).rename(own / name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = own.name
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def decoder(folder: Path) -> Path:
    path = sentence(folder) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "gpt2"}))
    return folder


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda folder: folder, "model {}: no such folder"),
        (empty, "{}/config.json: missing; a checkpoint is a Hugging Face model folder"),
        (decoder, "config.json: model_type 'gpt2' is a decoder; only encoders are supported"),
        (untied, "model {}: has an encoder for questions and one for passages, but training starts from one"),
        (inner, "model {}: its weights are in 0_Transformer/, but training reads them next to modules.json"),
    ],
)
def test_a_model_that_cannot_be_trained_is_one_line(
    store: Store, tmp_path: Path, make: Callable[[Path], Path], line: str
) -> None:
    folder = make(tmp_path / "m")
    with pytest.raises(InputError) as error:
        fine_tuning(store, "text", str(folder), None)
    assert line.format(folder) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_name_on_the_hub_is_its_folder_in_the_cache(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "reachable", lambda seconds: False)
    with pytest.raises(InputError) as error:
        fine_tuning(store, "text", "org/small", None)
    assert str(error.value) == (
        "model org/small: no such folder, and not on this machine: `hf download org/small`, or name a local folder"
    )
    repository = tmp_path / "models--org--small"
    snapshot = sentence(repository / "snapshots" / "0123abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abc")
    assert complete(store, "text", Path("org/small")).initial.checkpoint == snapshot
    assert complete(store, "text", Path("org/small")).encoder.pooling == "mean"
    (snapshot / "modules.json").unlink()  # as `initial.pretrained` downloads it: used where the hub does not answer
    assert complete(store, "text", Path("org/small")).initial.checkpoint == snapshot


def test_the_collection_is_a_folder_with_training_questions(store: Store, tmp_path: Path, collection: Path) -> None:
    model, folder = sentence(tmp_path / "m"), beir(tmp_path / "trained", ["train", "dev", "test"])
    adapt, text = (complete(store, recipe, model, collection=folder) for recipe in ("adapt", "text"))
    for recipe in (adapt, text):
        assert (recipe.ingest.reader, recipe.ingest.folder) == ("beir", folder)
    assert complete(store, "adapt", model, "ingest.passage_words=50", collection=folder).ingest.passage_words == 50
    same = resolve("adapt", fine_tuning(store, "adapt", str(model), "pydocs-small").settings)
    assert (same.ingest, same.bm25) == (resolve("pydocs-small").ingest, resolve("pydocs-small").bm25)
    for where, setting, line in (
        (folder, "ingest.folder=/else", f"ingest.folder: /else, but --collection has {folder}"),
        (collection, "stage1.epochs=2", f"collection {collection}: no training questions "),
        (empty(tmp_path / "texts"), "stage1.epochs=2", f"run text --set ingest.path={tmp_path / 'texts'}`"),
    ):
        with pytest.raises(InputError) as error:
            complete(store, "adapt", model, setting, collection=where)
        assert line in str(error.value)


def test_plan_has_the_same_options(store: Store, tmp_path: Path) -> None:
    model, folder = sentence(tmp_path / "m"), beir(tmp_path / "trained", ["train", "dev", "test"])
    options = ["--model", str(model), "--collection", str(folder), "--store", str(store.root)]
    result = CliRunner().invoke(app, ["plan", "adapt", *options, "--json"])
    assert result.exit_code == 0, result.output
    steps = {step["node"]: step for step in json.loads(result.stdout)}
    assert (steps["ingest"]["action"], steps["stage2"]["action"]) == ("build", "unknown")
    assert "model: m (mean pooling, vectors of length 1" in result.stderr
