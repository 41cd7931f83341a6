"""The flow of sentence tasks: its recipes, its nodes, and a whole run on invented tables."""

import json
import re
from pathlib import Path
from unittest.mock import ANY

import pytest
from sentences import labelled, scored
from typer.testing import CliRunner

from artifacts.runs import record_run
from artifacts.store import Store
from flows.cli.main import app
from flows.recipes.yaml_layers import SENTENCES, named
from flows.sentences.dag import sentence_nodes
from flows.sentences.recipe import SentenceRecipe, resolve_sentences
from flows.sentences.results import headings_and_rows, results_markdown
from pipeline.errors import InputError


def dag(tmp_path: Path, *settings: str, recipe: str = "stsb") -> list:
    return sentence_nodes(resolve_sentences(recipe, settings), Store(tmp_path / "store"))


def test_the_recipes_have_the_papers_sizes_and_epochs(tmp_path) -> None:
    assert named(SENTENCES) == ["sections", "stsb"]
    names = [node.name for node in dag(tmp_path)]
    cells = ["bert-0", "bert-500-4x", "bert-500-8x", "bert-1000-4x", "bert-1000-8x", "bert-all-4x"]
    assert names == ["table", "model-bert", *cells, "summary"]
    names = [node.name for node in dag(tmp_path, recipe="sections")]
    assert names[3:-1] == [f"bert-{size}-{n}x" for size in (1000, 10000) for n in (1, 4, 8)] + ["bert-all-1x"]


def with_nli(*models: str) -> str:
    """The setting of a training on labelled pairs first."""
    training = json.dumps(resolve_sentences("stsb").training.model_dump(mode="json"))
    layout = "{separator: tab, quotes: false, header: true}"
    columns = "sentence1: s1, sentence2: s2, label: gold, labels: [c, e, n], left_out: []"
    table = f"{{kind: labelled, train: nli.tsv, dev: null, layout: {layout}, {columns}}}"
    return f"nli={{models: {json.dumps(models)}, epochs: 1, table: {table}, training: {training}}}"


def test_nli_and_repeats_share_nodes(tmp_path) -> None:
    settings = [with_nli("BERT"), "models.Other=hub:other/model", "repeats=2", "sizes.500=[]", "sizes.1000=[]"]
    nodes_by_name = {node.name: node for node in dag(tmp_path, *settings)}
    assert [*nodes_by_name] == [
        "table", "model-bert", "model-other", "nli", "nli-bert",
        "bert-0", "bert-all-4x-1", "bert-all-4x-2",
        "bert-nli-0", "bert-nli-all-4x-1", "bert-nli-all-4x-2",
        "other-0", "other-all-4x-1", "other-all-4x-2", "summary",
    ]  # fmt: skip
    assert nodes_by_name["bert-nli-all-4x-1"].inputs == {
        "table": nodes_by_name["table"],
        "start": nodes_by_name["nli-bert"],
    }
    seeds = [nodes_by_name[f"bert-all-4x-{n}"].shared["training"].seed for n in (1, 2)]
    assert seeds == [42, 43]
    assert [training.model for training in nodes_by_name["summary"].config.trainings][::3] == [
        "BERT",
        "BERT + NLI",
        "Other",
    ]


@pytest.mark.parametrize("label", ["BERT + NLI", "bert nli"])
def test_a_label_that_equals_a_row_of_nli_is_refused(label) -> None:
    assert resolve_sentences("stsb", [f"models.{label}=hub:other/model"])
    with pytest.raises(InputError, match=f"rows 'BERT . NLI' and '{re.escape(label)}' have the same letters"):
        resolve_sentences("stsb", [f"models.{label}=hub:other/model", with_nli("BERT")])


def test_two_nodes_with_the_same_name_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="models: two nodes would have the name model-0"):
        dag(tmp_path, "models.0=hub:other/model", "models.model=hub:some/model")


def test_a_model_is_a_folder_a_hub_name_or_a_node_of_a_run(tmp_path) -> None:
    (tmp_path / "here").mkdir()
    config = dag(tmp_path, f"models.BERT={tmp_path / 'here'}")[1].config
    assert (config.checkpoint, config.pretrained) == (tmp_path / "here", None)
    config = dag(tmp_path, "models.BERT=hub:some/model@abc")[1].config
    assert (config.checkpoint, config.pretrained, config.revision) == (None, "some/model", "abc")
    with pytest.raises(InputError, match=r"models\.BERT: .*nowhere: no such folder"):
        dag(tmp_path, f"models.BERT={tmp_path}/nowhere")
    with pytest.raises(
        InputError, match=r"models\.BERT: .*store: no run of tiny with condenser; `cocondenser run tiny"
    ):
        dag(tmp_path, "models.BERT=tiny:condenser")
    with pytest.raises(InputError, match=r"models: the recipe has no model"):
        dag(tmp_path, "models.BERT=null")
    with pytest.raises(InputError, match=r"tokenizer: .*vocab\.txt: no such file or folder"):
        dag(tmp_path, f"models.BERT={tmp_path / 'here'}", f"tokenizer={tmp_path}/vocab.txt")


