"""The end of an ablation: figures of cells, means over seeds, tests, and a page that needs nothing else."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluating import EVALUATE
from machines import make_machine
from pydantic import ValidationError
from searched import write_collection

from pipeline import ablation_data, ablation_files, ablation_table, runs
from pipeline.ablation import AblationConfig, CellConfig, ablation, render
from pipeline.ablation_gains import gains
from pipeline.bootstrap import interval, resampled_means
from pipeline.collection import schemas, write_table
from pipeline.errors import InputError
from pipeline.evaluate import evaluate
from pipeline.measures import HITS, MEASURES
from pipeline.significance import holm, p_values
from pipeline.work import Work, silent

QUESTIONS, PASSAGES = 30, 25
STRENGTH = {"<b>plain": 0.0, "good": 1.5, "learned": 0.7}
"""How much each row prefers the relevant passage."""
SIZES = (10, None)
ANSWERED = {("test", q) for q in range(0, PASSAGES, 2)}
SEEDS = (1, 2)


def work(out: Path) -> Work:
    out.mkdir(parents=True)
    return Work(out, out.parent, make_machine(), silent)


def run(folder: Path, strength: float, seed: int, questions: int = QUESTIONS) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    with runs.writer(folder) as write:
        for split in ("dev", "test"):
            for q in range(questions):
                score_K = rng.normal(size=PASSAGES)
                score_K[q % PASSAGES] += strength
                by = np.argsort(-score_K)
                write(split, [f"{split}{q}"] * PASSAGES, [f"p{n}" for n in by], score_K[by])
    return folder


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A collection, the evaluations of 3 rows x 2 sizes x 2 seeds, and trainings of the last size and first seed."""
    tmp_path = tmp_path_factory.mktemp("ablation")
    asked = [(split, q) for split in ("train", "dev", "test") for q in range(QUESTIONS)]
    judged = [(split, f"{split}{q}", f"p{q % PASSAGES}", 1) for split, q in asked]
    passages = [(f"p{n}", f"p{n}", "", f"answer{n}") for n in range(PASSAGES)]
    collection = write_collection(tmp_path / "collection", passages, [], judged)
    rows = [(f"{s}{q}", s, "question", [f"answer{q}"] if (s, q) in ANSWERED else []) for s, q in asked]
    write_table(collection / "queries.parquet", schemas()["queries"], rows)
    bm25 = run(tmp_path / "bm25", 1.0, 99)
    (bm25 / "bm25.json").write_text('{"scores": "bm25"}')
    made: dict[str, Path] = {"collection": collection}
    for n, (row, size, seed) in enumerate(places()):
        own = STRENGTH[row] + (0.5 if size is None else 0.0)
        strengths = {"pretrained": STRENGTH[row], "stage1": own, "stage2": own + 1}
        found = {name: run(tmp_path / f"{name}-{n}", strengths[name], 10 * n + seed) for name in strengths}
        made[f"evaluate_{n}"] = tmp_path / f"evaluate-{n}"
        evaluate(EVALUATE, collection, bm25, work(made[f"evaluate_{n}"]), **found)
        if (size, seed) == (None, 1):
            made[f"stage1_{n}"] = folder = tmp_path / f"trained-{n}"
            folder.mkdir()
            steps = np.arange(1, 41)
            history = {"step": steps, "loss": 5 / steps, "skipped": np.zeros(40, int), "learning_rate": np.ones(40)}
            pq.write_table(pa.table(history), folder / "history.parquet")
            epochs = np.arange(1, 5)
            validation = {"epoch": epochs, "step": 10 * epochs, "RR@10": epochs / 10}
            pq.write_table(pa.table(validation), folder / "validation.parquet")
            made[f"attention_{n}"] = looked = tmp_path / f"attention-{n}"
            looked.mkdir()
            entropy = {"model": ["pretrained", "stage1", "stage2"], "layer": [1, 1, 1], "entropy": [3.0, 2.5, 2.0]}
            pq.write_table(pa.table(entropy), looked / "attention.parquet")
    return made


