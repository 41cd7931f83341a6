"""Pictures that compare several models or rows, in the page's colours (figures.py).

The legend is below the axes, so that it never covers a line. Rows without a point are left out.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from pipeline.evaluate.tables.short_tables import label
from pipeline.report.figures import GOOD, POINTS, SYSTEMS, Picture, as_png, as_svg, styled

Style = dict[str, Any]
"""Settings of a line."""

COLOURS = (SYSTEMS["stage2"], SYSTEMS["fusion"], GOOD, SYSTEMS["rerank"], SYSTEMS["stage1"], SYSTEMS["bm25"])
DASHES = ("-", (0, (3, 1.5)), (0, (1, 1.2)))
"""Line styles: of the first lines, and of each repetition of the colours."""
WIDTH, HEIGHT = 3.6, 2.3
"""Inches of a picture, without its legend."""
LINE_HEIGHT = 0.17
"""Inches of a line of the legend."""
LETTERS = 54
"""Letters that fit on a line of the legend."""
HANDLE = 5
"""Width of a line's sample, in letters."""
SMOOTHED = 60
"""Intervals of the first epochs; the loss is averaged over each."""
MARKED = 40
"""Most points of a line with markers."""
WIDE = 5
"""Smallest ratio of largest to smallest figure for logarithmic ticks."""


