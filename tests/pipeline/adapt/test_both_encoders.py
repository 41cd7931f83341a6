"""The stage `adapt` with all weights of the model."""

from functools import partial

import numpy as np
import pytest
import torch
from adapted import EASY, ENCODER, OPTIMISER, Corpus, check_learned, check_resumes, with_two_encoders
from torch.nn import functional as F

from artifacts import objects
from pipeline.adapt.adapt import adapt
from pipeline.adapt.both_encoders import divergence, draw_columns
from pipeline.adapt.config import BothEncodersConfig
from pipeline.adapt.students import ranked_again
from pipeline.data.runs import Run
from pipeline.errors import InputError
from pipeline.modeling.biencoder import frozen_encoders
from pipeline.modeling.model_files.sentence_transformers_files import is_tied
from pipeline.runtime.work import Metrics, Work
from pipeline.training import loop

BOTH = BothEncodersConfig(steps=30, batch_queries=16, candidates=8, optimiser=OPTIMISER)
CONFIG = EASY.model_copy(update={"trains": "both_encoders", "both_encoders": BOTH, "guard_p": 0.9})
TOKENS = 64


def build(corpus: Corpus, work: Work, passage_tokens: int = TOKENS, **changes: object) -> Metrics:
    config, tokens = CONFIG.model_copy(update=changes), corpus.tokens
    folders = corpus.collection, corpus.checkpoint, corpus.index, corpus.bm25
    return adapt(config, ENCODER, *folders, work, passage_tokens, tokens)


def test_all_weights_learn_and_the_guard_encodes_the_passages_again(corpus: Corpus, work, inline) -> None:
    done = work("done")
    check_learned(build(corpus, done))
    assert is_tied(done.out)
    start, tuned = (frozen_encoders(folder)[0].model.state_dict() for folder in (corpus.checkpoint, done.out))
    assert any((tuned[name] != x).any() for name, x in start.items())


@pytest.mark.parametrize("depth", [20, 5])
def test_the_guard_sees_what_the_index_of_the_model_as_it_is_shows(
    corpus: Corpus, work, inline, monkeypatch, depth: int
) -> None:
    """Without any change of the weights the lists that are ranked again have the agreement of the index's lists, also
    if the teacher's lists are shorter than the guard's.
    """
    monkeypatch.setattr(loop, "train", lambda *_, **__: [])
    metrics = build(corpus, work(), depth=depth, candidates=5)
    assert metrics["agreement_after"] == pytest.approx(metrics["agreement_before"], abs=2e-3)  # vectors are not float16
    assert metrics["divergence_after"] == pytest.approx(metrics["divergence_before"], rel=1e-2)


def test_a_resumed_training_has_equal_bytes(corpus: Corpus, work, inline, accepting) -> None:
    check_resumes(partial(build, corpus), work)


def test_a_refused_model_is_the_start(corpus: Corpus, work, inline) -> None:
    refused, mapped = work("refused"), work("mapped")
    assert build(corpus, refused, guard_p=1e-9)["used"] == "no"
    build(corpus, mapped, guard_p=1e-9, trains="map")
    assert objects.seal(refused.out)[0] == objects.seal(mapped.out)[0]


def test_two_encoders_are_both_trained(corpus: Corpus, work, inline, accepting, tmp_path) -> None:
    done = work("done")
    metrics = build(with_two_encoders(corpus, tmp_path), done)
    assert metrics["divergence_after"] < metrics["divergence_before"]
    assert not is_tied(done.out)
    start = frozen_encoders(corpus.checkpoint)[0].model.state_dict()
    sides = [encoder.model.state_dict() for encoder in frozen_encoders(done.out)]
    for changed in sides:
        assert any((changed[name] != x).any() for name, x in start.items())
    assert any((sides[0][name] != x).any() for name, x in sides[1].items())


def test_longer_passages_than_the_model_reads_are_refused(corpus: Corpus, work, inline) -> None:
    with pytest.raises(InputError, match=r"encode.passage_tokens: 600 tokens, but the model in .* has only"):
        build(corpus, work(), 600)


def test_the_divergence_is_that_of_vectors_which_are_written_out() -> None:
    rng = torch.Generator().manual_seed(0)
    query_BE, passage_UE = torch.randn(3, 4, generator=rng), torch.randn(5, 4, generator=rng)
    place_BC = torch.tensor([[0, 4], [1, 0], [2, 3]])
    target_BC = torch.rand(3, 2, generator=rng).softmax(1)
    value = divergence(torch.cat([query_BE, passage_UE]), place_BC, target_BC, temperature=0.5)
    expected = 0.0
    for query_E, places, target_C in zip(query_BE, place_BC, target_BC, strict=True):
        own_C = F.softmax(passage_UE[places] @ query_E / 0.5, dim=0)
        expected += float((target_C * (target_C / own_C).log()).sum()) / 3
    assert float(value) == pytest.approx(expected, rel=1e-5)


def test_lists_are_ranked_again_by_other_vectors() -> None:
    run = Run(np.array([0, 0, 0, 1, 1]), np.array([7, 2, 9, 4, 2]), np.array([5.0, 4, 3, 2, 1]))
    row_U, vectors_UE = np.array([2, 4, 7, 8, 9]), np.array([[1, 0], [0, 2], [0, 1], [9, 9], [1, 1]], np.float32)
    again = ranked_again(run, np.array([[1, 0], [0, 1]], np.float32), row_U, vectors_UE)
    assert again.question_R.tolist() == [0, 0, 0, 1, 1]
    assert again.passage_R.tolist() == [2, 9, 7, 4, 2]  # equal scores in passage order
    assert again.score_R.tolist() == [1, 1, 0, 2, 0]


def test_few_passages_have_fewer_candidates_than_an_update_draws(corpus: Corpus, work, inline, accepting) -> None:
    metrics = build(corpus, work(), candidates=3)
    assert metrics["divergence_after"] < metrics["divergence_before"]


def test_each_update_draws_other_candidates_without_repeats() -> None:
    first, second = (draw_columns(CONFIG, number, 16, 20) for number in (0, 1))
    assert first.shape == (16, 8)
    assert all(len({*row}) == 8 for row in first.tolist())
    assert (first != second).any()
    assert (draw_columns(CONFIG, 0, 16, 20) == first).all()
    assert draw_columns(CONFIG, 0, 16, 5).shape == (16, 5)
    assert len(np.unique(np.concatenate([draw_columns(CONFIG, n, 16, 20).ravel() for n in range(4)]))) == 20
