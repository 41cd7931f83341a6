"""Parts of an ablation that do not go together or are damaged, and places that cannot be written, in one line."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ablation_parts import SEEDS, MakePart, damaged

from pipeline.ablation import files as ablation_files
from pipeline.ablation.join import join_folders
from pipeline.data.parquet import read_parquet, write_parquet
from pipeline.errors import InputError

pytestmark = pytest.mark.usefixtures("pictures_are_not_drawn")


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
