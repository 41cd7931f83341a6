"""How many GPUs a training uses with `ranks: auto`."""

import logging
from collections.abc import Callable

import pytest
from machines import make_machine

from pipeline.runtime.gpu_ranks import fed_ranks
from pipeline.runtime.work import Machine


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def insert(number: int) -> None:
        for module in ("gpu_ranks", "launch"):
            monkeypatch.setattr(f"pipeline.runtime.{module}.gpus", lambda: number)

    return insert


def machine(**fields: object) -> Machine:
    return make_machine(**{"device": "auto", "ranks": "auto", **fields})


@pytest.mark.parametrize(
    ("present", "tokens", "ranks"),
    [(8, 16_000.0, 2), (8, 5_500.0, 1), (8, 47_000.0, 5), (8, 436_080.0, 8), (4, 40_000.0, 4), (2, 0.0, 1)],
)
def test_each_gpu_has_8000_tokens_of_an_update(gpus, present, tokens, ranks):
    gpus(present)
    assert fed_ranks(machine(), lambda: tokens).ranks == ranks


def test_one_line_explains_the_choice(gpus, caplog):
    gpus(8)
    with caplog.at_level(logging.INFO, "pipeline"):
        fed_ranks(machine(), lambda: 16_000.0)
        fed_ranks(machine(), lambda: 436_080.0)
    assert [record.getMessage() for record in caplog.records] == [
        "2 of 8 GPUs: an update has about 16,000 tokens, and fewer than 8,000 on a GPU would slow it down",
        "8 of 8 GPUs: an update has about 436,080 tokens",
    ]


@pytest.mark.parametrize(
    ("present", "fields"),
    [
        (0, {}),
        (1, {}),
        (8, {"device": "cpu"}),
        (8, {"ranks": 8}),
        (8, {"torchrun": ["--nnodes=2", "--rdzv-endpoint=a:1"]}),
    ],
)
def test_a_cpu_one_gpu_a_number_and_several_nodes_stay_as_they_are(gpus, caplog, present, fields):
    def never() -> float:
        raise AssertionError("the tokens of an update are not needed")

    gpus(present)
    with caplog.at_level(logging.INFO, "pipeline"):
        assert fed_ranks(machine(**fields), never) == machine(**fields)
    assert not caplog.records
