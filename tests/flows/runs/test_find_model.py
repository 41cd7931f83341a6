"""Models that `evaluate-model` and `--model` find: folders, names on the hub, and nodes of the store's runs."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ready import plain, sentence
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from artifacts.errors import StoreError
from artifacts.objects import seal
from artifacts.records import Ref
from artifacts.runs import record_run
from artifacts.store import Store
from flows.dag import nodes
from flows.recipes.recipe import resolve
from flows.runs.find_model import find_model
from flows.runs.zero_shot import zero_shot_recipe
from pipeline.errors import InputError
from pipeline.runtime import hub
from tasks.keys import key_of


def test_missing_models_are_reported(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "reachable", lambda seconds: False)
    (tmp_path / "file").write_text("")
    loop, dangling = tmp_path / "loop", tmp_path / "dangling"
    loop.symlink_to("loop")
    dangling.symlink_to("gone")
    for name, line in {
        str(loop): f"the link {loop} leads back to itself",
        str(dangling): f"the link {dangling} leads to gone, which does not exist",
        str(dangling / "model"): f"the link {dangling} leads to gone, which does not exist",
        str(tmp_path / "none"): "no such folder",
        "./none": "no such folder",
        str(tmp_path / "file"): "is a file, not a folder with a model",
        "stage2": f"no such folder, and no node of a run in {store.root}; a name on the Hugging Face hub is OWNER/NAME",
        "abcdef": f"no such folder, and no node of a run in {store.root}; a name on the Hugging Face hub is OWNER/NAME",
        "x/all-MiniLM": "not on this machine: `hf download x/all-MiniLM`, or name a local folder",
    }.items():
        with pytest.raises(InputError) as error:
            find_model(store, name)
        full_name = Path.cwd() / name if name.startswith(".") else name
        assert str(error.value).startswith(f"model {full_name}: ")
        assert str(error.value).endswith(line)


def recorded(store: Store, name: str, hour: int, *settings: str, **artifacts: Path) -> dict[str, Ref]:
    """A run of a recipe with copies of these folders as its nodes."""
    refs = {}
    for number, (node, folder) in enumerate(artifacts.items()):
        copy = Path(shutil.copytree(folder, store.objects / f"{hour}{number}"))
        (copy / "copied").write_text(f"{hour}{number}")
        digest, _ = seal(copy)
        copy.rename(store.objects / digest)
        refs[node] = Ref(node, digest, digest, digest, store.objects / digest, {})
    details = {"recipe": resolve("tiny", settings).model_dump(mode="json")}
    record_run(store, name, refs, details, datetime(2026, 1, 1, hour, tzinfo=UTC))
    return refs


def test_a_model_of_the_store_uses_the_settings_of_its_run(store: Store, tmp_path: Path, collection: Path) -> None:
    from pipeline.modeling.checkpoint import load_encoder, save_checkpoint

    source = plain(tmp_path / "source")
    save_checkpoint(tmp_path / "own", load_encoder(source), source)
    (tmp_path / "empty").mkdir()
    lengths = ["encoder.question_tokens=24", "encode.passage_tokens=48", "encoder.title_tokens=7"]
    old = recorded(store, "old", 1, stage2=tmp_path / "own")
    new = recorded(store, "new", 2, *lengths, stage2=tmp_path / "own", bm25=tmp_path / "empty")
    digest = new["stage2"].digest
    for name in ("stage2", "new:stage2", digest, digest[:8], str(store.objects / digest)):
        recipe, _ = zero_shot_recipe(store, name, str(collection))
        assert recipe.name == "new stage2 on lamps"
        assert recipe.model == new["stage2"].path
        assert (recipe.encoder.question_tokens, recipe.encode.passage_tokens) == (24, 48)
        assert (recipe.encoder.title_tokens, recipe.encoder.title_separator, recipe.encoder.pooling) == (
            7,
            "sep",
            "cls",
        )
    assert zero_shot_recipe(store, "old:stage2", str(collection))[0].model == old["stage2"].path
    for name, line in {
        "new:stage3": "model new:stage3: no node 'stage3' in the run of new (did you mean stage2?)",
        "new:bm25": "bm25 of the run of new has no model; these nodes have one: stage2",
    }.items():
        with pytest.raises(InputError) as error:
            find_model(store, name)
        assert str(error.value) == line
    model = next(
        node for node in nodes(zero_shot_recipe(store, "new:stage2", str(collection))[0]) if node.name == "model"
    )
    (new["stage2"].path / "model.safetensors").write_bytes(b"changed")
    damaged = r"checkpoint \(objects/\w+\): model\.safetensors has 7 bytes, not .*; `cocondenser"
    with pytest.raises(StoreError, match=damaged):
        zero_shot_recipe(store, "new:stage2", str(collection))
    with pytest.raises(StoreError, match=damaged):  # also once the run is prepared
        key_of(store, model.stage, model.config, {}, model.shared)
    shutil.rmtree(new["stage2"].path)
    assert zero_shot_recipe(store, "stage2", str(collection))[0].model == old["stage2"].path


def unigram(folder: Path) -> None:
    """A tokenizer as XLM-RoBERTa has it."""
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "▁", "▁query", "▁a", *"querya:1A(.é"]
    tokenizer = Tokenizer(models.Unigram([(name, -float(n)) for n, name in enumerate(names)], unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("own", [unigram, lambda folder: None])
def test_a_prompt_that_runs_into_the_text_is_refused(store: Store, tmp_path: Path, own: Callable[[Path], None]) -> None:
    def found(prompt: str) -> str:
        folder = sentence(tmp_path / prompt, prompts={"query": prompt})
        own(folder)
        return str(find_model(store, str(folder)).encoder["question_prefix"])

    assert found("query: ") == "query: "
    with pytest.raises(
        InputError, match="the prompt 'query' ends without a space and changes the first token of a text"
    ):
        found("query")
    if own is unigram:
        with pytest.raises(InputError, match=r"the prompt 'query:' ends without a space .* this unigram"):
            found("query:")
    else:
        assert found("query:") == "query:"  # WordPiece splits after a sign


@pytest.mark.parametrize("late", ["model.safetensors", "2_Dense/model.safetensors"])
def test_an_interrupted_download_is_completed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    repository = tmp_path / "models--org--small"
    snapshot = sentence(repository / "snapshots" / "0123abc", ("Transformer", "Pooling", "Dense", "Normalize"))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abc")
    (snapshot / late).rename(tmp_path / "late")
    downloads = []

    def download(name: str, **options: object) -> str:
        downloads.append(name)
        (tmp_path / "late").rename(snapshot / late)
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr(hub, "reachable", lambda seconds: True)
    monkeypatch.setattr(hub, "check_usable", lambda name: None)
    for _ in range(2):
        assert find_model(store, "org/small").folder == snapshot
    assert downloads == ["org/small"]


def test_names_are_safe_in_files(store: Store, tmp_path: Path, collection: Path) -> None:
    folder = plain(tmp_path / "a:b*c")
    assert zero_shot_recipe(store, str(folder), str(collection))[0].name == "a-b-c on lamps"
    assert zero_shot_recipe(store, str(folder), str(collection), name="é 1")[0].name == "é 1"
    for name, line in (("../é 1", "are allowed"), ("a/tiny", "are allowed"), ("tiny", "is the name of a recipe")):
        with pytest.raises(InputError, match=f"^--name .*{line}"):
            zero_shot_recipe(store, str(folder), str(collection), name=name)
    snapshot = tmp_path / "models--org--Small-v2" / "snapshots" / "0123abc"
    shutil.copytree(folder, snapshot)
    assert zero_shot_recipe(store, str(snapshot), str(collection))[0].name == "Small-v2 on lamps"
