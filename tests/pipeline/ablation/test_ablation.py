"""The end of an ablation: figures of cells, means over seeds, tests, and a self-contained page."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ablated import (
    SEEDS,
    SIZES,
    STRENGTH,
    config,
    make_inputs,
    places,
    undrawn,
    values,
    wide,
    work,
)
from pydantic import ValidationError

from pipeline.ablation import data as ablation_data
from pipeline.ablation import files as ablation_files
from pipeline.ablation import page as ablation_page
from pipeline.ablation import table as ablation_table
from pipeline.ablation.ablation import ablation, render
from pipeline.errors import InputError
from pipeline.evaluate.measures import HITS, MEASURES
from pipeline.evaluate.significance.bootstrap import interval, resampled_means
from pipeline.evaluate.significance.paired import holm, p_values
from pipeline.runtime.work import silent


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_inputs(tmp_path_factory.mktemp("ablation"))


@pytest.fixture
def drawn() -> None:
    """Marks a test whose pictures are drawn."""


@pytest.fixture(autouse=True)
def _pictures_are_not_drawn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Except those of the fixture `built`."""
    with nullcontext() if "drawn" in request.fixturenames else undrawn():
        yield


@pytest.fixture(scope="module")
def built(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "out"
    metrics = ablation(config(), **inputs, work=work(out))
    assert set(metrics) == {
        f"{split}/{row}/{kind}/{size}/{measure}"
        for split in ("dev", "test")
        for row in STRENGTH
        for kind in ("bm25", "mined")
        for size in ("10", "all")
        for measure in ("RR@10", "R@20", *(["hits@5"] if split == "test" else []))
    }
    return out


def test_each_cells_figures_are_those_of_its_evaluation(built: Path, inputs: dict[str, Path]) -> None:
    table = json.loads((built / "table.json").read_text())
    for n, (row, size, seed) in enumerate(places()):
        splits = json.loads((inputs[f"evaluate_{n}"] / "metrics.json").read_text())["splits"]
        for negatives, system in (("bm25", "stage1"), ("mined", "stage2")):
            for split in ("dev", "test"):
                place = {"row": row, "negatives": negatives, "size": size, "seed": seed, "split": split}
                figures = [f for f in table if {name: f[name] for name in place} == place]
                by_measure = {f["measure"]: {k: f[k] for k in ("mean", "low", "high")} for f in figures}
                answers = splits[split].get("answers", {"systems": {system: {}}})
                assert by_measure == splits[split]["systems"][system] | answers["systems"][system]
    bm25 = [f for f in table if f["row"] == "BM25"]
    assert {f["split"] for f in bm25} == {"dev", "test"}
    assert {(f["negatives"], f["size"], f["seed"]) for f in bm25} == {(None, None, None)}
    csv = pd.read_csv(built / "table.csv")
    assert len(csv) == len(table)
    assert [*csv.columns] == [*table[0]]
    assert csv["mean"].tolist() == [f["mean"] for f in table]


def test_means_are_over_seeds_and_questions(built: Path, inputs: dict[str, Path]) -> None:
    table = json.loads((built / "table.json").read_text())
    for n in range(0, len(places()), len(SEEDS)):
        row, size, _ = places()[n]
        place = {"row": row, "negatives": "mined", "size": size, "seed": None, "split": "dev", "measure": "RR@10"}
        (figure,) = [f for f in table if {name: f[name] for name in place} == place]
        mean_Q = (values(inputs, n, "stage2", "RR@10") + values(inputs, n + 1, "stage2", "RR@10")) / 2
        low, high = interval(resampled_means(mean_Q[:, None], 500, 7))
        assert figure["mean"] == pytest.approx(mean_Q.mean(), abs=1e-6)
        assert (figure["low"], figure["high"]) == (pytest.approx(low[0], abs=1e-6), pytest.approx(high[0], abs=1e-6))


def test_rows_are_tested_against_the_reference(built: Path, inputs: dict[str, Path]) -> None:
    tests = json.loads((built / "tests.json").read_text())
    assert len(tests) == 2 * 2 * 2 * (2 * len(MEASURES) + len(HITS))  # rows, negatives, sizes; splits, measures
    mean_of = {
        row: (values(inputs, 4 * r + 2, "stage1", "RR@10") + values(inputs, 4 * r + 3, "stage1", "RR@10")) / 2
        for r, row in enumerate(STRENGTH)
    }
    others = [row for row in STRENGTH if row != "<b>plain"]
    difference = [mean_of[row] - mean_of["<b>plain"] for row in others]
    p = p_values(np.stack(difference, axis=1), "randomisation", 500, 7)  # one draw of signs serves all columns
    for row, raw, corrected, d in zip(others, p, holm(p[:, None])[:, 0], difference, strict=True):
        place = {"row": row, "negatives": "bm25", "size": None, "split": "dev", "measure": "RR@10"}
        (comparison,) = [t for t in tests if {name: t[name] for name in place} == place]
        assert comparison["reference"] == "<b>plain"
        assert comparison["mean"] == pytest.approx(d.mean(), abs=1e-6)
        assert (comparison["p"], comparison["p_holm"]) == (
            pytest.approx(raw, abs=1e-6),
            pytest.approx(corrected, abs=1e-6),
        )
        assert (comparison["wins"], comparison["losses"]) == (int((d > 1e-9).sum()), int((d < -1e-9).sum()))
    assert {t["p_holm"] < 0.05 for t in tests if t["row"] == "good" and t["measure"] == "RR@10"} == {True}


def test_the_table_shows_rows_columns_and_marks(built: Path) -> None:
    text = (built / "table.md").read_text()
    head, _, bm25, plain, good, learned = text.splitlines()[:6]
    assert "| hits@5, test |" in text
    assert "| hits@5, dev |" not in text
    assert head == ("| MRR@10, dev | BM25 negatives, 10 | BM25 negatives, all | + mined, 10 | + mined, all |")
    assert bm25.startswith("| BM25 | .")
    assert bm25.endswith("| – | – | – |")
    assert "*" not in plain
    assert good.count("*") == 4
    assert learned.startswith("| learned | .")
    assert "* differs from <b>plain: paired randomisation, p < .05 by Holm over 2 comparisons." in text


def test_the_model_before_fine_tuning_is_one_column(inputs: dict[str, Path], tmp_path: Path) -> None:
    metrics = ablation(wide(), **inputs, work=work(tmp_path / "out"))
    table, tests = (json.loads((tmp_path / "out" / name).read_text()) for name in ("table.json", "tests.json"))
    figures = [f for f in table if f["negatives"] == "none"]
    assert {(f["size"], f["seed"]) for f in figures} == {(None, None)}
    assert len(figures) == len({(f["row"], f["split"], f["measure"]) for f in figures})
    for n, (row, size, seed) in enumerate(places()):
        if (size, seed) == (None, 1):
            systems = json.loads((inputs[f"evaluate_{n}"] / "metrics.json").read_text())["splits"]["dev"]["systems"]
            of_row = [f for f in figures if (f["row"], f["split"]) == (row, "dev")]
            by_measure = {f["measure"]: {k: f[k] for k in ("mean", "low", "high")} for f in of_row}
            assert by_measure == systems["pretrained"]
            assert metrics[f"dev/{row}/none/all/RR@10"] == systems["pretrained"]["RR@10"]["mean"]
    tested = [t for t in tests if t["negatives"] == "none"]
    assert [(t["row"], t["size"]) for t in tested if (t["split"], t["measure"]) == ("dev", "RR@10")] == [
        ("good", None),
        ("learned", None),
    ]
    head, _, bm25, *rows = (tmp_path / "out/table.md").read_text().splitlines()[:6]
    kinds = [f"{kind}, {size}" for kind in ("BM25 negatives", "+ mined", "+ BM25") for size in ("10", "all")]
    assert head == f"| MRR@10, dev | not fine-tuned | {' | '.join(kinds)} |"
    assert bm25.startswith("| BM25 | .")
    assert bm25.count("–") == len(kinds)
    assert not [row for row in rows if "–" in row]
    page = (tmp_path / "out/ablation.html").read_text()
    assert "<h3>not fine-tuned</h3>" in page
    assert "<td>not fine-tuned</td>" not in page  # among the seeds
    drawn = {path.stem for path in (tmp_path / "out/pictures").glob("sizes-*")}
    assert drawn == {"sizes-bm25", "sizes-mined", "sizes-fusion"}


def test_bm25_joined_with_the_last_run_is_a_column(inputs: dict[str, Path], tmp_path: Path) -> None:
    ablation(wide(), **inputs, work=work(tmp_path / "out"))
    table, tests = (json.loads((tmp_path / "out" / name).read_text()) for name in ("table.json", "tests.json"))
    for n, (row, size, seed) in enumerate(places()):
        systems = json.loads((inputs[f"evaluate_{n}"] / "metrics.json").read_text())["splits"]["test"]["systems"]
        place = {"row": row, "negatives": "fusion", "size": size, "seed": seed, "split": "test", "measure": "R@20"}
        (figure,) = [f for f in table if {name: f[name] for name in place} == place]
        assert {name: figure[name] for name in ("mean", "low", "high")} == systems["fusion"]["R@20"]
    assert {(t["row"], t["size"]) for t in tests if t["negatives"] == "fusion"} == {
        (row, size) for row in ("good", "learned") for size in SIZES
    }


def test_a_table_of_only_rows_that_no_index_can_search_is_shown(inputs: dict[str, Path], tmp_path: Path) -> None:
    cells = [cell.model_copy(update={"systems": {}}) for cell in config().cells]
    ablation(config(cells=cells), **inputs, work=work(tmp_path / "out"))
    assert (tmp_path / "out/table.md").read_text().startswith("| MRR@10, dev |\n|---|\n| BM25 |\n| <b>plain |\n")


def test_one_seed_keeps_the_interval_of_its_evaluation(inputs: dict[str, Path], tmp_path: Path) -> None:
    kept = [n for n, (_, size, seed) in enumerate(places()) if (size, seed) == (None, 1)]
    evaluations = {f"evaluate_{new}": inputs[f"evaluate_{n}"] for new, n in enumerate(kept)}
    settings = config(cells=[config().cells[n] for n in kept], test="t")
    ablation(settings, inputs["collection"], work(tmp_path / "out"), **evaluations)
    table = json.loads((tmp_path / "out/table.json").read_text())
    alone = [f for f in table if f["seed"] == 1]
    means = [{**f, "seed": 1} for f in table if f["seed"] is None and f["negatives"]]
    assert sorted(alone, key=str) == sorted(means, key=str)
    assert "paired t-test" in (tmp_path / "out/table.md").read_text()


@pytest.mark.usefixtures("drawn")
def test_the_page_is_complete_escaped_and_the_same_each_time(
    built: Path, inputs: dict[str, Path], tmp_path: Path
) -> None:
    page = (built / "ablation.html").read_text()
    assert "<script" not in page
    assert "<b>plain" not in page
    assert "An &lt;script&gt;" in page
    assert not re.search(r"""(src|href)=["']?(?!#)[a-z/]|@import|url\((?!#)""", page)
    for title in ("BM25 negatives", "Stage 1, loss of the first 4 epochs", "reranking of dev candidates"):
        assert title in page
    assert page.count("<svg") == 6
    drawn = {"sizes-bm25", "sizes-mined", "first-epochs", "training-dev", "training-loss", "attention"}
    assert {path.name for path in (built / "pictures").iterdir()} == {f"{name}.png" for name in drawn}
    assert "entropy (nats)" in page
    assert "cocondenser run tiny --set stage1.seed=2" in page
    ablation(config(), **inputs, work=work(tmp_path / "again"))
    for name in ("ablation.html", "table.json", "table.csv", "table.md", "tests.json", "gains.json"):
        assert (tmp_path / "again" / name).read_bytes() == (built / name).read_bytes()


def test_the_page_says_which_cells_would_be_trained_again(built: Path, inputs: dict[str, Path], tmp_path: Path) -> None:
    """A checkpoint used as the initial model is another artifact than the one that the training wrote."""
    assert "trains again" not in (built / "ablation.html").read_text()
    cells = [c.model_copy(update={"start": "good"} if c.row == "learned" else {}) for c in config().cells]
    ablation(config(cells=cells), **inputs, work=work(tmp_path / "out"))
    page = (tmp_path / "out/ablation.html").read_text()
    assert page.count("(trains again; DIR: the pre-trained checkpoint of good)") == len(SIZES) * len(SEEDS)


def test_a_row_without_a_run_has_no_figure(inputs: dict[str, Path], tmp_path: Path) -> None:
    cells = [cell.model_copy(update={"systems": {}} if cell.row == "learned" else {}) for cell in config().cells]
    ablation(config(cells=cells), **inputs, work=work(tmp_path / "out"))
    assert "| learned | – | – | – | – |" in (tmp_path / "out/table.md").read_text()
    assert "No index can search learned" in (tmp_path / "out/ablation.html").read_text()
    assert "* differs from <b>plain: paired randomisation, p < .05.\n" in (tmp_path / "out/table.md").read_text()


@pytest.mark.parametrize(
    ("without", "ending"),
    [
        (set(), "p < .05 by Holm over 2 comparisons."),
        ({("good", "bm25"), ("learned", "mined")}, "p < .05."),
        ({("good", "mined")}, "p < .05 by Holm over 1 to 2 comparisons."),
        ({("<b>plain", "bm25"), ("<b>plain", "mined")}, "means over 2 seeds of fine-tuning."),
    ],
)
def test_the_note_counts_the_comparisons(inputs: dict[str, Path], without, ending: str) -> None:
    cells = []
    for cell in config().cells:
        systems = {kind: run for kind, run in cell.systems.items() if (cell.row, kind) not in without}
        cells.append(cell.model_copy(update={"systems": systems}))
    settings = config(cells=cells)
    data = ablation_data.collect(settings, inputs["collection"], inputs, silent)
    assert ablation_table.note(settings, [], ablation_table.tests(data)).endswith(ending)


DEEP = ["RR@10", "R@20", "R@1000", "AP"]


@pytest.mark.parametrize(
    ("cuts", "notes"),
    [
        ({}, []),
        ({"dev": dict.fromkeys(("bm25", "stage1", "stage2"), 1000)}, []),
        (
            {split: dict.fromkeys(("bm25", "stage1", "stage2"), 20) for split in ("dev", "test")},
            [f"{split}: no list is longer than 20; R@1000 is R@20 there, and AP is cut." for split in ("dev", "test")],
        ),
        (
            {"test": {"stage1": 12}},
            [
                "test, BM25 negatives, 10 and BM25 negatives, all: "
                "no list is longer than 12; R@20 and R@1000 are R@12 there, and AP is cut."
            ],
        ),
        (
            {"dev": {"bm25": 100, "stage2": 20}, "test": {"stage2": 5000}},
            [
                "dev, BM25: no list is longer than 100; R@1000 is R@100 there, and AP is cut.",
                "dev, + mined, 10 and + mined, all: no list is longer than 20; R@1000 is R@20 there, and AP is cut.",
            ],
        ),
    ],
)
def test_measures_deeper_than_the_lists_are_named(inputs: dict[str, Path], tmp_path: Path, cuts, notes) -> None:
    settings = config(measures=DEEP)
    data = ablation_data.collect(settings, inputs["collection"], cut(inputs, tmp_path, cuts), silent)
    ablation_files.write_data(data, tmp_path)
    for loaded in (data, ablation_files.read_data(tmp_path)):
        figures = ablation_table.figures(loaded)
        assert ablation_table.shallow_notes(settings, figures) == notes
        whole = ablation_table.note(settings, figures, [])
        assert whole.endswith(" ".join(["seeds of fine-tuning.", *notes]))
        assert whole.replace("<", "&lt;").replace(">", "&gt;") in ablation_page.page(loaded, figures, [], [])[0]


def test_the_runs_of_some_rows_alone_are_named(inputs: dict[str, Path], tmp_path: Path) -> None:
    settings, cuts = config(measures=["AP"]), {"dev": {"stage2": 20}}
    data = ablation_data.collect(settings, inputs["collection"], cut(inputs, tmp_path, cuts, [0, 1, 4]), silent)
    figures = ablation_table.figures(data)
    named_runs = "<b>plain (+ mined, 10) and good (+ mined, 10)"
    assert ablation_table.shallow_notes(settings, figures) == [
        f"dev, {named_runs}: no list is longer than 20; AP is cut."
    ]
    cut_at = {f.get("cut_at") for f in figures if (f["row"], f["negatives"], f["size"]) == ("good", "mined", 10)}
    assert cut_at == {20, None}  # 20 for one seed and for the mean


def cut(inputs: dict[str, Path], folder: Path, cuts, cells: Sequence[int] = range(12)) -> dict[str, Path]:
    """The inputs, whose lists of `cells` are cut as `cuts` says: {split: {system: length}}."""
    paths = dict(inputs)
    for name in (f"evaluate_{n}" for n in cells):
        paths[name] = Path(shutil.copytree(inputs[name], folder / name))
        metrics = json.loads((paths[name] / "metrics.json").read_text())
        for split, part in metrics["splits"].items():
            part.pop("cut_at")
            part |= {"cut_at": cuts[split]} if split in cuts else {}
        (paths[name] / "metrics.json").write_text(json.dumps(metrics))
    return paths


@pytest.mark.usefixtures("drawn")
def test_every_output_is_built_from_three_files(built: Path, tmp_path: Path) -> None:
    for name in ablation_files.FILES:
        shutil.copy(built / name, tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    render(ablation_files.read_data(tmp_path), again)
    files = sorted(path.relative_to(built) for path in built.rglob("*") if path.is_file())
    assert len(files) == 6 + 3 + 6
    assert sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file()) == files
    for name in files:
        assert (again / name).read_bytes() == (built / name).read_bytes()


def test_the_files_hold_each_question(built: Path, inputs: dict[str, Path]) -> None:
    table = pd.read_parquet(built / "questions.parquet")
    assert [*table.columns] == ["row", "negatives", "size", "seed", "split", "query_id", *MEASURES, *HITS]
    for n, (row, size, seed) in enumerate(places()):
        of_size = table["size"].isna() if size is None else table["size"] == size
        of_cell = table[(table.row == row) & of_size & (table.seed == seed) & (table.split == "dev")]
        assert {*of_cell.negatives} == {"bm25", "mined"}
        assert (of_cell[of_cell.negatives == "mined"]["AP"].to_numpy() == values(inputs, n, "stage2", "AP")).all()
    assert {*table[table.negatives.isna()].row} == {"BM25"}


@pytest.mark.parametrize("name", ablation_files.FILES)
def test_damaged_files_are_reported(built: Path, tmp_path: Path, name: str) -> None:
    for file in ablation_files.FILES:
        shutil.copy(built / file, tmp_path)
    for damage in (b"", b"[1]", (built / name).read_bytes()[:-300]):
        (tmp_path / name).write_bytes(damage)
        with pytest.raises(InputError, match=re.escape(f"{tmp_path / name}: cannot be read")):
            ablation_files.read_data(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=re.escape(f"{tmp_path / name}: no such file")):
        ablation_files.read_data(tmp_path)


def test_unknown_measures_are_refused() -> None:
    assert config(measures=["MRR@10", "hits@5"]).measures == ["RR@10", "hits@5"]
    with pytest.raises(ValidationError, match=r"unknown measure; known are RR@10, RR@100, nDCG@10, .* hits@100"):
        config(measures=["RR@11"])


def changed(evaluation: Path, out: Path, keeps) -> Path:
    """A copy of an evaluation with only the questions of its table for which `keeps` is true, and with their splits."""
    out.mkdir()
    metrics = json.loads((evaluation / "metrics.json").read_text())
    table = pd.read_parquet(evaluation / "per_query.parquet")
    table = table[keeps(table)]
    metrics["splits"] = {split: metrics["splits"][split] for split in table.split.unique()}
    (out / "metrics.json").write_text(json.dumps(metrics))
    table.to_parquet(out / "per_query.parquet")
    return out


@pytest.mark.parametrize(
    ("keeps", "split"),
    [(lambda table: table.query_id != "dev3", "dev"), (lambda table: table.split == "dev", "test")],
)
@pytest.mark.parametrize(
    ("n", "cells"),
    [
        (1, "<b>plain, 10 questions, seed 1 and <b>plain, 10 questions, seed 2"),
        (6, "<b>plain, 10 questions, seed 1 and good, all questions, seed 1"),
        (0, "<b>plain, 10 questions, seed 1 and <b>plain, 10 questions, seed 2"),
    ],
)
def test_other_questions_are_refused(
    inputs: dict[str, Path], tmp_path: Path, keeps, split: str, n: int, cells: str
) -> None:
    other = changed(inputs[f"evaluate_{n}"], tmp_path / "other", keeps)
    with pytest.raises(InputError, match=f"^{cells} were measured on different questions of {split}: "):
        ablation_data.collect(config(), inputs["collection"], inputs | {f"evaluate_{n}": other}, silent)


def test_missing_questions_of_one_kind_are_reported(inputs: dict[str, Path], tmp_path: Path) -> None:
    """The evaluation of one cell has no measures of answers."""
    other = changed(inputs["evaluate_1"], tmp_path / "other", lambda table: table.split != "")
    table = pd.read_parquet(other / "per_query.parquet")
    table.assign(**dict.fromkeys(HITS, None)).to_parquet(other / "per_query.parquet")
    with pytest.raises(InputError, match="different questions of test: "):
        ablation_data.collect(config(), inputs["collection"], inputs | {"evaluate_1": other}, silent)
