"""Names of trainings on the page."""

import pytest

from pipeline.report.trainings import training


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("cocondenser", "coCondenser"),
        ("stage2-3", "Stage 2, round 3"),
        ("cross-encoder", "Cross-encoder"),
        ("cross-encoder-2", "Cross-encoder 2"),
        ("cross-encoder-fold-2", "Cross-encoder, fold 2"),
    ],
)
def test_a_training_has_a_readable_name(name: str, shown: str) -> None:
    assert training(name) == shown
