"""Agreement of two judges."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from pipeline.errors import InputError
from pipeline.evaluate.agreement import Agreement, agreement

RELEVANCE, SAMPLES, SEED = 2, 2000, 42


def write(path: Path, grades: dict[str, dict[str, int]]) -> Path:
    path.write_text("".join(f"{q} 0 {p} {grade}\n" for q, judged in grades.items() for p, grade in judged.items()))
    return path


@pytest.fixture
def of_pairs(tmp_path):
    """of_pairs([(grade of a, grade of b), ...]): ten passages a question."""

    def of(pairs: list[tuple[int, int]]) -> Agreement:
        paths = []
        for judge in (0, 1):
            grades: dict[str, dict[str, int]] = {}
            for n, pair in enumerate(pairs):
                grades.setdefault(f"q{n // 10}", {})[f"p{n}"] = pair[judge]
            paths.append(write(tmp_path / f"{judge}", grades))
        return agreement(*paths, RELEVANCE, SAMPLES, SEED)

    return of


def test_the_measures_are_those_of_scikit_learn(of_pairs) -> None:
    from sklearn.metrics import cohen_kappa_score

    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, 200)
    b = np.where(rng.random(200) < 0.6, a, rng.integers(0, 4, 200))
    found = of_pairs([*zip(a.tolist(), b.tolist(), strict=True)])
    expected = {
        "same": (a == b).mean(),
        "kappa": cohen_kappa_score(a, b),
        "weighted": cohen_kappa_score(a, b, weights="quadratic"),
        "relevant": cohen_kappa_score(a >= RELEVANCE, b >= RELEVANCE),
    }
    for name, value in expected.items():
        figure = found.measures[name]
        assert figure["mean"] == pytest.approx(value, abs=1e-6)
        assert figure["low"] < value < figure["high"]
    assert (found.questions, found.passages, found.grades) == (20, 200, [0, 1, 2, 3])
    assert found.table[2][2] == ((a == 2) & (b == 2)).sum()


def test_full_agreement_is_one_and_that_of_chance_zero(of_pairs) -> None:
    assert {one["mean"] for one in of_pairs([(0, 0), (3, 3)] * 10).measures.values()} == {1.0}
    assert {one["mean"] for one in of_pairs([(2, 2)] * 10).measures.values()} == {1.0}
    chance = of_pairs([(0, 0), (0, 3), (3, 0), (3, 3)] * 10)
    assert (chance.measures["kappa"]["mean"], chance.measures["same"]["mean"]) == (0.0, 0.5)


def test_only_passages_that_both_judge_count(tmp_path) -> None:
    a = write(tmp_path / "a", {"q1": {"p1": 1, "p2": 0, "p3": 2}, "q2": {"p1": 1}})
    b = write(tmp_path / "b", {"q1": {"p1": 1, "p2": 0}, "q3": {"p1": 1}})
    result = CliRunner().invoke(app, ["agreement", str(a), str(b), "--json"])
    found = json.loads(result.stdout)
    assert [found[name] for name in ("questions", "passages", "only_a", "only_b")] == [1, 2, 2, 1]
    shown = CliRunner().invoke(app, ["agreement", str(a), str(b)]).stdout
    assert "2 passages of 1 question" in shown
    assert "1.000 [1.000, 1.000]" in shown
    assert f"grades in {a} (rows) and {b} (columns)" in shown


def test_judges_without_a_common_passage_are_refused(tmp_path) -> None:
    a, b = write(tmp_path / "a", {"q1": {"p1": 1}}), write(tmp_path / "b", {"q1": {"p2": 1}, "q2": {"p1": 1}})
    with pytest.raises(InputError, match="judges no passage"):
        agreement(a, b, 1, SAMPLES, SEED)
