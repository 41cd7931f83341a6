"""The stages `adapt` and `map_vectors`."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from adapted import CONFIG, EASY, ENCODER, Corpus
from indexes import write_embeddings
from ready import WORDS, sentence, theirs

from artifacts import objects
from pipeline.adapt.adapt import adapt, check_projection, check_start
from pipeline.adapt.apply_map import MAP, apply_map
from pipeline.adapt.config import AdaptConfig
from pipeline.adapt.map_vectors import MapVectorsConfig, map_vectors
from pipeline.dense import shard_reuse
from pipeline.dense.question_encoder import question_encoder
from pipeline.errors import InputError
from pipeline.modeling.adopt import AdoptConfig
from pipeline.modeling.biencoder import as_projection, compose
from pipeline.modeling.model_files.sentence_transformers_files import Dense, Vector, read_vector, write_vector
from pipeline.notices import read_notices
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics, Work

TEXTS = [" ".join(WORDS[n : n + 4]) for n in range(12)]


def build(config: AdaptConfig, corpus: Corpus, work: Work, checkpoint: Path | None = None) -> Metrics:
    given = corpus.checkpoint if checkpoint is None else checkpoint
    return adapt(config, ENCODER, corpus.collection, given, corpus.index, corpus.bm25, work)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture
def adapted(corpus: Corpus, work, inline) -> Path:
    done = work("adapted")
    assert build(EASY, corpus, done)["used"] == "yes"
    return done.out


def test_the_map_improves_the_divergence_and_the_bytes_are_equal_twice(corpus: Corpus, work, inline, tmp_path) -> None:
    first, again, stored = work("first"), work("again"), tmp_path / "stored"
    shutil.copytree(corpus.checkpoint, stored)
    objects.seal(stored)  # as the inputs of a run are
    metrics = build(EASY, corpus, first, stored)
    assert metrics["divergence_after"] < metrics["divergence_before"]
    assert metrics["agreement_after"] > metrics["agreement_before"]
    (line,) = read_notices(metrics)
    assert line.startswith("adapted model used: on ")
    assert build(EASY, corpus, again) == metrics
    assert objects.seal(first.out)[0] == objects.seal(again.out)[0]


def test_sentence_transformers_has_the_vectors_of_the_search(corpus: Corpus, adapted: Path) -> None:
    model = question_encoder(adapted, ENCODER)
    own = model.vectors([row for row in model.rows(TEXTS) if row is not None])
    np.testing.assert_allclose(theirs(adapted, "query", TEXTS), own, atol=1e-5)
    start = question_encoder(corpus.checkpoint, ENCODER)
    before = start.vectors([row for row in start.rows(TEXTS) if row is not None])
    np.testing.assert_allclose(apply_map(np.load(adapted / MAP), before, True), own, atol=1e-5)
    assert np.abs(own - before).max() > 0.01


def test_the_weights_of_an_adapted_model_have_the_mode_of_its_tokenizer(adapted: Path) -> None:
    modes = {path.stat().st_mode & 0o777 for path in adapted.rglob("*.safetensors")}
    assert modes == {(adapted / "tokenizer.json").stat().st_mode & 0o777}


def test_vectors_are_mapped_as_if_they_were_encoded_again(corpus: Corpus, adapted: Path, work, tmp_path) -> None:
    embeddings = write_embeddings(tmp_path / "embeddings", corpus.vectors_ND, 25)
    done = work("mapped")
    assert map_vectors(MapVectorsConfig(), adapted, embeddings, done)["passages"] == 60
    said = json.loads((done.out / "embeddings.json").read_text())
    assert said["model"] == shard_reuse.model(adapted)
    assert len({entry["key"] for entry in said["shards"]}) == 3
    shards = [np.load(path) for path in sorted(done.out.glob("*.npy"))]
    assert {shard.dtype for shard in shards} == {np.dtype(np.float16)}
    for entry, path in zip(said["shards"], sorted(done.out.glob("*.npy")), strict=True):
        assert entry["sha256"] == shard_reuse.sha256(path)
    np.testing.assert_allclose(
        np.concatenate(shards), apply_map(np.load(adapted / MAP), corpus.vectors_ND, True), atol=1e-3
    )


def test_mapped_vectors_beyond_float16_are_refused(corpus: Corpus, work, tmp_path) -> None:
    embeddings = write_embeddings(tmp_path / "embeddings", corpus.vectors_ND, 25)
    long = tmp_path / "long"
    shutil.copytree(corpus.checkpoint, long)
    write_vector(long, 24, Vector("mean", normalise=False))
    np.save(long / MAP, 1e6 * np.eye(24, dtype=np.float32))
    with pytest.raises(InputError, match=r"vectors beyond float16: .*lower adapt\.learning_rate"):
        map_vectors(MapVectorsConfig(), long, embeddings, work("long"))


def test_a_refused_model_is_the_start(corpus: Corpus, work, inline, tmp_path, monkeypatch) -> None:
    harmful = -3 * np.eye(24, dtype=np.float32) + np.random.default_rng(0).normal(size=(24, 24)).astype(np.float32)
    monkeypatch.setattr("pipeline.adapt.students.train_map", lambda *_: harmful)
    done = work("refused")
    metrics = build(EASY, corpus, done)
    assert metrics["used"] == "no"
    assert metrics["agreement_after"] < metrics["agreement_before"]
    assert content(done.out) == content(corpus.checkpoint)
    (line,) = read_notices(metrics)
    assert line.startswith("adapted model not used: on ")
    assert "(adapt.guard_p: 0.5)" in line
    embeddings = write_embeddings(tmp_path / "embeddings", corpus.vectors_ND, 25, shard_reuse.model(corpus.checkpoint))
    mapped = work("mapped")
    map_vectors(MapVectorsConfig(), done.out, embeddings, mapped)
    before, after = content(embeddings), content(mapped.out)
    assert json.loads(before.pop("embeddings.json")) == json.loads(after.pop("embeddings.json"))
    assert before == after


@pytest.mark.parametrize("depth", [20, 5])
def test_an_equal_model_has_an_equal_agreement(corpus: Corpus, work, inline, monkeypatch, depth: int) -> None:
    """Also if the teacher's lists are shorter than those of the guard."""
    monkeypatch.setattr("pipeline.adapt.students.train_map", lambda *_: np.eye(24, dtype=np.float32))
    metrics = build(EASY.model_copy(update={"depth": depth, "candidates": 5}), corpus, work())
    assert metrics["agreement_after"] == pytest.approx(metrics["agreement_before"], abs=2e-3)  # by rounding


