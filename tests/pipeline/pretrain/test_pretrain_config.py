"""How long a pre-training is: the budget with its unit."""

import pytest
import small

from flows.dag import nodes
from flows.recipes.recipe import resolve
from pipeline.errors import InputError
from pipeline.pretrain.condenser import CondenserConfig
from pipeline.pretrain.config import Amount, read_budget, updates
from tasks.keys import without_paths


@pytest.mark.parametrize(
    ("budget", "amount"),
    [
        ("8 epochs", Amount(8, "epochs")),
        ("1 epoch", Amount(1, "epochs")),
        ("0.5 epochs", Amount(0.5, "epochs")),
        ("1 step", Amount(1, "steps")),
        ("1_000 steps", Amount(1000, "steps")),
        ("1 token", Amount(1, "tokens")),
        ("  20_000_000   tokens ", Amount(20_000_000, "tokens")),
    ],
)
def test_a_budget_is_a_number_and_a_unit(budget: str, amount: Amount) -> None:
    assert read_budget(budget) == amount


@pytest.mark.parametrize("number", ["", "0", "-1", "inf", "-inf", "nan", "1e400", "many"])
@pytest.mark.parametrize("unit", ["steps", "epochs", "tokens"])
def test_a_number_that_is_no_budget_is_refused(number: str, unit: str) -> None:
    with pytest.raises(ValueError, match="8 epochs"):
        read_budget(f"{number} {unit}")


@pytest.mark.parametrize(
    "budget",
    [
        "",
        "8",
        "epochs",
        "8 weeks",
        "8 epochss",
        "8epochs",
        "1.5 steps",
        "1e3 tokens",
        "8 s",
    ],
)
def test_a_budget_without_a_known_unit_or_with_part_of_a_step_is_refused(budget: str) -> None:
    with pytest.raises(ValueError, match="8 epochs"):
        read_budget(budget)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("8 epochs", "8.0 epoch"),
        ("1 step", "1 steps"),
        ("1_000 steps", "1000  steps"),
        ("2_000 tokens", " 2000 tokens"),
    ],
)
def test_equal_budgets_give_the_same_key(one: str, other: str) -> None:
    configs = []
    for budget in (one, other):
        dag = nodes(resolve("tiny", [f"condenser.budget={budget}"]))
        configs.append(next(without_paths(node.config) for node in dag if node.name == "condenser"))
    assert configs[0] == configs[1]
    assert configs[0]["budget"] == resolve("tiny", [f"condenser.budget={one}"]).condenser.budget


def test_a_number_without_a_unit_is_refused_with_its_field() -> None:
    with pytest.raises(InputError, match=r"^--set condenser.budget=300: condenser.budget: "):
        resolve("tiny", ["condenser.budget=300"])


def test_a_budget_is_converted_to_updates() -> None:
    def steps(budget: str) -> int:
        return updates(CondenserConfig(**{**small.CONDENSER, "budget": budget}), batches=10, mean_tokens=100)

    assert steps("7 steps") == 7
    assert steps("2.5 epochs") == 25
    assert steps("1_000 tokens") == 10
    assert steps("1 token") == 1  # at least one
