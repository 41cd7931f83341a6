"""Pairs that a cross-encoder scores as they arrive."""

import json
from unittest.mock import Mock

import numpy as np
import pyarrow.parquet as pq
import pytest
from crossed import make_cross_encoder, make_existing, make_roberta
from sentence_transformers import CrossEncoder

from pipeline.cross_encoder import reranker
from pipeline.cross_encoder.lengths import read_lengths
from pipeline.cross_encoder.pairs import pair_rows, read_pair_form, score_rows
from pipeline.cross_encoder.reranker import existing_lengths, open_reranker
from pipeline.errors import InputError
from pipeline.modeling.checkpoint import load_classifier, new_classifier, save_classifier
from pipeline.tokenization.token_files import Tokens

WORDS = [f"w{n}" for n in range(30)]
RNG = np.random.default_rng(4)


def words(number: int) -> str:
    return " ".join(RNG.choice(WORDS, number))


PAIRS = [[(f"q{n} {words(3)}", words(n % 3), words(1 + int(RNG.integers(20)))) for _ in range(9)] for n in range(5)]
"""Nine passages of each of five questions."""


@pytest.fixture(scope="module")
def existing(tmp_path_factory):
    return make_existing(tmp_path_factory.mktemp("existing") / "model", WORDS)


def test_scores_are_those_of_sentence_transformers(existing) -> None:
    expected = CrossEncoder(str(existing), device="cpu")
    for pairs, scores in zip(PAIRS, open_reranker([existing], "cpu", often=False).scores(PAIRS), strict=True):
        joined = [(question, f"{title} {text}") for question, title, text in pairs]
        np.testing.assert_allclose(scores, expected.predict(joined), atol=2e-5)


def test_scores_of_a_roberta_are_those_of_sentence_transformers(tmp_path) -> None:
    start = make_roberta(tmp_path, [text for some in PAIRS for pair in some for text in pair])
    save_classifier(tmp_path / "model", new_classifier(start, 0), start)
    expected = CrossEncoder(str(tmp_path / "model"), device="cpu")
    (scores,) = open_reranker([tmp_path / "model"], "cpu", often=True).scores(PAIRS[-1:])
    joined = [(question, f"{title} {text}") for question, title, text in PAIRS[-1]]
    np.testing.assert_allclose(scores, expected.predict(joined), atol=2e-5)


def test_scores_are_those_of_the_stage_rerank(world, pair_start, tmp_path) -> None:
    """Of one cross-encoder of the project, and the mean of two, each with the tokens of the collection."""
    folders = [make_cross_encoder(pair_start, tmp_path / str(seed), seed) for seed in (0, 1)]
    tokens = Tokens.open(world.tokens)
    passages = pq.read_table(world.collection / "passages.parquet").to_pylist()[:20]
    question = pq.read_table(world.collection / "queries.parquet")["text"].to_pylist()[2]
    of_each = []
    for folder in folders:
        form = read_pair_form(folder, read_lengths(folder), tokens.specials)
        of_each.append(score_rows(load_classifier(folder), pair_rows(tokens, [2] * 20, range(20), form), 1))
    pairs = [(question, passage["title"], passage["text"]) for passage in passages]
    np.testing.assert_allclose(open_reranker(folders[:1], "cpu", False).scores([pairs])[0], of_each[0], atol=2e-5)
    np.testing.assert_allclose(open_reranker(folders, "cpu", True).scores([pairs])[0], np.mean(of_each, 0), atol=2e-5)


@pytest.mark.parametrize("steady", [True, False])
def test_a_question_has_the_same_bytes_alone_and_among_others(steady, existing, monkeypatch) -> None:
    """Also on a machine where a pair's score depends on the pairs in its pass."""
    if not steady:
        monkeypatch.setattr(reranker, "is_steady", lambda member: False)
        plain = reranker.score_rows
        monkeypatch.setattr(reranker, "score_rows", lambda *given, **options: plain(*given, **options) + given[2])
    one = open_reranker([existing], "cpu", often=True)
    assert one.together or not steady
    together = one.scores(PAIRS)
    for pairs, scores in zip(PAIRS, together, strict=True):
        np.testing.assert_array_equal(one.scores([pairs])[0], scores)
    for scores, again in zip(together[::-1], one.scores(PAIRS[::-1]), strict=True):
        np.testing.assert_array_equal(scores, again)
    assert [len(scores) for scores in one.scores([[], PAIRS[0][:1], []])] == [0, 1, 0]
    assert [len(scores) for scores in one.scores([[], []])] == [0, 0]


def test_the_pairs_of_all_questions_share_passes(existing, monkeypatch) -> None:
    passes = Mock(wraps=reranker.score_rows)
    monkeypatch.setattr(reranker, "score_rows", passes)
    one = open_reranker([existing], "cpu", often=True)
    passes.reset_mock()
    one.scores(PAIRS)
    assert passes.call_count == 3  # 45 pairs, 16 a pass


def test_long_pairs_are_cut_and_a_long_question_is_reported(existing) -> None:
    one = open_reranker([existing], "cpu", often=False)
    lengths = existing_lengths(existing)
    assert tuple(lengths) == (16, 45, 45)  # of 64 positions, 3 special tokens
    long = " ".join(WORDS * 5)
    rows = one.members[0].rows([(long, "", long), (long, long, long)])
    assert [len(ids) for ids in rows.ids] == [64, 64]
    assert one.cut("w1 w2") == ""
    assert one.cut(long) == "question cut for the cross-encoder, tokens read of its 150: 16"


def test_a_folder_limits_its_own_length(existing, tmp_path) -> None:
    settings = json.loads((existing / "tokenizer_config.json").read_text())
    folder = make_existing(tmp_path / "model", WORDS)
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 32}))
    assert tuple(existing_lengths(folder)) == (8, 21, 21)
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 4}))
    with pytest.raises(InputError, match="reads 4 tokens, too few for a question and a passage"):
        existing_lengths(folder)
