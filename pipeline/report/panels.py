"""Pictures of several runs beside each other: one line a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

from pipeline.report.figures import POINTS, SYSTEMS, svg

COLOURS = [SYSTEMS[name] for name in ("stage2", "fusion", "rerank", "bm25", "stage1", "pretrained", "quiet")]
DASHES = ("-", "--", ":")


def style(n: int) -> dict[str, Any]:
    return {"color": COLOURS[n % len(COLOURS)], "linestyle": DASHES[n // len(COLOURS) % len(DASHES)]}


def entropy_panels(models: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> str:
    raise NotImplementedError


def size_curves(rows: Mapping[str, Sequence[tuple[float, float, float, float]]], measure: str, title: str) -> str:
    """A measure by the number of training questions. `rows`: {row: [(training questions, mean, low, high)]}."""

    def draw(axes: Axes) -> None:
        for n, (row, points) in enumerate(rows.items()):
            x, mean, low, high = (np.array(column) for column in zip(*points, strict=True))
            axes.errorbar(x, mean, [mean - low, high - mean], marker="o", markersize=4, label=row, **style(n))
        axes.set_xscale("log")
        axes.set_xticks(sorted({point[0] for points in rows.values() for point in points}))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("training questions")
        axes.set_ylabel(measure)
        axes.grid(axis="y")
        axes.legend(frameon=False, fontsize=8)

    return svg(draw, (4.4, 3.2), title)


def first_epochs(losses: Mapping[str, tuple[Sequence[float], Sequence[float]]], epochs: int, title: str) -> str:
    """Loss of the first epochs, on a logarithmic scale. `losses`: {model: (epochs done, loss)}."""

    def draw(axes: Axes) -> None:
        for n, (row, (x, y)) in enumerate(losses.items()):
            kept = np.array(x) <= epochs
            bins = np.array_split(np.flatnonzero(kept), min(POINTS, max(int(kept.sum()), 1)))
            means = [(np.array(x)[b].mean(), np.array(y)[b].mean()) for b in bins if len(b)]
            axes.plot(*zip(*means, strict=True), label=row, linewidth=1.3, **style(n))
        axes.set_yscale("log")
        axes.set_xlabel("epoch")
        axes.set_ylabel("loss")
        axes.grid(axis="y")
        axes.legend(frameon=False, fontsize=8)

    return svg(draw, (4.4, 3.2), title)


def training_curves(rows: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str, title: str) -> str:
    """What is measured over the training. `rows`: {row: (epochs done, figure)}."""

    def draw(axes: Axes) -> None:
        for n, (row, (x, y)) in enumerate(rows.items()):
            axes.plot(x, y, label=row, linewidth=1.3, marker="." if len(x) < 40 else "", **style(n))
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(axis="y")
        axes.legend(frameon=False, fontsize=8)

    return svg(draw, (4.4, 3.2), title)
