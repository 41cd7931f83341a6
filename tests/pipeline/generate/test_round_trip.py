"""The search of the round trip."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from adapted import ENCODER, Corpus, make_corpus

from pipeline.data.parquet import read_parquet, write_parquet
from pipeline.dense.question_encoder import QuestionEncoder
from pipeline.generate import round_trip
from pipeline.runtime.work import silent


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Read-only."""
    return make_corpus(tmp_path_factory.mktemp("round-trip"))


def ranks(corpus: Corpus, folder: Path, fuses: bool) -> np.ndarray:
    """The ranks of the passages, each searched by its text."""
    texts = read_parquet(corpus.collection / "passages.parquet")["text"].to_pylist()
    write_parquet(pa.table({"text": texts, "row": np.arange(len(texts))}), folder / "questions.parquet")
    found = round_trip.search(
        progress=silent,
        device="cpu",
        questions=str(folder / "questions.parquet"),
        depth=3,
        collection=str(corpus.collection),
        bm25=str(corpus.bm25),
        encoder=ENCODER.model_dump(mode="json"),
        checkpoint=str(corpus.checkpoint) if fuses else None,
        index=str(corpus.index) if fuses else None,
        token_budget=1000,
        out=str(folder / "ranks.npy"),
    )
    rank_Q = np.load(folder / "ranks.npy")
    assert found == (rank_Q > 0).sum() > 0
    return rank_Q


def test_questions_without_tokens_are_searched_by_bm25_alone(corpus: Corpus, tmp_path: Path, monkeypatch) -> None:
    """Also if no question of a part has tokens: a few questions are searched together."""
    monkeypatch.setattr(round_trip, "TOGETHER", 20)
    fused_Q, bm25_Q = ranks(corpus, tmp_path, True), ranks(corpus, tmp_path, False)
    rows_of = QuestionEncoder.rows
    unreadable = {*range(20), *range(25, 60)}
    texts = read_parquet(corpus.collection / "passages.parquet")["text"].to_pylist()

    def rows(model: QuestionEncoder, part: list[str]) -> list:
        return [
            None if texts.index(text) in unreadable else row
            for text, row in zip(part, rows_of(model, part), strict=True)
        ]

    monkeypatch.setattr(QuestionEncoder, "rows", rows)
    some_Q = ranks(corpus, tmp_path, True)
    assert (some_Q[20:25] == fused_Q[20:25]).all()
    some_Q[20:25] = bm25_Q[20:25]
    assert (some_Q == bm25_Q).all()
