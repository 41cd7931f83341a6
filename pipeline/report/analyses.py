"""The pictures of analyses: each question's gain or loss, and nb-recall n@k (Condenser, analysis of hard negatives)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pipeline.evaluate.significance.paired import SAMES
from pipeline.report.figures import BAD, CURVES, GOOD, INK, SIZE, Picture, picture

STYLES = ("-", "--", ":", "-.")
BARS = 240
"""Most questions to draw; more are sampled evenly in sorted order."""


def gains_picture(name: str, differences: Sequence[float], title: str, measure: str) -> Picture:
    """Returns a picture with a bar per question, sorted from the largest gain to the largest loss, with counts."""
    sorted_Q = np.sort(np.asarray(differences, float))[::-1]
    place_B = np.unique(np.linspace(0, len(sorted_Q) - 1, min(BARS, len(sorted_Q))).round().astype(int))
    drawn_B = sorted_Q[place_B]
    wins, losses = int((sorted_Q > SAMES).sum()), int((sorted_Q < -SAMES).sum())

    def draw(axes: Axes) -> None:
        width = len(sorted_Q) / len(place_B)
        edge_E = np.append(np.arange(len(place_B)) * width, len(sorted_Q))
        for colour, part_B in ((GOOD, np.maximum(drawn_B, 0)), (BAD, np.minimum(drawn_B, 0))):
            axes.stairs(part_B, edge_E, baseline=0, fill=True, color=colour, linewidth=0)
        axes.axhline(0, color=INK, linewidth=0.8)
        counts = {"top": (f"{wins:,} better", GOOD), "bottom": (f"{losses:,} worse", BAD)}
        for side, (text, colour) in counts.items():
            x, align, y = (0.98, "right", 0.92) if side == "top" else (0.02, "left", 0.08)
            axes.text(x, y, text, color=colour, ha=align, va=side, transform=axes.transAxes, weight="bold")
        alike = len(sorted_Q) - wins - losses
        axes.text(0.98, 0.8, f"{alike:,} alike", ha="right", va="top", transform=axes.transAxes)
        top = max(float(np.abs(sorted_Q).max(initial=0.0)), 0.01) * 1.1
        axes.set_xlim(0, len(sorted_Q))
        axes.set_ylim(-top, top)
        axes.set_xlabel("questions, sorted")
        axes.set_ylabel(measure)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.grid(axis="y")
        axes.set_axisbelow(True)

    return picture(name, draw, SIZE, title)


def nb_recall_picture(name: str, rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str], title: str) -> Picture:
    """Returns a picture of recall over k: a colour for each pair of runs, a line style for each n.

    `rows`: {earlier, later, n, k: depths, recall: one for each}.
    """
    pairs = list(dict.fromkeys((row["earlier"], row["later"]) for row in rows))
    depths = sorted({row["n"] for row in rows})
    lines = [
        (
            row,
            CURVES[pairs.index((row["earlier"], row["later"])) % len(CURVES)],
            STYLES[depths.index(row["n"]) % len(STYLES)],
            f"{labels[row['later']]}'s first {row['n']} in {labels[row['earlier']]}",
        )
        for row in rows
    ]

    def draw(axes: Axes) -> None:
        for row, colour, style, label in lines:
            axes.plot(
                row["k"], row["recall"], style, color=colour, marker="o", markersize=3, linewidth=1.5, label=label
            )
        ks = sorted({k for row in rows for k in row["k"]})
        if ks[-1] >= 20 * ks[0]:
            axes.set_xscale("log")
        shown = ks if len(ks) <= 6 else [ks[round(i * (len(ks) - 1) / 5)] for i in range(6)]
        axes.set_xticks(shown, [f"{k:,}" for k in shown])
        axes.minorticks_off()
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("k, the earlier list's depth")
        axes.grid(axis="y")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24), frameon=False, fontsize=8)

    return picture(name, draw, (SIZE[0], SIZE[1] + 0.16 * len(lines)), title)
