"""Shards by content: small changes of a collection leave almost all of them unchanged."""

import numpy as np
import pytest

from pipeline.dense import shard_reuse
from pipeline.tokenization.token_files import Ragged, Specials, Tokens

SPECIALS = Specials(vocab_size=1000, pad=0, unk=1, cls=2, sep=3, mask=4)
MOST = 32
Passage = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of title and text."""


def passages(count: int, seed: int = 0) -> list[Passage]:
    rng = np.random.default_rng(seed)

    def ids(low: int, high: int) -> tuple[int, ...]:
        return tuple(int(i) for i in rng.integers(5, 1000, rng.integers(low, high)))

    return [(ids(0, 4), ids(5, 30)) for _ in range(count)]


def ragged(texts: list[tuple[int, ...]]) -> Ragged:
    flat = np.array([i for text in texts for i in text], np.uint16)
    return Ragged(flat, np.cumsum([0, *map(len, texts)]), np.ones(len(flat), bool), None)


def tokens(rows: list[Passage]) -> Tokens:
    titles, texts = ([row[part] for row in rows] for part in (0, 1))
    offsets = np.arange(len(rows) + 1)
    return Tokens(ragged(texts), ragged(titles), ragged([]), offsets, SPECIALS)


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "1_Pooling").mkdir()
    for name in shard_reuse.ENCODER_FILES[:5]:
        (tmp_path / name).write_text(name)
    return tmp_path


def keys(rows: list[Passage], checkpoint, **settings) -> list[str]:
    tokenized = tokens(rows)
    return shard_reuse.shard_keys(tokenized, shard_reuse.cuts(tokenized, MOST), checkpoint, settings)


def test_shards_hold_every_row_once_and_none_is_too_large() -> None:
    spans = shard_reuse.cuts(tokens(passages(2000)), MOST)
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert spans[-1][1] == 2000
    sizes = [stop - start for start, stop in spans]
    assert max(sizes) <= MOST
    assert min(sizes[:-1]) >= MOST // 8
    assert 0.25 < np.mean(sizes) / MOST < 0.5
    assert shard_reuse.cuts(tokens(passages(3)), 1) == [(0, 1), (1, 2), (2, 3)]
    assert shard_reuse.cuts(tokens([]), MOST) == []


@pytest.mark.parametrize("place", [0, 1, 777, 1500, 1999])
@pytest.mark.parametrize("kind", ["insert", "change", "remove", "title"])
def test_a_changed_passage_changes_only_the_shards_around_it(kind: str, place: int, checkpoint) -> None:
    rows, new = passages(2000), passages(3, seed=9)
    before = {*keys(rows, checkpoint)}
    edited = {
        "insert": [*rows[:place], *new, *rows[place:]],
        "change": [*rows[:place], new[0], *rows[place + 1 :]],
        "remove": [*rows[:place], *rows[place + 1 :]],
        "title": [*rows[:place], (new[0][0], rows[place][1]), *rows[place + 1 :]],
    }[kind]
    after = keys(edited, checkpoint)
    assert len(before) > 150
    assert 1 <= len([key for key in after if key not in before]) <= 4


def test_a_passage_in_every_document_does_not_start_a_shard_each_time() -> None:
    rows = passages(2000)
    number = {int(n % (MOST // 4)): i for i, n in enumerate(shard_reuse._numbers(tokens(rows)))}
    shared = rows[number[0]]
    everywhere = [row for one in rows[:1000] for row in (shared, one)]
    sizes = [stop - start for start, stop in shard_reuse.cuts(tokens(everywhere), MOST)]
    assert min(sizes[:-1]) >= MOST // 8


def test_keys_depend_on_everything_that_changes_vectors(checkpoint) -> None:
    rows = passages(200)
    before = keys(rows, checkpoint, length=40)
    assert keys(rows, checkpoint, length=40) == before
    assert not {*before} & {*keys(rows, checkpoint, length=41)}
    (checkpoint / "history.parquet").write_text("what a training leaves")
    assert keys(rows, checkpoint, length=40) == before
    for name in ("model.safetensors", "1_Pooling/config.json", "config.json"):
        (checkpoint / name).write_text("another")
        other = keys(rows, checkpoint, length=40)
        assert not {*before} & {*other}
        before = other


def test_keys_depend_on_the_boundaries_between_texts(checkpoint) -> None:
    one, other = [((), (7, 8)), ((), (9,))], [((), (7,)), ((), (8, 9))]
    assert keys(one, checkpoint) != keys(other, checkpoint)
    assert keys([((7,), (8,))], checkpoint) != keys([((), (7, 8))], checkpoint)
