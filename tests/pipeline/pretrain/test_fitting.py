"""The check that gives advice accepts it: a user who follows the advice is not refused again."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small
import yaml

from pipeline.advice import Unfit, check_fits, raise_together
from pipeline.config import Config
from pipeline.dense.index_kinds import IndexConfig, check_dimension, check_passages
from pipeline.errors import InputError
from pipeline.pretrain import start as starts
from pipeline.pretrain.cocondenser import CocondenserConfig, check_cocondenser
from pipeline.pretrain.condenser import CondenserConfig, check_condenser
from pipeline.pretrain.inverse_cloze import IctConfig, check_ict
from pipeline.tokenization.token_files import Ragged, Specials, Tokens

ICT = {
    "budget": "1 epochs",
    "batch_passages": 4096,
    "corpus": "collection",
    "segment_min": 10,
    "segment_tokens": 64,
    "passage_tokens": 128,
    "remove_probability": 0.0,
    "projection": 8,
    "checkpoint": None,
    "seed": 5,
    "optimiser": small.OPTIMISER,
}
BY_TOKENS = {"batch_blocks": None, "batch_tokens": 4096, "length": 128, "budget": "2 epochs"}
PAIRS_BY_TOKENS = {
    "batch_documents": None, "batch_tokens": 4096, "span_min": 16, "span_max": 126, "budget": "2 epochs"
}  # fmt: skip


def tokens_of(lengths: list[int], sentence: float = 0.1, seed: int = 0) -> Tokens:
    """Documents of one passage each."""
    rng, total = np.random.default_rng(seed), sum(lengths)
    starts = rng.random(total) < sentence
    flat = np.zeros(total, np.uint16)
    offsets = np.cumsum([0, *lengths])
    passages = Ragged(flat, offsets, np.ones(total, bool), starts)
    return Tokens(passages, passages, passages, np.arange(len(lengths) + 1), Specials(200, 0, 1, 2, 3, 4))


def follow(config: Config, section: str, check: Callable[[Any], object]) -> str | None:
    """Follows the advice in the error of `check`; `check` then passes. Returns the message or None."""
    try:
        check(config)
    except Unfit as error:
        words = shlex.split(str(error).rpartition("; take ")[2])
        assert words[::2] == ["--set"] * (len(words) // 2)
        assert words
        changes = {}
        for word in words[1::2]:
            field, _, value = word.removeprefix(f"{section}.").partition("=")
            changes[field] = yaml.safe_load(value)
        check(type(config).model_validate({**config.model_dump(), **changes}))
        return str(error)
    return None


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tokens], Path]:
    """A function that stores tokens: they are read from the path that it returns."""

    def store(tokens: Tokens) -> Path:
        monkeypatch.setattr(starts, "Tokens", type("Any", (), {"open": staticmethod(lambda _: tokens)}))
        return Path("tokens")

    return store


def condenser_config(**fields: Any) -> CondenserConfig:
    return CondenserConfig.model_validate({**small.CONDENSER, **BY_TOKENS, **fields})


def cocondenser_config(**fields: Any) -> CocondenserConfig:
    return CocondenserConfig.model_validate({**small.COCONDENSER, **PAIRS_BY_TOKENS, **fields})


SMALL = [[90, 90, 90], [], [0], [1], [5], [200], [300, 0], [31, 31], [32, 32], [1, 1], [2, 2], [400, 3], [126] * 4]


@pytest.mark.parametrize("lengths", SMALL, ids=str)
def test_the_advice_of_pre_training_is_accepted(lengths: list[int], stored) -> None:
    tokens = stored(tokens_of(lengths))
    for fields in ({}, {"batch_tokens": None, "batch_blocks": 1024}, {"length": 8}):
        assert follow(condenser_config(**fields), "condenser", lambda c: check_condenser(c, tokens, None))
    for fields in ({}, {"batch_tokens": None, "batch_documents": 2048}, {"span_max": 16, "random_lengths": True}):
        assert follow(cocondenser_config(**fields), "cocondenser", lambda c: check_cocondenser(c, tokens, None))
    for fields in ({}, {"segment_min": 64}, {"passage_tokens": 12}):
        assert follow(IctConfig.model_validate({**ICT, **fields}), "ict", lambda c: check_ict(c, tokens, None))


@pytest.mark.parametrize("seed", range(60))
def test_advice_for_any_small_collection_is_accepted(seed: int, stored) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, rng.choice([3, 40, 300]), rng.integers(0, 30)).tolist()
    tokens = stored(tokens_of(lengths, float(rng.random()), seed))
    condensing = condenser_config(length=int(rng.integers(8, 129)), batch_tokens=int(rng.integers(129, 5000)))
    follow(condensing, "condenser", lambda c: check_condenser(c, tokens, None))
    span_min, longer = int(rng.integers(1, 60)), int(rng.integers(0, 60))
    pairs = {"span_min": span_min, "span_max": span_min + longer, "random_lengths": bool(rng.integers(2))}
    follow(cocondenser_config(**pairs), "cocondenser", lambda c: check_cocondenser(c, tokens, None))
    segments = {"segment_min": int(rng.integers(3, 60)), "batch_passages": int(rng.integers(2, 50))}
    follow(IctConfig.model_validate({**ICT, **segments}), "ict", lambda c: check_ict(c, tokens, None))


def test_the_advice_keeps_as_much_of_the_batch_as_the_collection_holds(stored) -> None:
    tokens = stored(tokens_of([90] * 3, 0.0))
    assert str(follow(condenser_config(), "condenser", lambda c: check_condenser(c, tokens, None))) == (
        "condenser.batch_tokens: 4,096 is more than the whole collection holds (276); "
        "take --set condenser.batch_tokens=128"
    )
    message = follow(cocondenser_config(), "cocondenser", lambda c: check_cocondenser(c, tokens, None))
    assert str(message).endswith("; take --set cocondenser.batch_tokens=null --set cocondenser.batch_documents=2")
    tokens = stored(tokens_of([90] * 30, 0.0))
    assert "=690" in str(follow(condenser_config(), "condenser", lambda c: check_condenser(c, tokens, None)))
    tokens = stored(tokens_of([5, 0], 0.0))
    message = follow(cocondenser_config(), "cocondenser", lambda c: check_cocondenser(c, tokens, None))
    assert "cocondenser.budget=null" in str(message)  # nothing to contrast


def test_the_text_of_a_large_collection_is_not_read_before_its_training(stored, monkeypatch) -> None:
    tokens = stored(tokens_of([starts.LARGE // 100] * 100))
    for reads in ("pipeline.pretrain.condenser.cut_documents", "pipeline.pretrain.inverse_cloze.usable"):
        monkeypatch.setattr(reads, None)
    check_condenser(condenser_config(), tokens, None)
    check_ict(IctConfig.model_validate(ICT), tokens, None)
    with pytest.raises(InputError, match="no document holds two spans"):  # the lengths show it
        check_cocondenser(cocondenser_config(span_min=10**6, span_max=10**6, batch_tokens=10**7), tokens, None)


INDEX = {"kind": "ivf", "hnsw_m": 8, "ef_construction": 8, "nlist": 100, "pq_m": 24, "seed": 0}


@pytest.mark.parametrize("kind", ["ivf", "ivfpq"])
@pytest.mark.parametrize("lists", ["auto", 1, 100])
@pytest.mark.parametrize("passages", [0, 1, 39, 40, 100, 3999, 10_239])
def test_the_advice_of_an_index_is_accepted(kind: str, lists: int | str, passages: int) -> None:
    config = IndexConfig.model_validate({**INDEX, "kind": kind, "nlist": lists})
    message = follow(config, "index", lambda c: check_passages(c, passages))
    assert (message is None) == (kind == "ivf" and passages >= 40 * (1 if lists == "auto" else int(lists)))


@pytest.mark.parametrize("dimensions", [(32,), (768, 128), (100,), (7,), (768, 7)], ids=str)
def test_advised_bytes_of_product_quantisation_are_accepted(dimensions: tuple[int, ...]) -> None:
    config = IndexConfig.model_validate({**INDEX, "kind": "ivfpq"})
    assert follow(config, "index", lambda c: check_dimension(c, *dimensions))


def test_a_problem_without_a_fitting_value_is_reported() -> None:
    def refuse(config: Config) -> None:
        raise InputError("index.kind: none")

    config = IndexConfig.model_validate(INDEX)
    with pytest.raises(InputError, match=r"^index\.kind: none; no value fits$"):
        check_fits("index", config, refuse, lambda: [{"kind": "flat"}, {"kind": "unknown"}])


def test_several_problems_come_with_one_line_of_options() -> None:
    errors = [Unfit("a", ["--set a=1"]), Unfit("b", []), InputError("c"), Unfit("d", ["--set a=1", "--set d=2"])]
    with pytest.raises(InputError, match=r"^a\nb; no value fits\nc\nd\ntake --set a=1 --set d=2$"):
        raise_together(errors)
    with pytest.raises(Unfit, match=r"^a; take --set a=1$"):
        raise_together(errors[:1])
    raise_together([])


@pytest.mark.parametrize("span_max", [1, 16, 80, 126])
def test_the_least_batch_of_pairs_in_a_message_is_accepted(span_max: int) -> None:
    fields = {"span_max": span_max, "span_min": 1}
    with pytest.raises(ValueError, match=r"raise it to \d+") as refused:
        cocondenser_config(**fields, batch_tokens=3)
    least = int(str(refused.value).partition("raise it to ")[2].partition(",")[0])
    assert cocondenser_config(**fields, batch_tokens=least).batch_tokens == least
    with pytest.raises(ValueError, match="does not hold two documents"):
        cocondenser_config(**fields, batch_tokens=least - 1)
