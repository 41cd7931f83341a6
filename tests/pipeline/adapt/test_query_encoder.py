"""The stage `adapt` with all weights of the question encoder."""

import json
from functools import partial

import numpy as np
import pytest
from adapted import EASY, ENCODER, Corpus, check_learned, check_resumes, with_two_encoders
from indexes import write_embeddings
from ready import WORDS, theirs

from artifacts import objects
from pipeline.adapt.adapt import adapt
from pipeline.adapt.apply_map import MAP
from pipeline.adapt.map_vectors import MapVectorsConfig, map_vectors
from pipeline.dense import shard_reuse
from pipeline.dense.question_encoder import question_encoder
from pipeline.modeling.biencoder import frozen_encoders
from pipeline.runtime.work import Metrics, Work
from pipeline.training import loop

CONFIG = EASY.model_copy(update={"trains": "query_encoder", "guard_p": 0.9})
TEXTS = [" ".join(WORDS[n : n + 4]) for n in range(12)]


def build(corpus: Corpus, work: Work, **changes: object) -> Metrics:
    config = CONFIG.model_copy(update=changes)
    return adapt(config, ENCODER, corpus.collection, corpus.checkpoint, corpus.index, corpus.bm25, work)


def test_the_question_encoder_learns_and_passages_keep_theirs(corpus: Corpus, work, inline, tmp_path) -> None:
    done = work("done")
    check_learned(build(corpus, done))

    questions, passages = frozen_encoders(done.out)
    (start, _) = frozen_encoders(corpus.checkpoint)
    start_weights, changed = start.model.state_dict(), questions.model.state_dict()
    assert any((changed[name] != x).any() for name, x in start_weights.items())
    assert all((passages.model.state_dict()[name] == x).all() for name, x in start_weights.items())
    assert not (done.out / MAP).exists()
    model = question_encoder(done.out, ENCODER)
    own = model.vectors([row for row in model.rows(TEXTS) if row is not None])
    np.testing.assert_allclose(theirs(done.out / "query", "query", TEXTS), own, atol=1e-5)

    embeddings = write_embeddings(tmp_path / "embeddings", corpus.vectors_ND, 25)
    mapped = work("mapped")
    map_vectors(MapVectorsConfig(), done.out, embeddings, mapped)
    assert json.loads((mapped.out / "embeddings.json").read_text())["model"] == shard_reuse.model(done.out)
    for path in sorted(embeddings.glob("*.npy")):
        assert (mapped.out / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("depth", [20, 5])
def test_without_a_change_the_agreement_stays(corpus: Corpus, work, inline, monkeypatch, depth: int) -> None:
    monkeypatch.setattr(loop, "train", lambda *_, **__: [])
    metrics = build(corpus, work(), depth=depth, candidates=5)
    assert metrics["agreement_after"] == pytest.approx(metrics["agreement_before"], abs=1e-6)
    assert metrics["used"] == "no"


def test_a_resumed_training_has_equal_bytes(corpus: Corpus, work, inline, accepting) -> None:
    check_resumes(partial(build, corpus), work)


def test_half_the_change_is_half_way(corpus: Corpus, work, inline, accepting) -> None:
    whole, half = work("whole"), work("half")
    build(corpus, whole)
    build(corpus, half, merge=0.5)
    folders = (corpus.checkpoint, whole.out, half.out)
    start, all_of_it, merged = (frozen_encoders(folder)[0].model.state_dict() for folder in folders)
    for name, x in merged.items():
        np.testing.assert_allclose(x, (start[name] + all_of_it[name]) / 2, atol=1e-6)


def test_a_refused_model_is_the_start_with_one_encoder(corpus: Corpus, work, inline) -> None:
    refused, mapped = work("refused"), work("mapped")
    metrics = build(corpus, refused, guard_p=1e-9)
    assert metrics["used"] == "no"
    adapt(
        EASY.model_copy(update={"guard_p": 1e-9}),
        ENCODER,
        corpus.collection,
        corpus.checkpoint,
        corpus.index,
        corpus.bm25,
        mapped,
    )
    assert objects.seal(refused.out)[0] == objects.seal(mapped.out)[0]


def test_of_two_encoders_that_of_questions_is_trained(corpus: Corpus, work, inline, accepting, tmp_path) -> None:
    one, two = work("one"), work("two")
    build(corpus, one)
    build(with_two_encoders(corpus, tmp_path), two)
    assert objects.seal(one.out)[0] == objects.seal(two.out)[0]
