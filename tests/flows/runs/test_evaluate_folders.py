"""The settings in a model's folder, as `cocondenser evaluate-model` reads them."""

from pathlib import Path

import pytest
from ready import PASSAGE, PROMPTS, QUERY, READY, TWO, plain, sentence, write_json

from artifacts.store import Store
from flows.dag import nodes
from flows.runs.zero_shot import zero_shot_recipe
from pipeline.errors import InputError
from pipeline.modeling.model_files.existing_model import read_model


def test_a_plain_folder_takes_cls_and_the_papers_lengths_by_default(store: Store, tmp_path, collection: Path) -> None:
    recipe, _ = zero_shot_recipe(store, str(plain(tmp_path / "small")), str(collection))
    assert [node.name for node in nodes(recipe)] == READY
    assert (recipe.name, recipe.title) == ("small on lamps", "small on lamps")
    assert recipe.encoder.model_dump() == {
        "pooling": "cls",
        "normalise": False,
        "projection": None,
        "dimensions": None,
        "tied": True,
        "question_tokens": 32,
        "title_tokens": 512,
        "title_separator": "space",
        "question_prefix": "",
        "passage_prefix": "",
    }
    assert (recipe.encode.passage_tokens, recipe.search.depth) == (128, 1000)
    settings = ["encoder.pooling=mean", "encoder.normalise=true", "encode.passage_tokens=100", "bm25.k1=1.2"]
    changed, _ = zero_shot_recipe(store, str(tmp_path / "small"), str(collection), settings)
    assert (changed.encoder.pooling, changed.encode.passage_tokens, changed.bm25.k1) == ("mean", 100, 1.2)
    model = next(node for node in nodes(changed) if node.name == "model")
    assert (model.config.pooling, model.config.normalise) == ("mean", True)


@pytest.mark.parametrize(("positions", "title"), [(2048, 2048), (16384, 8192)])
def test_titles_are_limited_only_by_the_input(store: Store, tmp_path: Path, collection: Path, positions, title) -> None:
    folder = plain(tmp_path / "long", max_position_embeddings=positions)
    recipe, _ = zero_shot_recipe(store, str(folder), str(collection))
    assert recipe.encoder.title_tokens == title


def test_the_settings_in_a_models_folder_are_used(store: Store, tmp_path: Path, collection: Path) -> None:
    folder = sentence(tmp_path / "asked", prompts=PROMPTS, default_prompt_name="query", similarity_fn_name="cosine")
    recipe, _ = zero_shot_recipe(store, str(folder), str(collection))
    assert recipe.encoder.model_dump() == {
        "pooling": "mean",
        "normalise": True,
        "projection": None,
        "dimensions": None,
        "tied": True,
        "question_tokens": 40,
        "title_tokens": 512,
        "title_separator": "space",
        "question_prefix": QUERY,
        "passage_prefix": PASSAGE,
    }
    assert recipe.encode.passage_tokens == 40


def test_the_lengths_in_a_later_releases_folder_are_read(tmp_path: Path) -> None:
    folder = sentence(tmp_path / "later", texts={"query_length": 20}, pooling={"pooling_mode_mean_tokens": False})
    write_json(folder / "1_Pooling" / "config.json", {"embedding_dimension": 24, "pooling_mode": "cls"})
    model = read_model(folder)
    assert (model.pooling, model.question_tokens, model.passage_tokens) == (
        "cls",
        20,
        128,
    )  # the number of its positions


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
    fields = {} if similarity is None else {"similarity_fn_name": similarity}
    assert read_model(sentence(tmp_path / "m", modules, **fields)).normalise is expected


def test_settings_that_contradict_the_models_folder_are_refused(store: Store, tmp_path, collection: Path) -> None:
    folder = sentence(tmp_path / "mean")
    for setting, line in {
        "encoder.pooling=cls": f"encoder.pooling: cls, but the model in {folder} has mean",
        "encoder.normalise=false": f"encoder.normalise: false, but the model in {folder} has true",
        "encoder.projection=8": f"encoder.projection: 8, but the model in {folder} has null",
        "encoder.tied=false": f"encoder.tied: false, but the model in {folder} has true",
        "encode.passage_tokens=129": f"encode.passage_tokens: 129, but the model in {folder} has 128 positions",
    }.items():
        with pytest.raises(InputError) as error:
            zero_shot_recipe(store, str(folder), str(collection), [setting])
        assert str(error.value) == line
