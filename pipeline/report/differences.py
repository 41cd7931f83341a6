"""The picture of each question's gain or loss."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from pipeline.evaluate.significance import SAMES
from pipeline.report.figures import BAD, GOOD, INK, SIZE, Picture, picture

BARS = 240
"""Most questions to draw; more are sampled evenly in sorted order."""


def per_question(name: str, differences: Sequence[float], title: str, measure: str) -> Picture:
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