def places() -> list[tuple[str, int | None, int]]:
    return [(row, size, seed) for row in STRENGTH for size in SIZES for seed in SEEDS]


def config(**changes) -> AblationConfig:
    systems = {"bm25": "stage1", "mined": "stage2"}
    same = {"systems": systems, "epochs": 4, "start": None}
    words = ["cocondenser", "run", "tiny", "--set"]
    cells = [
        CellConfig(row=row, size=size, seed=seed, command=[*words, f"stage1.seed={seed}"], **same)
        for row, size, seed in places()
    ]
    fields = {
        "title": "An <script>",
        "reference": "<b>plain",
        "measures": ["RR@10", "R@20", "hits@5"],
        "test": "randomisation",
        "samples": 500,
        "seed": 7,
        "cells": cells,
    }
    return AblationConfig(**{**fields, **changes})


@pytest.fixture(scope="module")
def made(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def values(inputs: dict[str, Path], n: int, system: str, measure: str) -> np.ndarray:
    """[Q] of a cell on dev."""
    table = pd.read_parquet(inputs[f"evaluate_{n}"] / "per_query.parquet")
    return table[(table.split == "dev") & (table.system == system)][measure].to_numpy(np.float64)


def test_each_cells_figures_are_those_of_its_evaluation(made: Path, inputs: dict[str, Path]) -> None:
    table = json.loads((made / "table.json").read_text())
    for n, (row, size, seed) in enumerate(places()):
        splits = json.loads((inputs[f"evaluate_{n}"] / "metrics.json").read_text())["splits"]
        for negatives, system in (("bm25", "stage1"), ("mined", "stage2")):
            for split in ("dev", "test"):
                place = {"row": row, "negatives": negatives, "size": size, "seed": seed, "split": split}
                own = [f for f in table if {name: f[name] for name in place} == place]
                found = {f["measure"]: {k: f[k] for k in ("mean", "low", "high")} for f in own}
                answers = splits[split].get("answers", {"systems": {system: {}}})
                assert found == splits[split]["systems"][system] | answers["systems"][system]
    bm25 = [f for f in table if f["row"] == "BM25"]
    assert {f["split"] for f in bm25} == {"dev", "test"}
    assert {(f["negatives"], f["size"], f["seed"]) for f in bm25} == {(None, None, None)}
    csv = pd.read_csv(made / "table.csv")
    assert len(csv) == len(table)
    assert [*csv.columns] == [*table[0]]
    assert csv["mean"].tolist() == [f["mean"] for f in table]


def test_means_are_over_seeds_and_questions(made: Path, inputs: dict[str, Path]) -> None:
    table = json.loads((made / "table.json").read_text())
    for n in range(0, len(places()), len(SEEDS)):
        row, size, _ = places()[n]
        place = {"row": row, "negatives": "mined", "size": size, "seed": None, "split": "dev", "measure": "RR@10"}
        (figure,) = [f for f in table if {name: f[name] for name in place} == place]
        mean_Q = (values(inputs, n, "stage2", "RR@10") + values(inputs, n + 1, "stage2", "RR@10")) / 2
        low, high = interval(resampled_means(mean_Q[:, None], 500, 7))
        assert figure["mean"] == pytest.approx(mean_Q.mean(), abs=1e-6)
        assert (figure["low"], figure["high"]) == (pytest.approx(low[0], abs=1e-6), pytest.approx(high[0], abs=1e-6))


def test_rows_are_tested_against_the_reference(made: Path, inputs: dict[str, Path]) -> None:
    tests = json.loads((made / "tests.json").read_text())
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
        (found,) = [t for t in tests if {name: t[name] for name in place} == place]
        assert found["reference"] == "<b>plain"
        assert found["mean"] == pytest.approx(d.mean(), abs=1e-6)
        assert (found["p"], found["p_holm"]) == (pytest.approx(raw, abs=1e-6), pytest.approx(corrected, abs=1e-6))
        assert (found["wins"], found["losses"]) == (int((d > 1e-9).sum()), int((d < -1e-9).sum()))
    assert {t["p_holm"] < 0.05 for t in tests if t["row"] == "good" and t["measure"] == "RR@10"} == {True}


def test_the_table_shows_rows_columns_and_marks(made: Path) -> None:
    text = (made / "table.md").read_text()
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


def wide() -> AblationConfig:
    """With the columns before fine-tuning, of the last size and the first seed, and joined with BM25."""
    cells = []
    for cell in config().cells:
        first = {"none": "pretrained"} if (cell.size, cell.seed) == (None, 1) else {}
        cells.append(cell.model_copy(update={"systems": {**first, **cell.systems, "fusion": "fusion"}}))
    return config(cells=cells)


def test_the_model_before_fine_tuning_is_one_column(inputs: dict[str, Path], tmp_path: Path) -> None:
    metrics = ablation(wide(), **inputs, work=work(tmp_path / "out"))
    table, tests = (json.loads((tmp_path / "out" / name).read_text()) for name in ("table.json", "tests.json"))
    own = [f for f in table if f["negatives"] == "none"]
    assert {(f["size"], f["seed"]) for f in own} == {(None, None)}
    assert len(own) == len({(f["row"], f["split"], f["measure"]) for f in own})
    for n, (row, size, seed) in enumerate(places()):
        if (size, seed) == (None, 1):
            of = json.loads((inputs[f"evaluate_{n}"] / "metrics.json").read_text())["splits"]["dev"]["systems"]
            here = [f for f in own if (f["row"], f["split"]) == (row, "dev")]
            found = {f["measure"]: {k: f[k] for k in ("mean", "low", "high")} for f in here}
            assert found == of["pretrained"]
            assert metrics[f"dev/{row}/none/all/RR@10"] == of["pretrained"]["RR@10"]["mean"]
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
        of = json.loads((inputs[f"evaluate_{n}"] / "metrics.json").read_text())["splits"]["test"]["systems"]["fusion"]
        place = {"row": row, "negatives": "fusion", "size": size, "seed": seed, "split": "test", "measure": "R@20"}
        (found,) = [f for f in table if {name: f[name] for name in place} == place]
        assert {name: found[name] for name in ("mean", "low", "high")} == of["R@20"]
    assert {(t["row"], t["size"]) for t in tests if t["negatives"] == "fusion"} == {
        (row, size) for row in ("good", "learned") for size in SIZES
    }


STEPS = [
    ("bm25", "stage1", "none", "pretrained"),
    ("mined", "stage2", "bm25", "stage1"),
    ("fusion", "fusion", None, "bm25"),
]


@pytest.fixture(scope="module")
def widely(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("widely") / "out"
    ablation(wide(), **inputs, work=work(out))
    return out


def mean_of(inputs: dict[str, Path], row: str, size: int | None, system: str) -> np.ndarray:
    """[Q, M] on dev, over the seeds; before fine-tuning of the one cell that has it."""
    cells = [n for n, place in enumerate(places()) if place[:2] == (row, size)]
    if system == "pretrained":
        cells = [places().index((row, None, 1))]
    tables = [[values(inputs, n, system, measure) for measure in MEASURES] for n in cells]
    return np.mean(tables, axis=0).T


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("negatives", "system", "earlier", "before"), STEPS)
def test_columns_are_tested_against_the_one_before(
    widely: Path, inputs: dict[str, Path], size: int | None, negatives: str, system: str, earlier: str, before: str
) -> None:
    """And BM25 joined with the model against BM25."""
    gains = json.loads((widely / "gains.json").read_text())
    d_QRM = np.stack(
        [mean_of(inputs, row, size, system) - mean_of(inputs, row, size, before) for row in STRENGTH], axis=1
    )
    d_QC = d_QRM.reshape(QUESTIONS, -1)
    p_RM = p_values(d_QC, "randomisation", 500, 7).reshape(d_QRM.shape[1:])
    low_C, high_C = interval(resampled_means(d_QC, 500, 7))
    for m, measure in enumerate(MEASURES):
        place = {"negatives": negatives, "size": size, "split": "dev", "measure": measure}
        own = [g for g in gains if {name: g[name] for name in place} == place]
        assert [g["row"] for g in own] == [*STRENGTH]
        assert [g["reference"] for g in own] == ([*STRENGTH] if earlier else ["BM25"] * len(STRENGTH))
        assert {g["reference_negatives"] for g in own} == {earlier}
        assert [g["mean"] for g in own] == pytest.approx(d_QRM[:, :, m].mean(axis=0), abs=2e-6)
        assert [g["low"] for g in own] == pytest.approx(low_C.reshape(p_RM.shape)[:, m], abs=2e-6)
        assert [g["high"] for g in own] == pytest.approx(high_C.reshape(p_RM.shape)[:, m], abs=2e-6)
        assert [g["p"] for g in own] == pytest.approx(p_RM[:, m], abs=2e-6)
        assert [g["p_holm"] for g in own] == pytest.approx(holm(p_RM[:, m : m + 1])[:, 0], abs=2e-6)
        assert [g["losses"] for g in own] == (d_QRM[:, :, m] < -1e-9).sum(axis=0).tolist()


def test_every_column_of_every_kind_of_measures_is_tested(widely: Path) -> None:
    gains = json.loads((widely / "gains.json").read_text())
    assert len(gains) == len(STRENGTH) * len(SIZES) * len(STEPS) * (2 * len(MEASURES) + len(HITS))
    page = (widely / "ablation.html").read_text()
    steps = {"BM25 negatives": "not fine-tuned", "+ mined": "BM25 negatives", "+ BM25": "BM25 alone"}
    assert re.findall("<h3>([^<]*), against ([^<]*)</h3>", page) == [
        (f"{after}, {size}", before) for after, before in steps.items() for size in ("10", "all")
    ]
    assert "paired randomisation, p by Holm over 3 comparisons" in page


def test_the_column_before_is_the_nearest_that_there_is(inputs: dict[str, Path], tmp_path: Path) -> None:
    kept = ("none", "mined")
    cells = [c.model_copy(update={"systems": {k: c.systems[k] for k in kept if k in c.systems}}) for c in wide().cells]
    ablation(config(cells=cells), **inputs, work=work(tmp_path / "out"))
    gains = json.loads((tmp_path / "out/gains.json").read_text())
    assert {(g["negatives"], g["reference_negatives"]) for g in gains} == {("mined", "none")}
    cells = [cell.model_copy(update={"systems": {"mined": "stage2"}}) for cell in cells]
    ablation(config(cells=cells), **inputs, work=work(tmp_path / "alone"))
    assert json.loads((tmp_path / "alone/gains.json").read_text()) == []
    assert "What each step brings" not in (tmp_path / "alone/ablation.html").read_text()


def test_columns_are_compared_over_the_seeds_of_both(widely: Path) -> None:
    """Parts that are joined may have made one column with more seeds than another."""
    data = ablation_files.read(widely)
    without = [
        replace(cell, runs={place: run for place, run in cell.runs.items() if one.seed == 2 or place[1] != "bm25"})
        for one, cell in zip(data.config.cells, data.cells, strict=True)
    ]
    alone = [
        replace(cell, runs=cell.runs if one.seed == 2 else {})
        for one, cell in zip(data.config.cells, data.cells, strict=True)
    ]
    mined = [[g for g in gains(replace(data, cells=cells)) if g["negatives"] == "mined"] for cells in (without, alone)]
    assert mined[0] == mined[1] != []


def test_bm25_that_differs_among_cells_is_no_reference(widely: Path) -> None:
    found = gains(replace(ablation_files.read(widely), first_stage={}))
    assert {g["negatives"] for g in found} == {"bm25", "mined"}


def test_rows_that_no_index_can_search_stand_alone_too(inputs: dict[str, Path], tmp_path: Path) -> None:
    cells = [cell.model_copy(update={"systems": {}}) for cell in config().cells]
    ablation(config(cells=cells), **inputs, work=work(tmp_path / "out"))
    assert (tmp_path / "out/table.md").read_text().startswith("| MRR@10, dev |\n|---|\n| BM25 |\n| <b>plain |\n")


def test_one_seed_keeps_its_evaluations_interval(inputs: dict[str, Path], tmp_path: Path) -> None:
    kept = [n for n, (_, size, seed) in enumerate(places()) if (size, seed) == (None, 1)]
    given = {f"evaluate_{new}": inputs[f"evaluate_{n}"] for new, n in enumerate(kept)}
    own = config(cells=[config().cells[n] for n in kept], test="t")
    ablation(own, inputs["collection"], work(tmp_path / "out"), **given)
    table = json.loads((tmp_path / "out/table.json").read_text())
    alone = [f for f in table if f["seed"] == 1]
    means = [{**f, "seed": 1} for f in table if f["seed"] is None and f["negatives"]]
    assert sorted(alone, key=str) == sorted(means, key=str)
    assert "paired t-test" in (tmp_path / "out/table.md").read_text()


def test_the_page_is_whole_escaped_and_the_same_each_time(made: Path, inputs: dict[str, Path], tmp_path: Path) -> None:
    page = (made / "ablation.html").read_text()
    assert "<script" not in page
    assert "<b>plain" not in page
    assert "An &lt;script&gt;" in page
    assert not re.search(r"""(src|href)=["']?(?!#)[a-z/]|@import|url\((?!#)""", page)
    for title in ("BM25 negatives", "Stage 1, loss of the first 4 epochs", "reranking of dev candidates"):
        assert title in page
    assert page.count("<svg") == 6
    drawn = {"sizes-bm25", "sizes-mined", "first-epochs", "training-dev", "training-loss", "attention"}
    assert {path.name for path in (made / "pictures").iterdir()} == {f"{name}.png" for name in drawn}
    assert "entropy (nats)" in page
    assert "cocondenser run tiny --set stage1.seed=2" in page
    ablation(config(), **inputs, work=work(tmp_path / "again"))
    for name in ("ablation.html", "table.json", "table.csv", "table.md", "tests.json", "gains.json"):
        assert (tmp_path / "again" / name).read_bytes() == (made / name).read_bytes()


def test_the_page_tells_which_cells_would_be_trained_anew(made: Path, inputs: dict[str, Path], tmp_path: Path) -> None:
    """A checkpoint that is given as the initial model is another artifact than the one that it was made as."""
    assert "trains anew" not in (made / "ablation.html").read_text()
    cells = [c.model_copy(update={"start": "good"} if c.row == "learned" else {}) for c in config().cells]
    ablation(config(cells=cells), **inputs, work=work(tmp_path / "out"))
    page = (tmp_path / "out/ablation.html").read_text()
    assert page.count("(trains anew; DIR: the pre-trained checkpoint of good)") == len(SIZES) * len(SEEDS)


def test_a_row_without_a_run_has_no_figure(inputs: dict[str, Path], tmp_path: Path) -> None:
    cells = [cell.model_copy(update={"systems": {}} if cell.row == "learned" else {}) for cell in config().cells]
    ablation(config(cells=cells), **inputs, work=work(tmp_path / "out"))
    assert "| learned | – | – | – | – |" in (tmp_path / "out/table.md").read_text()
    assert "No index can search learned" in (tmp_path / "out/ablation.html").read_text()
    assert "* differs from <b>plain: paired randomisation, p < .05.\n" in (tmp_path / "out/table.md").read_text()


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (set(), "p < .05 by Holm over 2 comparisons."),
        ({("good", "bm25"), ("learned", "mined")}, "p < .05."),
        ({("good", "mined")}, "p < .05 by Holm over 1 to 2 comparisons."),
        ({("<b>plain", "bm25"), ("<b>plain", "mined")}, "means over 2 seeds of fine-tuning."),
    ],
)
def test_the_note_counts_the_comparisons_that_were_made(inputs: dict[str, Path], without, said: str) -> None:
    cells = []
    for cell in config().cells:
        systems = {kind: run for kind, run in cell.systems.items() if (cell.row, kind) not in without}
        cells.append(cell.model_copy(update={"systems": systems}))
    own = config(cells=cells)
    data = ablation_data.collect(own, inputs["collection"], inputs, silent)
    assert ablation_table.note(own, ablation_table.tests(data)).endswith(said)