def test_too_few_words_leave_the_model_as_it_is(corpus: Corpus, work, inline) -> None:
    done = work("short")
    metrics = build(EASY.model_copy(update={"guard_words": (90, 90)}), corpus, done)
    assert (metrics["guard_queries"], metrics["used"]) == (0, "no")
    assert read_notices(metrics) == ["adapted model not used: too few passages or words to generate queries from"]
    assert content(done.out) == content(corpus.checkpoint)


def test_both_encoders_get_the_map(corpus: Corpus, adapted: Path, work, inline, tmp_path) -> None:
    untied = tmp_path / "untied"
    for side in ("query", "passage"):
        shutil.copytree(corpus.checkpoint, untied / side)
    index = tmp_path / "index"
    shutil.copytree(corpus.index, index)
    said = json.loads((index / "index.json").read_text())
    (index / "index.json").write_text(json.dumps({**said, "model": shard_reuse.model(untied)}))
    done = work("untied")
    adapt(EASY, ENCODER, corpus.collection, untied, index, corpus.bm25, done)
    for side in ("query", "passage"):
        assert (done.out / side / "2_Dense" / "model.safetensors").read_bytes() == (
            adapted / "2_Dense" / "model.safetensors"
        ).read_bytes()
    assert (done.out / MAP).is_file()


def test_an_index_of_another_model_is_refused(corpus: Corpus, work, inline, tmp_path) -> None:
    other = tmp_path / "other"
    shutil.copytree(corpus.checkpoint, other)
    (other / "config.json").write_text((other / "config.json").read_text() + " ")
    with pytest.raises(InputError, match="built with another model"):
        build(EASY, corpus, work("other"), other)


def test_a_map_after_a_projection_is_one_projection() -> None:
    torch.manual_seed(0)
    first = Dense(torch.randn(6, 8), torch.randn(6))
    map_EE = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
    pooled = torch.randn(5, 8)
    both, one = as_projection(compose(map_EE, first)), as_projection(first)
    assert both is not None
    assert one is not None
    torch.testing.assert_close(both(pooled), one(pooled) @ torch.from_numpy(map_EE).T, rtol=1e-4, atol=1e-4)
    assert compose(map_EE, Dense(torch.randn(6, 8))).bias_E is None
    assert compose(map_EE, None).weight_ED.tolist() == map_EE.tolist()


def test_a_projection_with_an_activation_is_refused_before_any_work(tmp_path: Path) -> None:
    folder = sentence(tmp_path / "m", ("Transformer", "Pooling", "Dense"))
    check_projection(folder)
    config = folder / "2_Dense" / "config.json"
    own = json.loads(config.read_text()) | {"activation_function": "torch.nn.modules.activation.Tanh"}
    config.write_text(json.dumps(own))
    start = Planned(
        "model", "adopt", "model", AdoptConfig(checkpoint=folder, pooling="mean", normalise=True), {}, {}, None, {}
    )
    node = Planned("adapted", "adapt", "adapt", EASY, {}, {"checkpoint": start}, None, {})
    with pytest.raises(InputError, match="has the activation Tanh, which no linear map can follow"):
        check_start(node)
    for trains in ("query_encoder", "both_encoders"):
        check_start(replace(node, config=EASY.model_copy(update={"trains": trains})))


def test_the_adapted_model_keeps_its_prefixes_and_pooling(corpus: Corpus, work, inline, tmp_path) -> None:
    vector, start = read_vector(corpus.checkpoint), tmp_path / "start"
    shutil.copytree(corpus.checkpoint, start)
    prompts = json.loads((start / "config_sentence_transformers.json").read_text())
    prompts["prompts"] = {"query": "query: ", "document": "passage: "}
    (start / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    done = work("prefixes")
    assert build(EASY, corpus, done, start)["used"] == "yes"
    found = read_vector(done.out)
    assert (found.pooling, found.normalise) == (vector.pooling, vector.normalise)
    assert (found.question_prefix, found.passage_prefix) == ("query: ", "passage: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keyword_words": [6, 3]}, "keyword_words: the first number must not be above the second"),
        ({"candidates": 2000}, r"candidates \(2000\) is more than depth"),
        ({"merge": 0}, "merge"),
        ({"queries": 1}, "queries"),
    ],
)
def test_a_wrong_configuration_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AdaptConfig(**{**CONFIG.model_dump(), **changes})
