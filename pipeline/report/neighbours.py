"""The picture of nb-recall n@k (Condenser, analysis of hard negatives)."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from pipeline.report.figures import CURVES, SIZE, Picture, picture

STYLES = ("-", "--", ":", "-.")


def nb_recall(name: str, rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str], title: str) -> Picture:
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