def test_all_is_made_of_three_files(made: Path, tmp_path: Path) -> None:
    for name in ablation_files.FILES:
        shutil.copy(made / name, tmp_path)
    again = tmp_path / "again"
    again.mkdir()
    render(ablation_files.read(tmp_path), again)
    files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
    assert len(files) == 6 + 3 + 6
    assert sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file()) == files
    for name in files:
        assert (again / name).read_bytes() == (made / name).read_bytes()


def test_the_files_hold_each_question(made: Path, inputs: dict[str, Path]) -> None:
    table = pd.read_parquet(made / "questions.parquet")
    assert [*table.columns] == ["row", "negatives", "size", "seed", "split", "query_id", *MEASURES, *HITS]
    for n, (row, size, seed) in enumerate(places()):
        of_size = table["size"].isna() if size is None else table["size"] == size
        own = table[(table.row == row) & of_size & (table.seed == seed) & (table.split == "dev")]
        assert {*own.negatives} == {"bm25", "mined"}
        assert (own[own.negatives == "mined"]["AP"].to_numpy() == values(inputs, n, "stage2", "AP")).all()
    assert {*table[table.negatives.isna()].row} == {"BM25"}


@pytest.mark.parametrize("name", ablation_files.FILES)
def test_damaged_files_are_told(made: Path, tmp_path: Path, name: str) -> None:
    for file in ablation_files.FILES:
        shutil.copy(made / file, tmp_path)
    for damage in (b"", b"[1]", (made / name).read_bytes()[:-300]):
        (tmp_path / name).write_bytes(damage)
        with pytest.raises(InputError, match=re.escape(f"{tmp_path / name}: cannot be read")):
            ablation_files.read(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=re.escape(f"{tmp_path / name}: no such file")):
        ablation_files.read(tmp_path)


