"""BM25's lists within a filter are the same, however Lucene is queried."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from searched import CONFIG, build, write_collection

from flows.serving.rankings import FILTERS, BM25Retriever, Ranking
from pipeline.bm25.searcher import SPARE, Searcher
from pipeline.data.passages import in_parquet
from pipeline.errors import JavaFailed

WORDS = [f"word{n}" for n in range(12)]
TEXTS = ["word1 word2", "word3 word3 word11", "word4 word5 word6 word7 word8", "absent", "of the"]
N = 400
RNG = np.random.default_rng(0)
SHARES = {share: RNG.random(N) < share for share in (0.0, 0.01, 0.05, 0.5, 1.0)}
SENT, WIDENED = np.inf, 0.0
"""Values of RARE: with the first every filter is sent to Lucene, with the second none."""


@pytest.fixture(scope="module", params=["bm25", "weights"])
def lexical(request, tmp_path_factory) -> Iterator[BM25Retriever]:
    """An index of 400 short passages. Scores are often equal, and the ids are not in passage order."""
    folder = tmp_path_factory.mktemp(request.param)
    ids = [f"é{n}" for n in RNG.permutation(N)]
    passages = [(i, i, "", " ".join(RNG.choice(WORDS, RNG.integers(1, 6)))) for i in ids]
    collection = write_collection(folder / "collection", passages, [("q", "dev", "word1")], [("dev", "q", ids[0], 1)])
    weights_file = folder / "weights.jsonl"
    weights = {i: {word: int(RNG.integers(1, 9)) for word in text.split()} for i, *_, text in passages}
    lines = [json.dumps({"id": i, "vector": vector}) for i, vector in weights.items()]
    weights_file.write_text("\n".join(lines))
    out = folder / "out"
    build(collection, out, CONFIG.model_copy(update={"passages": weights_file if request.param == "weights" else None}))
    lexical = BM25Retriever(out, in_parquet(collection), Searcher(out))
    yield lexical
    lexical.close()


@pytest.fixture
def calls(lexical, monkeypatch) -> dict[str, list]:
    """The calls to Lucene: the k of every search, the sizes of filters sent, the numbers of filters dropped."""
    calls: dict[str, list] = {"k": [], "sent": [], "dropped": []}
    hits, keep, drop = Searcher.hits, Searcher.keep, Searcher.drop
    monkeypatch.setattr(
        Searcher, "hits", lambda s, searches: calls["k"].extend(k for _, k, _ in searches) or hits(s, searches)
    )
    monkeypatch.setattr(Searcher, "keep", lambda s, ids: calls["sent"].append(len(ids)) or keep(s, ids))
    monkeypatch.setattr(Searcher, "drop", lambda s, number: calls["dropped"].append(number) or drop(s, number))
    return calls


def top_with(lexical: BM25Retriever, rare: float, searches: list) -> list[Ranking]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flows.serving.rankings.RARE", rare)
        return lexical.top(searches)


def equal(one: list[Ranking], other: list[Ranking]) -> bool:
    return all(np.array_equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("share", SHARES)
def test_a_filter_in_lucene_gives_the_whole_ranking_filtered(share, lexical) -> None:
    mask = SHARES[share]
    whole = lexical.top([(text, N, None) for text in TEXTS])
    for depth in (1, 3, 40, N):
        searches = [(text, depth, mask) for text in TEXTS]
        kept = [mask[rows_K] for rows_K, _ in whole]
        expected = [
            Ranking(one.rows_K[kept_K][:depth], one.scores_K[kept_K][:depth])
            for one, kept_K in zip(whole, kept, strict=True)
        ]
        assert equal(top_with(lexical, SENT, searches), expected)
        assert equal(top_with(lexical, WIDENED, searches), expected)


def test_a_rare_filter_costs_one_search_of_its_own_depth(lexical, calls) -> None:
    (whole,) = lexical.top([("word1 word2 word3", N, None)])
    mask = np.zeros(N, bool)
    mask[whole.rows_K[60:160:5]] = True
    calls["k"].clear()
    searches = [("word1 word2 word3", 2, mask)]
    sent = top_with(lexical, SENT, searches)
    assert (calls["k"], calls["sent"]) == ([2 + SPARE], [20])
    assert equal(top_with(lexical, WIDENED, searches), sent)
    assert max(calls["k"]) > 2 + SPARE
    calls["k"].clear()
    top_with(lexical, SENT, [("word1", N, mask), ("word1", 3, SHARES[0.0])])
    assert calls["k"] == [20]  # at most the 20 passages of the filter, and no search for an empty one


def test_whether_a_filter_is_rare_depends_on_the_depth(lexical, calls) -> None:
    mask = np.arange(N) % 4 == 0
    lexical.top([("word1", 6, mask)])
    assert calls["sent"] == []  # 100 passages for about 24 hits
    lexical.top([("word1", 7, mask)])
    assert calls["sent"] == [100]


def test_a_filter_is_sent_once_and_the_last_ones_are_kept(lexical, calls) -> None:
    masks = [np.arange(N) % 50 == n for n in range(FILTERS + 3)]
    searches = [("word1 word2", 5, mask) for mask in masks]
    rankings = top_with(lexical, SENT, searches + searches)
    assert equal(rankings, top_with(lexical, WIDENED, searches + searches))
    assert calls["sent"] == [8] * len(masks)
    assert len(lexical.filters) == FILTERS
    top_with(lexical, SENT, searches[-FILTERS:])
    assert len(calls["sent"]) == len(masks)
    dropped = len(calls["dropped"])
    assert equal(top_with(lexical, SENT, searches[:1]), rankings[:1])
    assert (len(calls["sent"]), len(calls["dropped"])) == (len(masks) + 1, dropped + 1)


@pytest.mark.slow
def test_filters_still_work_after_java_is_killed(lexical) -> None:
    searches = [("word1 word2", 5, SHARES[0.05])]
    rankings = top_with(lexical, SENT, searches)
    lexical.searcher._child.kill()
    with pytest.raises(JavaFailed, match="killed by SIGKILL"):
        top_with(lexical, SENT, searches)
    assert equal(top_with(lexical, SENT, searches), rankings)
