"""Joining the tables of parts of an ablation that were built separately."""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ablated import looked, trained, undrawn
from searched import write_collection

from pipeline.ablation import files as ablation_files
from pipeline.ablation.ablation import render
from pipeline.ablation.config import AblationConfig, CellConfig
from pipeline.ablation.data import collect
from pipeline.ablation.join import join_folders
from pipeline.data.parquet import read_parquet, write_parquet
from pipeline.errors import InputError
from pipeline.evaluate.measures import HITS, MEASURES
from pipeline.evaluate.significance.bootstrap import summary
from pipeline.runtime.work import silent

QUESTIONS = 12
ROWS, SIZES, SEEDS = ("plain", "good", "learned"), (10, None), (1, 2)
SYSTEMS = {"bm25": "stage1", "mined": "stage2", "fusion": "fusion"}
Place = tuple[str, int | None, int]
PLACES: list[Place] = [(row, size, seed) for row in ROWS for size in SIZES for seed in SEEDS]


def evaluation(
    out: Path, place: Place, bm25: int = 0, questions: int = QUESTIONS, splits: Sequence[str] = ("dev", "test")
) -> Path:
    """The evaluation of a cell, with random values from its place; a row has one model before fine-tuning."""
    out.mkdir()
    row, size, seed = place
    strengths = {"bm25": bm25, "pretrained": ROWS.index(row)}
    strengths |= {name: 100 + 10 * PLACES.index((row, size, seed)) + n for n, name in enumerate(SYSTEMS.values())}
    summaries, tables = {}, []
    for s, split in enumerate(splits):
        shape = questions, len(MEASURES) + len(HITS)
        values = {name: np.random.default_rng([drawn, s]).random(shape) for name, drawn in strengths.items()}
        judged = {name: values_QM[:, : len(MEASURES)] for name, values_QM in values.items()}
        answered = {name: values_QM[: questions // 2, len(MEASURES) :] for name, values_QM in values.items()}
        summaries[split] = {
            "systems": summary(judged, MEASURES, [], 100, 0)["systems"],
            "answers": {"systems": summary(answered, HITS, [], 100, 0)["systems"]},
        }
        for name, values_QM in values.items():
            table = pd.DataFrame(values_QM, columns=[*MEASURES, *HITS])
            table.loc[questions // 2 :, [*HITS]] = np.nan
            table.insert(0, "query_id", [f"{split}{q}" for q in range(questions)])
            tables.append(table.assign(split=split, system=name))
    (out / "metrics.json").write_text(json.dumps({"labels": {"bm25": "BM25"}, "splits": summaries}))
    pd.concat(tables).to_parquet(out / "per_query.parquet")
    return out


MakePart = Callable[..., Path]


@pytest.fixture(scope="module", autouse=True)
def _pictures_are_not_drawn() -> Iterator[None]:
    with undrawn():
        yield


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> MakePart:
    """A function that writes the data of a part from its cells and its changed settings."""
    collection = write_collection(
        tmp_path_factory.mktemp("of") / ("c" * 64),
        [("p0", "p0", "", "text")],
        [(f"train{q}", "train", "question") for q in range(40)],
        [("train", f"train{q}", "p0", 1) for q in range(40)],
    )

    @cache
    def evaluated(place: Place, **changes) -> Path:
        name = f"{PLACES.index(place):064x}"
        return evaluation(tmp_path_factory.mktemp("evaluations") / ("e" + name[1:]), place, **changes)

    def artifact(keeps: Callable[[Place], bool] = lambda place: True, **changes) -> Path:
        folder = tmp_path_factory.mktemp("part")
        columns = changes.pop("systems", SYSTEMS)
        measured = {name: changes.pop(name) for name in ("bm25", "questions", "splits") if name in changes}
        places = [place for place in PLACES if keeps(place)]
        inputs, cells = {}, []
        for n, place in enumerate(places):
            row, size, seed = place
            name = f"{PLACES.index(place):064x}"
            (folder / name).mkdir()
            inputs[f"evaluate_{n}"] = evaluated(place, **measured)
            drawn = (size, seed) == (places[-1][1], places[0][2])
            if drawn:
                inputs[f"stage1_{n}"] = trained(
                    folder / name / ("a" + name[1:]), PLACES.index(place) + 1 / np.arange(1, 21)
                )
                inputs[f"attention_{n}"] = looked(folder / name / ("b" + name[1:]), float(PLACES.index(place)))
            systems = ({"none": "pretrained"} if drawn else {}) | columns
            command = ["cocondenser", "run", "tiny", "--set", f"stage1.seed={seed}"]
            cells.append(
                CellConfig(row=row, size=size, seed=seed, systems=systems, epochs=4, command=command, start=None)
            )
        fields = {"title": "All", "reference": places[0][0], "measures": ["RR@10", "hits@5"], "test": "randomisation"}
        config = AblationConfig(**{**fields, "samples": 100, "seed": 7, **changes}, cells=cells)
        (folder / "out").mkdir()
        ablation_files.write_data(collect(config, collection, inputs, silent), folder / "out")
        return folder / "out"

    return artifact


@pytest.fixture(scope="module")
def whole(make: MakePart, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifact of all cells."""
    folder = tmp_path_factory.mktemp("whole")
    render(ablation_files.read_data(make()), folder)
    return folder


@pytest.fixture(scope="module")
def first(make: MakePart) -> Path:
    """The first row alone."""
    return make(lambda place: place[0] == "plain")


@pytest.fixture(scope="module")
def others(make: MakePart) -> Path:
    return make(lambda place: place[0] != "plain")


def check_same(out: Path, whole: Path) -> None:
    """All files, byte for byte."""
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    assert sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file()) == files
    for name in files:
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name


def test_rows_that_were_trained_separately_give_the_same_table(
    first: Path, others: Path, whole: Path, tmp_path: Path
) -> None:
    """Copies of only the data files are enough."""
    for folder in (first, others):
        (tmp_path / folder.parent.name).mkdir()
        for name in ablation_files.FILES:
            shutil.copy(folder / name, tmp_path / folder.parent.name)
    parts = [tmp_path / folder.parent.name for folder in (first, others)]
    config = join_folders(parts, tmp_path / "new" / "out", None)
    assert [cell.row for cell in config.cells] == [row for row, *_ in PLACES]
    check_same(tmp_path / "new" / "out", whole)


@pytest.mark.parametrize("part", [lambda place: place[1] == 10, lambda place: place[2] == 1], ids=["sizes", "seeds"])
def test_sizes_and_seeds_may_be_trained_separately_too(make: MakePart, whole: Path, tmp_path: Path, part) -> None:
    join_folders([make(part), make(lambda place: not part(place))], tmp_path / "out", None)
    check_same(tmp_path / "out", whole)


def test_rows_of_different_seeds_keep_their_curves(make: MakePart, tmp_path: Path) -> None:
    parts = [make(lambda place, only=only: place == only) for only in (("plain", None, 1), ("good", None, 2))]
    for n, ordered in enumerate((parts, parts[::-1])):
        join_folders(ordered, tmp_path / str(n), None)
        alone = [curves for part in ordered for curves in json.loads((part / "curves.json").read_text())]
        assert json.loads((tmp_path / str(n) / "curves.json").read_text()) == alone
        assert None not in alone


@pytest.mark.parametrize("with_cuts", ["both", "first", "second", "neither"])
def test_parts_without_the_lengths_of_cut_lists_are_joined_too(
    first: Path, others: Path, tmp_path: Path, with_cuts: str
) -> None:
    """Earlier versions wrote such parts."""
    parts = {"first": first, "second": others}
    for name, part in parts.items():
        parts[name] = damaged(part, tmp_path / name, cut if with_cuts in ("both", name) else without_cuts)
    join_folders([*parts.values()], tmp_path / "out", None)
    text = (tmp_path / "out/table.md").read_text()
    rows = {"both": ROWS, "first": ROWS[:1], "second": ROWS[1:], "neither": ()}[with_cuts]
    assert ("no list is longer than 7; RR@10 is RR@7 there." in text) == bool(rows)
    table = json.loads((tmp_path / "out/table.json").read_text())
    assert {figure["row"] for figure in table if figure.get("cut_at") == 7} == {*rows, *(["BM25"] if rows else [])}


def cut(whole: dict) -> None:
    for run in (run for runs in whole["runs"] for run in runs):
        run["cut_at"] = 7
    whole["first_stage"]["cut_at"] = {"dev": 7, "test": 7}


def without_cuts(whole: dict) -> None:
    for part in (whole["first_stage"], *(run for runs in whole["runs"] for run in runs)):
        part.pop("cut_at", None)


def test_joins_can_be_joined(make: MakePart, first: Path, whole: Path, tmp_path: Path) -> None:
    good, learned = (make(lambda place, row=row: place[0] == row) for row in ROWS[1:])
    join_folders([first, good], tmp_path / "two", None)
    join_folders([tmp_path / "two", learned], tmp_path / "three", None)
    check_same(tmp_path / "three", whole)


def test_saved_figures_can_be_joined_as_a_part(first: Path, others: Path, whole: Path, tmp_path: Path) -> None:
    """Alone and with other parts."""
    all_of_it, some = tmp_path / "all.parquet", tmp_path / "some.parquet"
    join_folders([first, others], tmp_path / "both", None, all_of_it)
    join_folders([all_of_it], tmp_path / "again", None)
    check_same(tmp_path / "again", whole)
    join_folders([first], tmp_path / "one", None, some)
    join_folders([some, others], tmp_path / "joined", None, tmp_path / "equal.parquet")
    check_same(tmp_path / "joined", whole)
    assert (tmp_path / "equal.parquet").read_bytes() == all_of_it.read_bytes()


def test_the_lengths_of_cut_lists_are_saved(first: Path, tmp_path: Path) -> None:
    part = damaged(first, tmp_path / "part", cut)
    join_folders([part], tmp_path / "out", None, tmp_path / "kept.parquet")
    join_folders([tmp_path / "kept.parquet"], tmp_path / "again", None)
    check_same(tmp_path / "again", tmp_path / "out")


def test_damaged_saved_figures_are_reported_in_a_line(first: Path, tmp_path: Path) -> None:
    join_folders([first], tmp_path / "out", None, tmp_path / "kept.parquet")
    table = read_parquet(tmp_path / "kept.parquet")
    (record,) = table.to_pylist(maps_as_pydicts="strict")
    for change in (
        lambda: record["questions"].pop(),
        lambda: record["questions"][0]["outcomes"].pop(),
        lambda: record["outcomes"].clear(),
        lambda: record["runs"][0][0]["figures"]["RR@10"].update(mean=0.123),
        lambda: record["curves"].clear(),
        lambda: record.update(config="{"),
    ):
        change()
        write_parquet(pa.Table.from_pylist([record], table.schema), tmp_path / "damaged.parquet")
        message = refused([tmp_path / "damaged.parquet"], tmp_path / "new")
        assert message.startswith(f"{tmp_path / 'damaged.parquet'}: cannot be read ")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "kept.parquet").read_bytes()[:-300])
    for other in (tmp_path / "cut.parquet", first / "questions.parquet"):
        assert refused([other], tmp_path / "new").startswith(f"{other}: cannot be read ")


def test_a_path_where_figures_cannot_be_saved_is_refused_first(first: Path, tmp_path: Path) -> None:
    (tmp_path / "folder.parquet").mkdir()
    for keep in (tmp_path / "kept.csv", tmp_path / "absent/kept.parquet", tmp_path / "folder.parquet"):
        with pytest.raises(InputError, match=re.escape(f"--keep {keep}: ")):
            join_folders([first], tmp_path / "out", None, keep)
    assert not (tmp_path / "out").exists()


def test_rows_are_in_the_requested_order_and_against_any_of_them(first: Path, others: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()  # an empty folder is accepted
    config = join_folders([others, first], tmp_path / "out", "learned")
    assert list(dict.fromkeys(cell.row for cell in config.cells)) == ["good", "learned", "plain"]
    tests = json.loads((tmp_path / "out/tests.json").read_text())
    assert {(t["row"], t["reference"]) for t in tests} == {("good", "learned"), ("plain", "learned")}
    join_folders([others, first], tmp_path / "again", None)
    assert "differs from good" in (tmp_path / "again/table.md").read_text()


def test_missing_cells_are_dashes(first: Path, make: MakePart, tmp_path: Path) -> None:
    small = make(lambda place: place == ("good", 10, 2))
    join_folders([first, small], tmp_path / "out", None)
    text = (tmp_path / "out/table.md").read_text()
    assert re.match(r"\| not fine-tuned \| BM25 negatives, 10 \| BM25 negatives, all ", text.split("dev ", 1)[1])
    good = next(line.split(" | ") for line in text.splitlines() if line.startswith("| good "))
    assert [cell.startswith("–") for cell in good[1:]] == [False, *[False, True] * 3]
    assert "means over 1 to 2 seeds of fine-tuning" in text
    seeds = (tmp_path / "out/ablation.html").read_text().partition("<h2>Seeds</h2>")[2]
    assert "–" in seeds.partition("</table>")[0]


def refused(parts: Sequence[Path], out: Path, reference: str | None = None) -> str:
    with pytest.raises(InputError) as error:
        join_folders(parts, out, reference)
    assert not out.exists() or out.is_file() or [*out.iterdir()] == [out / "mine"]
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"measures": ["RR@10"]}, "different measures: RR@10, hits@5 and RR@10"),
        ({"test": "t"}, "different test: randomisation and t"),
        ({"samples": 200}, "different samples: 100 and 200"),
        ({"seed": 8}, "different test_seed: 7 and 8"),
        ({"splits": ("dev",)}, "measured on different questions of test"),
        ({"questions": 14}, "measured on different questions of dev"),
        ({"bm25": 50}, "figures of BM25 differ: not the same collection or settings"),
    ],
)
def test_parts_with_different_settings_are_refused(
    first: Path, make: MakePart, tmp_path: Path, changes: dict, problem: str
) -> None:
    other = make(lambda place: place == ("good", None, 1), **changes)
    assert refused([first, other], tmp_path / "out") == f"{first} and {other}: {problem}"


def test_another_number_of_training_questions_is_refused(first: Path, others: Path, tmp_path: Path) -> None:
    other = shutil.copytree(others, tmp_path / "other")
    text = (other / "cells.json").read_text()
    (other / "cells.json").write_text(text.replace('"training_questions": 40', '"training_questions": 41'))
    assert refused([first, other], tmp_path / "out") == f"{first} and {other}: different training questions: 40 and 41"


def test_a_cell_that_two_parts_have_is_refused(first: Path, make: MakePart, tmp_path: Path) -> None:
    again = make(lambda place: place in (("plain", 10, 2), ("good", 10, 2)))
    problem = "plain, 10 questions, seed 2 is in both"
    assert refused([first, again], tmp_path / "out") == f"{first} and {again}: {problem}"
    assert refused([first, first], tmp_path / "out").endswith("plain, 10 questions, seed 1 is in both")


def test_seeds_of_different_experiments_are_refused(make: MakePart, tmp_path: Path) -> None:
    """Their mean would describe neither of them."""
    one, two = (make(lambda place, seed=seed: place[2] == seed) for seed in SEEDS)
    longer = damaged(two, tmp_path / "longer", lambda whole: whole["config"]["cells"][0]["command"].append("a.b=9"))
    problem = "cells of plain, 10 questions differ in more than their seeds: a.b=9"
    assert refused([one, longer], tmp_path / "out").endswith(problem)
    started = damaged(two, tmp_path / "started", lambda whole: whole["config"]["cells"][1].update(start="good"))
    problem = "cells of plain, all questions differ in more than their seeds: start: None, start: good"
    assert refused([one, started], tmp_path / "out").endswith(problem)


def test_bm25_joined_with_other_stages_is_refused(first: Path, make: MakePart, tmp_path: Path) -> None:
    """Both would be in one column."""
    unmined = make(lambda place: place[0] == "good", systems={"bm25": "stage1", "fusion": "fusion"})
    problem = f"{unmined} and {first}: BM25 is fused with stage 1 in the first and with stage 2 in the second"
    assert refused([first, unmined], tmp_path / "out") == problem


def test_an_unknown_reference_is_refused(first: Path, others: Path, tmp_path: Path) -> None:
    message = refused([first, others], tmp_path / "out", "best")
    assert message == "--reference best: no such row; known are plain, good, learned"
    assert refused([first], tmp_path / "out", reference="") == "--reference : no such row; known are plain"
    part = damaged(first, tmp_path / "part", lambda whole: whole["config"].update(reference="best"))
    assert refused([part], tmp_path / "out") == f"{part}: reference best: no such row; known are plain"


def test_folders_without_the_files_are_refused(first: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    problem = f"{tmp_path / 'empty'}: not the table of an ablation (it has no cells.json), or one of an earlier version"
    assert refused([first, tmp_path / "empty"], tmp_path / "out").startswith(problem)
    assert refused([tmp_path / "absent"], tmp_path / "out") == f"{tmp_path / 'absent'}: no such folder"
    file = first / "cells.json"
    assert refused([file], tmp_path / "out") == f"{file}: a file, not a folder"
    shutil.copytree(first, tmp_path / "kept/42")
    assert refused([tmp_path / "kept"], tmp_path / "out").endswith(f"but holds some: use {tmp_path / 'kept/42'}")


def damaged(part: Path, out: Path, damage: Callable[[dict], object]) -> Path:
    """A copy whose cells.json was changed."""
    shutil.copytree(part, out)
    whole = json.loads((out / "cells.json").read_text())
    damage(whole)
    (out / "cells.json").write_text(json.dumps(whole))
    return out


@pytest.mark.parametrize(
    ("damage", "pattern"),
    [
        (lambda whole: whole["runs"][0][0]["figures"].update({"RR@10": None}), r"runs\.0\.0\.figures\.RR@10"),
        (lambda whole: whole["runs"][0][0]["figures"]["RR@10"].pop("low"), r"runs\.0\.0\.figures\.RR@10\.low"),
        (lambda whole: whole["runs"][0][0]["figures"]["RR@10"].update(mean=0.123), "questions is not 0.123"),
        (lambda whole: whole["runs"].pop(), "different numbers of cells"),
        (lambda whole: whole.update(collections=None), "collections"),
        (lambda whole: whole.update(training_questions="many"), "training_questions"),
        (lambda whole: whole["config"].update(samples=10**12), r"config\.samples"),
        (lambda whole: whole["runs"][0][0]["figures"]["RR@10"].update(low=0.9, high=0.1), "is above high"),
        (lambda whole: whole["runs"][0][0]["figures"].pop("RR@10"), "RR@10 of .*: cells.json has no figure"),
        (lambda whole: whole["config"]["cells"][0].update(systems={}), "runs that are not in its systems"),
        (lambda whole: whole["runs"][0].pop(), "questions of plain, .*, but cells.json has no such run"),
        (lambda whole: whole["runs"][0].append(whole["runs"][0][0]), "cells.json has plain, .* twice"),
        (lambda whole: whole["first_stage"]["figures"].clear(), "questions of BM25, dev, but cells.json has no such"),
        (
            lambda whole: whole["runs"][0][0]["figures"].update(hits=dict.fromkeys(("mean", "low", "high"), 0.5)),
            "hits of .*: no such measure",
        ),
    ],
)
def test_damaged_cells_are_reported_in_a_line(first: Path, tmp_path: Path, damage, pattern: str) -> None:
    message = refused([damaged(first, tmp_path / "part", damage)], tmp_path / "out")
    assert re.search(rf"part/(cells\.json|questions\.parquet): cannot be read .*{pattern}", message)
    assert re.search(pattern, message)
    assert "`cocondenser ablation run` builds it again" in message


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda table: table.sort_values("query_id", kind="stable"), "are not consecutive"),
        (lambda table: table[table["query_id"] != "test3"], "the mean of its questions is not"),
        (lambda table: table.assign(**{"RR@10": "a"}), "different columns or types: RR@10"),
        (lambda table: table.drop(columns="AP"), "different columns or types: AP"),
        (lambda table: table[table["row"] != "plain"], "no questions of plain"),
    ],
)
def test_damaged_questions_are_reported_in_a_line(first: Path, tmp_path: Path, damage, problem: str) -> None:
    part = shutil.copytree(first, tmp_path / "part")
    table = pq.read_table(part / "questions.parquet")
    frame = damage(table.to_pandas(types_mapper=pd.ArrowDtype))
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), part / "questions.parquet")
    assert problem in refused([part], tmp_path / "out")


def test_a_part_without_the_questions_of_one_run_is_refused(first: Path, tmp_path: Path) -> None:
    """Also if its figures are those of the remaining questions."""
    data = ablation_files.read_data(first)
    run = data.cells[0].runs["test", "bm25"]
    data.cells[0].runs["test", "bm25"] = replace(run, questions=run.questions.iloc[:0], figures={})
    (tmp_path / "part").mkdir()
    ablation_files.write_data(data, tmp_path / "part")
    assert "no questions of plain" in refused([tmp_path / "part"], tmp_path / "out")


def test_damaged_curves_are_reported_in_a_line(first: Path, tmp_path: Path) -> None:
    cells = len(json.loads((first / "curves.json").read_text()))
    wrong = (
        '{"loss": [[1.0], []], "dev": null, "entropy": null}',
        '{"loss": null, "dev": null, "entropy": {"a": [NaN]}}',
    )
    for n, text in enumerate(("[]", "{}", *(f"[{', '.join([one] * cells)}]" for one in wrong))):
        part = shutil.copytree(first, tmp_path / str(n))
        (part / "curves.json").write_text(text)
        assert refused([part], tmp_path / "out").startswith(f"{part}/curves.json: cannot be read ")


def test_an_impossible_out_is_reported(first: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"^--out .*file/out: "):
        join_folders([first], tmp_path / "file" / "out", None)


def test_a_link_to_an_empty_folder_is_accepted(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    join_folders([first], tmp_path / "link", None)
    assert (tmp_path / "empty/table.md").is_file()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match=r"^--out \.: the current folder cannot be replaced; use another$"):
        join_folders([first], Path(), None)


def test_existing_files_are_never_overwritten(first: Path, others: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("")
    (tmp_path / "file").write_text("")
    for name in ("out", "file"):
        message = refused([first, others], tmp_path / name)
        assert message == f"--out {tmp_path / name}: must be a new or empty folder"
