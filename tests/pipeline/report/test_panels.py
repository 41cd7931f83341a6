"""Pictures of several models side by side: complete, in the page's colours, never hidden, the same bytes."""

import io
import re
from collections.abc import Iterator

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from pipeline.report import panels
from pipeline.report.figures import COLOURS, light
from pipeline.report.panels import (
    apart_enough,
    averaged,
    compact,
    entropy_panels,
    first_epochs,
    size_curves,
    training_curves,
)

ROWS = ["BERT", "Condenser, continued", "co<Condenser> & $more$", *(f"row {n}" for n in range(5))]
EPOCHS = [n / 100 for n in range(1, 501)]
PICTURES = {
    "entropy": lambda: entropy_panels(
        "drawn", {row: {"pretrained": [4, 3, 1], "fine-tuned": [4, 3.5, 3]} for row in (*ROWS[:3], "row 4")}, "T"
    ),
    "sizes": lambda: size_curves(
        "drawn",
        {row: [(10_000, 0.3 + n / 50, 0.28, 0.4), (500, 0.1, 0.08, 0.12)] for n, row in enumerate(ROWS)},
        "MRR@10",
        "T",
    ),
    "first": lambda: first_epochs("drawn", {row: (EPOCHS, [1 / e for e in EPOCHS]) for row in ROWS}, 3, "T"),
    "training": lambda: training_curves(
        "drawn", {row: ([1, 2, 3], [0.2, 0.3, 0.25]) for row in ROWS}, "dev MRR@10", "T"
    ),
}


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figure]]:
    """The figures that are drawn, before they become text."""
    drawn: list[Figure] = []

    def keep(figure: Figure) -> str:
        figure.draw_without_rendering()
        drawn.append(figure)
        return ""

    monkeypatch.setattr(panels, "as_svg", keep)
    monkeypatch.setattr(panels, "as_png", lambda figure: b"")
    return drawn


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_every_row_in_the_pages_colours_and_equal_bytes(name):
    panel = PICTURES[name]()
    assert panel.name == "drawn"
    picture = panel.svg
    assert picture.startswith('<svg role="img"')
    for text in ("BERT", "Condenser, continued", "co&lt;Condenser&gt; &amp; $more$", "row 4", ">T<"):
        assert text in picture, text
    assert not re.search(r"#0[12]0[0-9]0[0-9]", picture), "a placeholder colour is left"
    assert {"ink", "line"} < {*re.findall(r"var\(--([a-z0-9]+)\)", picture)}
    assert panel == PICTURES[name]()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_also_a_file_in_light_colours(name):
    pixels = (255 * imread(io.BytesIO(PICTURES[name]().png))[..., :3]).round().astype(int).reshape(-1, 3)
    colours = {f"#{r:02x}{g:02x}{b:02x}" for r, g, b in np.unique(pixels, axis=0)}
    assert {light()["paper"], light()["stage2"]} <= colours
    assert not colours & {*COLOURS}, "a placeholder colour is left"


@pytest.mark.parametrize("name", PICTURES)
def test_the_legend_is_below_all_axes_and_within_the_picture(name, figures):
    PICTURES[name]()
    (figure,) = figures
    legend = figure.legends[0].get_window_extent()
    for axes in figure.axes:
        if axes.get_visible():
            assert axes.get_tightbbox().y0 >= legend.y1 - 1
    assert legend.y0 >= 0
    assert legend.x1 <= figure.bbox.x1
    if name != "entropy":
        styles = {(handle.get_color(), str(handle._dash_pattern)) for handle in figure.legends[0].legend_handles}
        assert len(styles) == len(ROWS)


@pytest.mark.parametrize("name", PICTURES)
def test_every_line_is_within_its_axes(name, figures):
    PICTURES[name]()
    for axes in figures[0].axes:
        for line in axes.get_lines():
            at = line.get_transform().transform(line.get_xydata())
            box = axes.get_window_extent()
            assert np.all((at >= [box.x0 - 1, box.y0 - 1]) & (at <= [box.x1 + 1, box.y1 + 1]))


def test_entropies_have_one_panel_per_model_and_one_scale(figures):
    entropy_panels(
        "drawn", {"BERT": {"pretrained": [4, 1]}, "ICT": {"pretrained": [1, 1], "fine-tuned": []}, "C": {}}, "T"
    )
    axes = [axes for axes in figures[0].axes if axes.get_visible()]
    assert [one.get_title(loc="left") for one in axes] == ["BERT", "ICT", "C"]
    assert [one.get_ylim() for one in axes] == [pytest.approx((0, 4.32))] * 3
    assert [[line.get_xydata().tolist() for line in one.get_lines()] for one in axes] == [
        [[[1, 4], [2, 1]]],
        [[[1, 1], [2, 1]]],
        [],
    ]
    assert [text.get_text() for text in figures[0].legends[0].get_texts()] == ["pre-trained"]


def test_stages_have_their_own_colours():
    lines = {"pretrained": [4, 1], "stage1": [4, 2], "stage2": [4, 3]}
    picture = entropy_panels("drawn", {"": lines}, "Entropy").svg
    for text in ("--quiet", "--stage1", "--stage2", "pre-trained", "stage 1", "stage 2"):
        assert text in picture


def test_first_epochs_are_averages_within_their_range(figures):
    losses = [8.0] * 250 + [2.0, 4.0] * 125
    first_epochs("drawn", {"a": (EPOCHS, losses), "none": ([], []), "zero": ([1.0], [0.0])}, 3, "T")
    axes = figures[0].axes[0]
    (line,) = axes.get_lines()
    assert axes.get_yscale() == "log"
    x, y = line.get_xydata().T
    assert (x.max() <= 3, len(x)) == (True, 60)
    assert set(y[x < 2.4]) == {8.0}
    np.testing.assert_allclose(y[x > 2.6], 3.0, atol=0.3)


def test_averages_are_over_intervals_of_equal_width():
    x, y = averaged([0.1, 0.3, 1.5, 3.9, 4.0], [1, 3, 5, 8, 10], 4.0, 4)
    np.testing.assert_allclose([x, y], [[0.2, 1.5, 3.95], [2, 5, 9]])
    few = averaged([1, 2], [5, 6], 2.0, 50)
    assert [part.tolist() for part in few] == [[1, 2], [5, 6]]


def test_sizes_are_labelled_as_papers_print_them():
    assert [*map(compact, (500, 1000, 2500, 10_000, 502_939))] == ["500", "1K", "2.5K", "10K", "503K"]
    assert apart_enough([500, 1000, 10_000, 10_100, 500_000]) == [500, 1000, 10_000, 500_000]
    assert (apart_enough([]), apart_enough([7])) == ([], [7])


def test_nothing_to_draw_is_an_empty_picture():
    curves = [
        size_curves("drawn", {}, "m", "T"),
        first_epochs("drawn", {}, 3, "T"),
        training_curves("drawn", {}, "m", "T"),
    ]
    for picture in (entropy_panels("drawn", {}, "T"), *curves):
        assert picture.svg.startswith("<svg")
        assert ">T<" in picture.svg