def entropy_panels(name: str, models: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> Picture:
    """Returns a picture of [CLS] attention entropy by layer, one panel per model, on one scale (Condenser, figure 2).

    `models`: {panel's label: {"pretrained", "fine-tuned" or a stage: [entropy in nats, by layer]}}.
    """
    kinds = list(dict.fromkeys(kind for lines in models.values() for kind, values in lines.items() if len(values)))
    styles = dict(zip(kinds, map(entropy_style, kinds, range(len(kinds))), strict=True))
    most = max((value for lines in models.values() for values in lines.values() for value in values), default=1.0)
    columns = 1 if len(models) < 2 else 2
    down = max(1, math.ceil(len(models) / columns))

    def draw(figure: Figure) -> None:
        grid = figure.subplots(down, columns, sharey=True, squeeze=False)
        for n, axes in enumerate(grid.flat):
            axes.set_visible(n < len(models))
        for axes, (model, lines) in zip(grid.flat, models.items(), strict=False):
            for kind in (kind for kind in kinds if len(lines.get(kind, ()))):
                axes.plot(range(1, len(lines[kind]) + 1), lines[kind], marker="o", markersize=3, **styles[kind])
            axes.set_title(model, fontsize=9, fontweight="normal")
            axes.xaxis.set_major_locator(MaxNLocator(6 // columns + 1, integer=True, min_n_ticks=1))
            axes.set_xlabel("layer")
            quieten(axes)
        grid[0, 0].set_ylim(0, 1.08 * most)
        for axes in grid[:, 0]:
            axes.set_ylabel("entropy (nats)")
        if list(models) == [""]:
            grid[0, 0].set_title(title)
        else:
            figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")

    height = HEIGHT if columns < 2 else 0.25 + 1.6 * down
    shown = {"pretrained": "pre-trained"}
    legend = {shown.get(kind) or label(kind): style for kind, style in styles.items()}
    return picture(name, draw, height, title, legend)


def entropy_style(kind: str, place: int) -> Style:
    """Returns a line's style: grey and dashed for pre-trained models, the stage's colour otherwise."""
    if kind == "pretrained":
        return style_of(0) | {"color": SYSTEMS["quiet"], "linestyle": DASHES[1]}
    return style_of(max(place - 1, 0)) | ({"color": SYSTEMS[kind]} if kind in SYSTEMS else {})


def size_curves(
    name: str, rows: Mapping[str, Sequence[tuple[float, float, float, float]]], measure: str, title: str
) -> Picture:
    """Returns a picture of a measure over the size of the training set, with intervals (Condenser, tables 3 and 5).

    `rows`: {row: [(training questions, mean, low, high)]}.
    """
    drawn = {row: sorted(points) for row, points in rows.items() if points}
    sizes = sorted({point[0] for points in drawn.values() for point in points})
    styles = {row: style_of(n) for n, row in enumerate(drawn)}

    def draw(figure: Figure) -> None:
        axes = titled_axes(figure, title)
        axes.set_xscale("log")
        for n, (row, points) in enumerate(drawn.items()):
            # Shifted sideways, so that no interval hides another.
            apart = ScaledTranslation((n - (len(drawn) - 1) / 2) * 2 / 72, 0, figure.dpi_scale_trans)
            shifted: Any = {"transform": axes.transData + apart, "color": styles[row]["color"]}
            for size, _, low, high in points:
                axes.plot([size, size], [low, high], linewidth=1, **shifted)
            x, mean = [point[0] for point in points], [point[1] for point in points]
            axes.plot(x, mean, marker="o", markersize=3.5, **styles[row] | shifted)
        if sizes:  # matplotlib does not compute limits of shifted points
            ends = [end for points in drawn.values() for _, *figures in points for end in figures]
            room = 0.06 * (max(ends) - min(ends) or 1.0)
            factor = max(1.25, (sizes[-1] / sizes[0]) ** 0.08)
            axes.set_xlim(sizes[0] / factor, sizes[-1] * factor)
            axes.set_ylim(min(ends) - room, max(ends) + room)
        axes.set_xticks(apart_enough(sizes), [compact(size) for size in apart_enough(sizes)])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("training questions")
        axes.set_ylabel(measure)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        quieten(axes)

    return picture(name, draw, HEIGHT, title, styles)


def first_epochs(
    name: str, losses: Mapping[str, tuple[Sequence[float], Sequence[float]]], epochs: int, title: str
) -> Picture:
    """Returns a picture of the first epochs' loss, averaged over short intervals, logarithmic (Condenser v1, figure 5).

    `losses`: {row: (finished epochs, loss)}, one point per update.
    """
    drawn = {}
    for row, (x, y) in losses.items():
        curve = averaged(x, y, min(float(epochs), max(x, default=0.0)), SMOOTHED)
        drawn[row] = curve[0], np.where(curve[1] > 0, curve[1], np.nan)  # a value without a logarithm becomes a gap
    drawn = {row: curve for row, curve in drawn.items() if np.isfinite(curve[1]).any()}
    styles = {row: style_of(n) for n, row in enumerate(drawn)}

    def draw(figure: Figure) -> None:
        axes = titled_axes(figure, title)
        axes.set_yscale("log")
        for row, curve in drawn.items():
            axes.plot(*curve, **styles[row])
        ends = [f(curve[1]) for curve in drawn.values() for f in (np.nanmin, np.nanmax)]
        wide = max(ends, default=1.0) >= WIDE * min(ends, default=1.0)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(4))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:.3g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylabel("loss")
        over_epochs(axes, epochs)

    return picture(name, draw, HEIGHT, title, styles)


def training_curves(
    name: str, rows: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str, title: str
) -> Picture:
    """Returns a picture of dev MRR or loss over training (ABS and other batches). `rows`: {row: (epochs, figure)}."""
    drawn = {row: averaged(x, y, max(x), POINTS) for row, (x, y) in rows.items() if len(x)}
    styles = {row: style_of(n) for n, row in enumerate(drawn)}

    def draw(figure: Figure) -> None:
        axes = titled_axes(figure, title)
        for row, curve in drawn.items():
            marks: Style = {"marker": "o", "markersize": 3} if len(curve[0]) <= MARKED else {}
            axes.plot(*curve, **styles[row], **marks)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_ylabel(label)
        over_epochs(axes, max((x[-1] for x, _ in drawn.values()), default=1.0))

    return picture(name, draw, HEIGHT, title, styles)


def averaged(x: Sequence[float], y: Sequence[float], end: float, intervals: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns means of x and y over equal intervals of x up to `end`; the points themselves if there are few."""
    at, values = np.asarray(x, float), np.asarray(y, float)
    at, values = at[at <= end], values[at <= end]
    if len(at) <= intervals:
        return at, values
    interval = np.minimum((at / end * intervals).astype(int), intervals - 1)
    count = np.maximum(np.bincount(interval, minlength=intervals), 1)
    means = [np.bincount(interval, numbers, intervals) / count for numbers in (at, values)]
    filled = np.unique(interval)
    return means[0][filled], means[1][filled]


def apart_enough(sizes: Sequence[float]) -> list[float]:
    """Returns the sorted sizes whose labels have space on a logarithmic axis, always with the first one."""
    least = math.log(sizes[-1] / sizes[0]) / 10 if sizes else 0.0
    kept: list[float] = []
    for size in sizes:
        if not kept or math.log(size / kept[-1]) >= least:
            kept.append(size)
    return kept


def compact(size: float) -> str:
    """Returns `500`, `1K`, `2.5K`, `503K`, `1.2M`."""
    for unit, of in (("M", 1e6), ("K", 1e3)):
        if size >= of:
            return f"{size / of:.3g}{unit}" if size < 10 * of else f"{round(size / of):,}{unit}"
    return f"{size:,.0f}"


def style_of(place: int) -> Style:
    """Returns the line style of the row at a place: each has its own colour, then colours repeat with other dashes."""
    turn, colour = divmod(place, len(COLOURS))
    return {"color": COLOURS[colour], "linestyle": DASHES[turn % len(DASHES)], "linewidth": 1.5}


def titled_axes(figure: Figure, title: str) -> Axes:
    axes = figure.add_subplot()
    axes.set_title(title)
    return axes


def over_epochs(axes: Axes, most: float) -> None:
    """Formats the x axis of a training."""
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=most >= 2))
    quieten(axes)


def quieten(axes: Axes) -> None:
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def picture(
    name: str, draw: Callable[[Figure], None], height: float, title: str, styles: Mapping[str, Style]
) -> Picture:
    """Returns a picture of what `draw` puts on a figure, above a legend of `styles`."""
    longest = max(map(len, styles), default=0)
    columns = max(1, min(len(styles), LETTERS // (longest + HANDLE)))
    legend = LINE_HEIGHT * math.ceil(len(styles) / columns)
    with styled(title):
        figure = Figure(figsize=(WIDTH, height + legend), layout="constrained")
        draw(figure)
        if styles:
            handles = [Line2D([], [], **style) for style in styles.values()]
            place: Any = {"loc": "outside lower left", "ncols": columns, "borderaxespad": 0.2}
            spacing: Any = {"handlelength": 1.8, "handletextpad": 0.4, "columnspacing": 1, "labelspacing": 0.25}
            figure.legend(handles, list(styles), **place, **spacing, frameon=False, fontsize=8)
        return Picture(name, as_svg(figure), as_png(figure))