def test_a_node_of_the_store_may_be_the_model(tmp_path) -> None:
    from dataclasses import replace

    from artifacts.errors import StoreError
    from artifacts.objects import seal
    from artifacts.records import Ref
    from tasks.keys import key_of

    store = Store(tmp_path / "store")
    ref = Ref("condenser", "0" * 64, "1" * 64, "1" * 64, store.objects / ("1" * 64), {})
    ref.path.mkdir(parents=True)
    record_run(store, "tiny", {"condenser": ref}, {})
    with pytest.raises(InputError, match="condenser of tiny is not a model"):
        dag(tmp_path, "models.BERT=tiny:condenser")
    (ref.path / "config.json").write_text("{}")
    digest, _ = seal(ref.path)
    whole = replace(ref, digest=digest, path=ref.path.rename(store.objects / digest))
    record_run(store, "tiny", {"condenser": whole}, {})
    assert dag(tmp_path, "models.BERT=tiny:condenser")[1].config.checkpoint == whole.path
    (whole.path / "config.json").write_text("{ ")
    start = dag(tmp_path, "models.BERT=tiny:condenser")[1]
    with pytest.raises(StoreError, match=r"checkpoint \(objects/\w+\): config.json was changed; `cocondenser"):
        key_of(store, start.stage, start.config, {}, start.shared)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.bach=3", r"--set training\.bach=3: training\.bach: unknown field \(did you mean batch\?\)"),
        ("sizes.five=[4]", "sizes.five: must be a number of training rows, or all"),
        ("sizes.0=[4]", "0 training rows need the list"),
        ("sizes.500=[0]", "0 training rows need the list"),
        ("sizes.500=[4, 4]", "a number of epochs appears twice"),
        ("models.bert=hub:other", "models: the rows 'BERT' and 'bert' have the same letters and digits"),
        ("encoder.tokens=10000", "less than or equal to 8192"),
        ("table.highest=nan", "finite number"),
    ],
)
def test_mistakes_are_reported_with_their_place(setting, message) -> None:
    with pytest.raises(InputError, match=message):
        resolve_sentences("stsb", [setting])


