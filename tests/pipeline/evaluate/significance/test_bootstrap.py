"""Intervals by resampling questions."""

import numpy as np
import pytest

from pipeline.evaluate.significance import bootstrap
from pipeline.evaluate.significance.bootstrap import interval, resampled_means


def test_bootstrap_interval_of_a_known_spread():
    values = np.random.default_rng(0).normal(0.5, 0.1, (2000, 2))
    values[:, 1] = values[:, 0] + 0.01  # paired: the difference has no spread
    means = resampled_means(values, 1000, 7)
    low, high = interval(means)
    half = 1.96 * values[:, 0].std() / np.sqrt(2000)
    assert low[0] == pytest.approx(values[:, 0].mean() - half, abs=half / 6)
    assert high[0] == pytest.approx(values[:, 0].mean() + half, abs=half / 6)
    assert interval(means[:, 1:] - means[:, :1])[0] == pytest.approx([0.01])
    assert (resampled_means(values, 1000, 7) == means).all()
    assert not (resampled_means(values, 1000, 8) == means).all()


def test_cached_and_redrawn_resamples_are_equal(monkeypatch):
    values = np.random.default_rng(0).random((3000, 2))
    calls = []
    monkeypatch.setattr(
        bootstrap, "_drawn", lambda *arguments, draw=bootstrap._drawn: calls.append(arguments) or draw(*arguments)
    )
    bootstrap._kept.cache_clear()
    cached = [resampled_means(values, 1500, 7) for _ in range(2)]  # 4.5 M counts: two blocks
    assert calls == [(3000, 1500, 7)]  # once for both
    monkeypatch.setattr(bootstrap, "KEPT", 0)
    assert all((means == resampled_means(values, 1500, 7)).all() for means in cached)
    assert len(calls) == 3
    bootstrap._kept.cache_clear()
