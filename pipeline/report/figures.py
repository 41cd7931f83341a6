"""The report's pictures: SVG with the page's colours, so that one file works in light, dark and print; and PNG in the
light colours, for slides and for Prefect's page.

Equal figures give equal bytes: no dates, a fixed salt for ids, matplotlib's default settings instead of the user's.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline.formatting import share_text
from pipeline.templates import styles
from pipeline.training.loop import loss_columns

INK, LINE, GOOD, BAD = "#010101", "#010102", "#010103", "#010104"
COLOURS = {
    INK: "ink",
    LINE: "line",
    GOOD: "good",
    BAD: "bad",
    "#020201": "bm25",
    "#020202": "pretrained",
    "#020203": "stage1",
    "#020204": "stage2",
    "#020205": "fusion",
    "#020206": "rerank",
    "#020207": "quiet",
}
"""Placeholder colours in matplotlib's output -> names of the page's colours (palette.css, report.css)."""
SYSTEMS = {name: placeholder for placeholder, name in COLOURS.items() if placeholder not in (INK, LINE, GOOD, BAD)}
CURVES = tuple(SYSTEMS[name] for name in ("stage2", "fusion", "bm25", "rerank", "stage1", "quiet"))
POINTS = 200
"""Most points of a curve; more updates are averaged."""
DOTS_PER_INCH = 200
"""Resolution of a PNG."""
SIZE = (3.6, 2.4)
"""Width and height of a plot in inches."""

SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text: it can be read aloud, searched, and scales on a phone
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
}


@dataclass(frozen=True)
class Picture:
    name: str
    """Lower-case words with dashes: the name of its file, and the end of its key on Prefect's page."""
    svg: str
    """An inline `<svg>` with the page's colours."""
    png: bytes
    """The same picture on white."""


def write_pngs(out: Path, pictures: Iterable[Picture]) -> None:
    """Writes `pictures/NAME.png`; Prefect's page reads them there."""
    (out / "pictures").mkdir()
    for one in pictures:
        (out / "pictures" / f"{one.name}.png").write_bytes(one.png)


def colour_of(system: str) -> str:
    """Returns the page's name of a system's colour: rounds have their stage's.

    An existing model has the last stage's. Adapted, it has the reranker's, which it seldom meets.
    """
    name = {"model": "stage2", "adapted": "rerank"}.get(system, re.sub(r"-\d$", "", system))
    return name if name in SYSTEMS else "quiet"


def ladder(name: str, figures: Mapping[str, Mapping[str, float]], labels: Mapping[str, str], title: str) -> Picture:
    """Returns a picture of one measure of every system, with intervals. `figures` is {system: {mean, low, high}}."""

    def draw(axes: Axes) -> None:
        for y, (system, figure) in enumerate(figures.items()):
            colour, mean = SYSTEMS[colour_of(system)], figure["mean"]
            axes.plot([figure["low"], figure["high"]], [y, y], color=colour, linewidth=3, solid_capstyle="round")
            axes.plot(mean, y, "o", color=colour, markersize=7)
            axes.annotate(share_text(mean), (mean, y), (0, 6), textcoords="offset points", ha="center")
        axes.set_yticks(range(len(figures)), [labels[system] for system in figures])
        axes.set_ylim(len(figures) - 0.5, -0.75)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.margins(x=0.12)
        axes.tick_params(left=False)
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x")
        axes.set_axisbelow(True)

    return picture(name, draw, (SIZE[0], 0.62 + 0.36 * len(figures)), title)


def curves(name: str, history: Mapping[str, Sequence[float]], title: str) -> Picture:
    """Returns a picture of a training's losses over its updates, without skipped updates."""
    kept = np.array(history.get("skipped", np.zeros(len(history["step"])))) == 0
    step = np.array(history["step"], float)[kept]
    bins = np.array_split(np.arange(len(step)), min(POINTS, max(len(step), 1)))
    names = {loss: loss.replace("_", " ").replace("mlm", "MLM") for loss in loss_columns(history)}

    def draw(axes: Axes) -> None:
        for loss, drawn in zip(names, CURVES, strict=False):
            values = np.array(history[loss], float)[kept]
            x, y = ([series[b].mean() for b in bins if len(b)] for series in (step, values))
            marker = "." if len(bins) < 5 else ""
            axes.plot(x, y, color=drawn, linewidth=1.5, label=names[loss], marker=marker)
        axes.set_xlabel("update")
        axes.set_ylim(0, 1.05 * axes.dataLim.ymax if np.isfinite(axes.dataLim.ymax) else 1)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.grid(axis="y")
        axes.set_title(title, pad=20)
        axes.legend(**below_title(len(names)))

    return picture(name, draw, SIZE, title)


def below_title(columns: int) -> Any:
    """Returns settings of a one-line legend under the title, which needs a pad of 20."""
    place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "ncols": columns}
    return place | {"frameon": False, "handlelength": 0.8, "handletextpad": 0.4, "columnspacing": 1}


def picture(name: str, draw: Callable[[Axes], None], inches: tuple[float, float], title: str) -> Picture:
    """Returns a picture of what `draw` puts on the axes."""
    with styled(title):
        figure = Figure(figsize=inches, layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title)
        draw(axes)
        return Picture(name, as_svg(figure), as_png(figure))


@contextmanager
def styled(salt: str) -> Iterator[None]:
    """Uses the pictures' settings instead of the user's. `salt`: of an SVG's ids."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS | {"svg.hashsalt": salt})
        yield


def as_svg(figure: Figure) -> str:
    """Returns an inline `<svg>` with the page's colours. Call it within `styled`."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<svg([^>]*?) width="[^"]*"', r"<svg\1", text, count=1)
    text = re.sub(r'<svg([^>]*?) height="[^"]*"', r"<svg\1", text, count=1)
    text = text.replace("<svg", '<svg role="img"', 1)
    # Fonts are the page's; ids would collide between the pictures of one page.
    text = re.sub(r"(?<=\d)px 'sans-serif'|(?<=\d)px sans-serif", "px var(--font)", text)
    text = re.sub(r'<g id="(?:figure|axes|patch|line2d|matplotlib|text|xtick|ytick|legend)[^"]*">', "<g>", text)
    for placeholder, name in COLOURS.items():
        text = text.replace(placeholder, f"var(--{name})")
    return text


def as_png(figure: Figure) -> bytes:
    """Returns a PNG in the page's light colours, which the figure then keeps. Call it within `styled`."""
    recolour(figure)
    figure.set_layout_engine("none")  # keep the current layout
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DOTS_PER_INCH, facecolor=light()["paper"], metadata={"Software": None})
    return out.getvalue()


def recolour(figure: Figure) -> None:
    """Replaces the placeholder colours of a drawn figure by the light colours."""
    for artist in figure.findobj():
        for part in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            read, give = (getattr(artist, f"{verb}_{part}", None) for verb in ("get", "set"))
            if read is None or give is None:
                continue
            colours = to_rgba_array(read())
            names = {COLOURS.get(to_hex(colour)) for colour in colours}
            if len(names) == 1 and (name := names.pop()) is not None:
                give((light()[name], float(colours[0][3])))


@cache
def light() -> dict[str, str]:
    """Returns {name: colour} of the page's light palette, the first one in its style sheets."""
    sheets = (str(styles(name)).split("@media")[0] for name in ("palette.css", "report.css"))
    return dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6});", "".join(sheets)))