def test_a_users_recipe_is_resolved(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: stsb\nsizes: {500: [4], 1000: [], all: [4]}\ntraining:\n  batch: none\n")
    with pytest.raises(InputError, match=rf"{path}:4: training\.batch: Input should be a valid integer"):
        resolve_sentences(str(path))
    path.write_text("extends: stsb\nsizes: {500: [4], 1000: [], all: [4]}\n")
    recipe = resolve_sentences(str(path))
    assert (recipe.name, recipe.title, recipe.hidden) == ("mine", "mine", False)
    assert recipe.sizes == {"0": [0], "500": [4], "1000": [], "all": [4]}
    with pytest.raises(InputError, match=r"no recipe of sentences 'stbs' \(did you mean stsb\?\)"):
        resolve_sentences("stbs")
    path.write_text("extends: mine.yaml\n")
    with pytest.raises(InputError, match="extends itself"):
        resolve_sentences(str(path))


def test_the_table_has_published_figures_too() -> None:
    def row(model: str, size: int | None, epochs: int, test: dict | None, candidates: int = 1) -> dict:
        tried = {str(n): 0.5 for n in range(candidates)}
        return {"model": model, "size": size, "epochs": epochs, "candidates": tried, "test": test}

    figures = {"mean": 0.7661, "low": 0.742, "high": 0.7885}
    results = {
        "measure": "spearman",
        "rows": [row("a|<b>", 0, 0, None), row("a|<b>", 500, 8, figures, 2), row("a|<b>", None, 4, figures)],
    }
    published = resolve_sentences("stsb").published
    heads, rows = headings_and_rows(results, published)
    assert heads == ["", "0", "500", "all"]
    assert rows[0] == ["a|<b>", "–", "76.6 [74.2, 78.8] (8 ep.)", "76.6 [74.2, 78.8]"]
    assert rows[1:] == [
        ["BERT *", "", "68.6", "82.5"], ["BERT + NLI *", "", "76.4", "84.7"], ["Condenser *", "", "76.6", "85.6"]
    ]  # fmt: skip
    text = results_markdown(results, published)
    assert "| a\\|&lt;b> |" in text
    assert "BERT base" in text.splitlines()[-1]
    other = {"measure": "spearman", "rows": [row("a", 40, 1, figures)]}
    assert (headings_and_rows(other, published)[1][1:], results_markdown(other, published).splitlines()[-1]) == ([], "")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_second_run_of_sentences_reuses_everything(run_served, tmp_path) -> None:
    from machines import make_machine

    from pipeline.sentences.readers import ScoredConfig

    model, path, store = tiny_model(tmp_path / "model"), tmp_path / "mine.yaml", tmp_path / "store"
    config: ScoredConfig = scored(tmp_path, train=40, others=20)
    recipe: dict = resolve_sentences("stsb").model_dump(mode="json")
    recipe |= {
        "name": "mine", "models": {"tiny": str(model)}, "table": config.model_dump(mode="json"),
        "sizes": {"0": [0], "20": [1, 2], "all": [2]}, "bootstrap_samples": 100,
        "machine": make_machine().model_dump(mode="json"),
    }  # fmt: skip
    recipe["encoder"]["tokens"] = 24
    path.write_text(json.dumps(recipe))  # JSON is YAML
    too_many = run_served("sentences", "run", str(path), "--set", "sizes.41=[1]", store=store)
    assert too_many.returncode == 2, too_many.stderr
    assert "error: sizes.41: the table has 40 training rows" in too_many.stderr
    first = run_served("sentences", "run", str(path), "--json", "--device", "cpu", store=store)
    assert first.returncode == 0, first.stderr
    output = json.loads(first.stdout)
    assert [(row["size"], row["rows"], row["epochs"]) for row in output["results"]["rows"]] == [
        (0, 0, 0), (20, 20, ANY), (None, 40, 2)
    ]  # fmt: skip
    assert [*output["artifacts"]] == [
        "table",
        "model-tiny",
        "tiny-0",
        "tiny-20-1x",
        "tiny-20-2x",
        "tiny-all-2x",
        "summary",
    ]
    steps = json.loads(run_served("sentences", "plan", str(path), "--json", store=store).stdout)
    assert {step["action"] for step in steps} == {"reuse"}
    again = run_served("sentences", "run", str(path), "--device", "cpu", store=store)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count(" cached ") == 7
    assert "tiny" in again.stdout
    assert "BERT + NLI *" in again.stdout


def tiny_model(folder: Path) -> Path:
    import torch
    from crossed import wordpiece
    from transformers import BertConfig, BertModel

    from pipeline.modeling.checkpoint import save_checkpoint
    from pipeline.modeling.model_files.sentence_transformers_files import write_json

    source = folder.with_name("tokenizer")
    source.mkdir()
    wordpiece(source, 300)
    write_json(source / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=305, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    save_checkpoint(folder, BertModel(config, add_pooling_layer=False), source)
    return folder


def test_recipes_are_complete() -> None:
    for name in named(SENTENCES):
        recipe = resolve_sentences(name)
        assert SentenceRecipe.model_validate(recipe.model_dump(mode="json")) == recipe


def planned(folder: Path, *settings: str) -> str:
    """What `plan` prints, or its error of one line."""
    (folder / "model").mkdir(exist_ok=True)
    path = folder / "mine.yaml"
    table = scored(folder, train=40, others=20).model_dump(mode="json") if not path.exists() else None
    if table:
        sizes = {"0": [0], "500": [], "1000": [], "20": [1], "all": [2]}
        models = {"BERT": None, "tiny": str(folder / "model")}
        path.write_text(json.dumps({"extends": "stsb", "models": models, "table": table, "sizes": sizes}))
    options = [word for setting in settings for word in ("--set", setting)]
    result = CliRunner().invoke(app, ["sentences", "plan", str(path), "--store", str(folder / "store"), *options])
    assert result.exit_code == 0 or isinstance(result.exception, InputError)
    return str(result.exception or result.stdout)


def test_a_plan_refuses_what_the_run_would_refuse(tmp_path: Path) -> None:
    assert "0 of 6 stages are reused" in planned(tmp_path)
    too_many = "the table has 40 training rows (an empty list leaves the size out)"
    assert planned(tmp_path, "sizes.41=[1]") == f"sizes.41: {too_many}"
    assert "stages are reused" in planned(tmp_path, "sizes.41=[]", "sizes.40=[1]")
    dev = tmp_path / "sts-dev.csv"
    good = dev.read_text()
    dev.write_text(good + "main\tmade\t2012\t1\tsix\ta\tb\n")
    assert planned(tmp_path) == f"{dev}:21: score 'six' is not a number"
    dev.write_text("main\tmade\t2012\t1\t3\ta\tb\n" * 2)
    assert planned(tmp_path) == f"{dev}: all scores are equal, so the correlation is undefined"
    dev.unlink()
    assert planned(tmp_path).startswith(f"{dev} does not exist")
    assert not (tmp_path / "store" / "objects").exists() or not [*(tmp_path / "store" / "objects").iterdir()]


def test_a_plan_reads_the_table_of_nli_too(tmp_path: Path) -> None:
    table = labelled(tmp_path, train=30)
    training = resolve_sentences("stsb").training.model_dump(mode="json")
    nli = {"models": ["tiny"], "epochs": 1, "table": table.model_dump(mode="json"), "training": training}
    assert "nli-tiny" in planned(tmp_path, f"nli={json.dumps(nli)}")
    (tmp_path / "nli-train.csv").write_text("gold,sentence1,sentence2\nmaybe,a,b\n")
    line = f"{tmp_path / 'nli-train.csv'}:2: label 'maybe' is none of contradiction, entailment, neutral"
    assert planned(tmp_path, f"nli={json.dumps(nli)}") == line