def test_unknown_measures_are_refused() -> None:
    assert config(measures=["MRR@10", "hits@5"]).measures == ["RR@10", "hits@5"]
    with pytest.raises(ValidationError, match=r"there are RR@10, RR@100, nDCG@10, .* hits@100"):
        config(measures=["RR@11"])


def changed(evaluation: Path, out: Path, kept) -> Path:
    """An evaluation whose questions are those that `kept` tells, of its table and its splits."""
    out.mkdir()
    metrics = json.loads((evaluation / "metrics.json").read_text())
    table = pd.read_parquet(evaluation / "per_query.parquet")
    table = table[kept(table)]
    metrics["splits"] = {split: metrics["splits"][split] for split in table.split.unique()}
    (out / "metrics.json").write_text(json.dumps(metrics))
    table.to_parquet(out / "per_query.parquet")
    return out


@pytest.mark.parametrize(
    ("kept", "split"),
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
    inputs: dict[str, Path], tmp_path: Path, kept, split: str, n: int, cells: str
) -> None:
    other = changed(inputs[f"evaluate_{n}"], tmp_path / "other", kept)
    with pytest.raises(InputError, match=f"^{cells} were measured on different questions of {split}: "):
        ablation_data.collect(config(), inputs["collection"], inputs | {f"evaluate_{n}": other}, silent)


def test_questions_of_one_kind_alone_are_told(inputs: dict[str, Path], tmp_path: Path) -> None:
    """Answers that one cell's evaluation lacks."""
    other = changed(inputs["evaluate_1"], tmp_path / "other", lambda table: table.split != "")
    table = pd.read_parquet(other / "per_query.parquet")
    table.assign(**dict.fromkeys(HITS, None)).to_parquet(other / "per_query.parquet")
    with pytest.raises(InputError, match="different questions of test: "):
        ablation_data.collect(config(), inputs["collection"], inputs | {"evaluate_1": other}, silent)
