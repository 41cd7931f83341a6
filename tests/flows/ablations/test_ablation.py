"""Ablations: their files, what their cells share, and what is planned."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from three_rows import ROWS, own

from artifacts.store import Store
from flows.ablations import file
from flows.ablations.ablation import Ablation, cells
from flows.ablations.choice import Choice, apply_choice
from flows.ablations.file import load
from flows.ablations.plan import RowPlan, plan_rows, total
from flows.ablations.shared_nodes import SharedNodes, merge_cells
from flows.cli.running.ablation import plan_table
from flows.dag import nodes
from flows.graph.plan import plan
from flows.graph.selection import up_to
from flows.recipes.recipe import resolve
from pipeline.ablation.page import command as shown_command
from pipeline.errors import InputError
from tasks.terminal import print_whole


def by_stage(cells: SharedNodes) -> dict[str, int]:
    stages = [node.stage for node in cells.nodes]
    return {stage: stages.count(stage) for stage in dict.fromkeys(stages)}


@pytest.mark.parametrize("name", ["base", "standard", *file.listed(), "tiny"])
def test_every_file_is_complete_or_reports_the_missing_recipe(name: str) -> None:
    if name in ("base", "standard"):
        assert name not in file.listed()
        with pytest.raises(InputError, match=rf"{name}\.yaml: recipe: .* is missing"):
            load(name)
        return
    ablation = load(name)
    merged = merge_cells(ablation, [*ablation.rows])
    seen: set[str] = set()
    for node in merged.nodes:
        assert node.name not in seen
        assert {source.name for source in node.inputs.values() if source} <= seen
        seen.add(node.name)
    assert "evaluate" not in seen, "the record of a run with this node would answer searches"


def test_the_ablations_of_the_papers_have_their_rows() -> None:
    rows = ["BERT", "ICT", "Condenser", "Condenser continued", "coCondenser", "contrastive only", "RetroMAE"]
    for name in ("marco", "low-data"):
        assert [*load(name).rows] == rows
    marco = {cell.row: cell.recipe for cell in cells(load("marco"))}
    same = ("condenser", "cocondenser", "ict", "stage1", "rounds")
    for row, recipe in (("BERT", "marco-bert"), ("ICT", "marco-ict"), ("RetroMAE", "marco-retromae")):
        for section in same:
            assert getattr(marco[row], section) == getattr(resolve(recipe), section), (row, section)
    assert marco["coCondenser"] == resolve("marco", ["attention.corpus=collection"])
    continued = resolve("continued")
    assert marco["Condenser continued"].condenser == continued.condenser
    assert marco["Condenser continued"].pretraining == continued.pretraining
    assert [cell.recipe.train_subset.queries for cell in cells(load("low-data"), ["BERT"])] == [1000, 10000, None]
    assert [cell.recipe.rounds.number for cell in cells(load("low-data"), ["BERT"])] == [0, 0, 0]
    low = cells(load("low-data"), ["coCondenser"])[0].recipe
    assert low.stage1 == resolve("low-data").stage1


def test_a_stage_that_cells_share_is_one_task(three: Ablation) -> None:
    merged = merge_cells(three, [*three.rows])
    counts = by_stage(merged)
    once = {"ingest": 1, "tokenizer": 1, "tokens": 1, "bm25": 1, "initial": 1, "condenser": 1, "cocondenser": 2}
    # Three pre-trained models are encoded and searched, and six of stage 1.
    assert counts == {**once, "encode": 9, "index": 9, "search": 9, "finetune": 6, "evaluate": 6, "ablation": 1}
    names = [node.name for node in merged.nodes]
    assert {"condenser", "cocondenser (coCondenser)", "cocondenser (contrastive only)"} <= {*names}
    assert "encode-pretrained (Condenser)" in names
    assert "stage1 (contrastive only, seed 2)" in names
    assert {"evaluate (coCondenser, seed 1)", "evaluate (Condenser, seed 2)"} <= {*names}
    table = merged.nodes[-1]
    assert [name for name in table.inputs if name.startswith("evaluate")] == [f"evaluate_{n}" for n in range(6)]
    assert [name for name in table.inputs if name.startswith("stage1")] == ["stage1_0", "stage1_2", "stage1_4"]


def test_a_cell_alone_has_the_same_nodes(three: Ablation, tmp_path: Path) -> None:
    """So `cocondenser run` of its recipe finds them all in the store."""
    parts = {part.node.name: part.node for part in merge_cells(three, [*three.rows]).parts}
    store = Store(tmp_path / "store")
    for needs in merge_cells(three, [*three.rows]).needs:
        alone = up_to(nodes(needs.cell.recipe), "evaluate")
        assert [node.name for node in alone] == [*needs.parts]
        for node in alone:
            part_node = parts[needs.parts[node.name]]
            assert (part_node.stage, part_node.config, part_node.shared) == (node.stage, node.config, node.shared)
            inputs = {name: source and needs.parts[source.name] for name, source in node.inputs.items()}
            assert inputs == {name: source and source.name for name, source in part_node.inputs.items()}
    assert {step.action for step in plan(store, parts.values())} == {"build", "unknown"}


def test_seeds_change_only_fine_tuning(three: Ablation) -> None:
    one, two = (cell.recipe for cell in cells(three, ["coCondenser"]))
    differing = {name for name in type(one).model_fields if getattr(one, name) != getattr(two, name)}
    assert differing == {"stage1", "stage2"}
    assert (one.stage1.seed, one.stage2.seed) == (1, 2)
    assert one.train_subset == two.train_subset
    (plain,) = cells(apply_choice(load("marco"))[0], ["coCondenser"])
    # The recipes' own seed gives the recipes' own artifacts.
    assert plain.recipe == resolve("marco", ["attention.corpus=collection"])


def test_the_machines_settings_change_no_table(three: Ablation) -> None:
    def table(*settings: str) -> object:
        return merge_cells(*apply_choice(three, Choice(set=[*settings]))).nodes[-1].config

    assert table("machine.device=cpu", "tracking.tensorboard=false") == table() != table("stage1.epochs=2")


def test_the_folder_of_the_data_changes_no_table(tmp_path: Path) -> None:
    def table(folder: str) -> object:
        text = f"set: ['ingest={{reader: beir, folder: {folder}, document_key: doc, metadata: []}}']\n"
        return merge_cells(*apply_choice(own(tmp_path, ROWS + text))).nodes[-1].config

    assert table("data/notes") == table("/home/me/notes") != table("data/others")


def test_the_folders_of_the_pretraining_texts_change_no_table(tmp_path: Path) -> None:
    def table(folder: str) -> object:
        parts = ", ".join(
            f"{{reader: beir, folder: {name}, document_key: doc, metadata: []}}" for name in (folder, "data/b")
        )
        text = f"set: ['pretraining={{reader: several, parts: [{parts}]}}']\n"
        return merge_cells(*apply_choice(own(tmp_path, ROWS + text))).nodes[-1].config

    assert table("data/notes") == table("/home/me/notes") != table("data/others")


def test_stage_2_is_checked_only_where_it_runs(three: Ablation) -> None:
    longer = three.model_copy(update={"set": ["stage1.passage_tokens=99", "encode.passage_tokens=99"]})
    assert cells(longer)[0].recipe.encode.passage_tokens == 99
    with pytest.raises(InputError, match=r"encode\.passage_tokens \(99\) is more than stage2\.passage_tokens"):
        cells(longer.model_copy(update={"negatives": ["mined"]}))


def test_the_page_shows_the_command_of_each_cell(tmp_path: Path) -> None:
    """Also for a user's own recipe, which no command knows by name. The command is quoted for a shell."""
    (tmp_path / "mine.yaml").write_text("extends: marco\nstage1: {epochs: 9}\nencoder: {question_prefix: 'query: '}\n")
    text = ROWS.replace("recipe: tiny", "recipe: mine.yaml") + "set: [stage1.batch_order=sequential]\n"
    ablation = own(tmp_path, text)
    merged = merge_cells(ablation, [*ablation.rows])
    for needs, cell in zip(merged.needs, merged.nodes[-1].config.cells, strict=True):
        words = shlex.split(shown_command(cell))
        assert words[:2] == ["cocondenser", "run"]
        resolved = resolve(words[2], [word for flag, word in pairwise(words) if flag == "--set"])
        ends = ("evaluate", "search-stage1")
        assert [up_to(nodes(resolved), end) for end in ends] == [up_to(nodes(needs.cell.recipe), end) for end in ends]


def test_sizes_and_negatives_select_the_cells(three: Ablation) -> None:
    sized, rows = apply_choice(three, Choice(sizes=[10, None], rows=["Condenser"], reference="Condenser"))
    sized_cells = cells(sized, rows)
    assert [(cell.size, cell.recipe.train_subset.queries) for cell in sized_cells] == [
        (10, 10),
        (10, 10),
        (None, None),
        (None, None),
    ]
    assert by_stage(merge_cells(sized, rows))["condenser"] == 1
    assert "stage1 (10 questions, seed 1)" in [node.name for node in merge_cells(sized, rows).nodes]
    table = (
        merge_cells(*apply_choice(three, Choice(negatives=["bm25", "mined"], seeds=[1], rows=["coCondenser"])))
        .nodes[-1]
        .config
    )
    assert table.cells[0].systems == {"bm25": "stage1", "mined": "stage2"}
    assert merge_cells(three, ["coCondenser"]).nodes[-1].config.cells[0].systems == {"bm25": "stage1"}


def test_systems_that_need_no_further_stage_are_columns_too(three: Ablation) -> None:
    """The table shows every system that the cells evaluate in any case."""
    fields = {"negatives": ["none", "bm25", "fusion"], "seeds": [1, 2], "sizes": [10, None]}
    wide = three.model_copy(update=fields)
    merged, only_bm25 = (
        merge_cells(ablation, ["coCondenser"]) for ablation in (wide, wide.model_copy(update={"negatives": ["bm25"]}))
    )
    assert [node.name for node in merged.nodes] == [node.name for node in only_bm25.nodes]
    every_size = {"bm25": "stage1", "fusion": "fusion"}
    systems = [list(cell.systems.items()) for cell in merged.nodes[-1].config.cells]
    first = [("none", "pretrained"), *every_size.items()]
    assert systems == [[*every_size.items()], [*every_size.items()], first, [*every_size.items()]]
    mined = merge_cells(wide.model_copy(update={"negatives": ["fusion", "mined"]}), ["coCondenser"])
    assert "mine (10 questions, seed 1)" in [node.name for node in mined.nodes]
    assert mined.nodes[-1].config.cells[0].systems == {"mined": "stage2", "fusion": "fusion"}


def test_a_row_without_a_dense_index_is_not_fused() -> None:
    wide = load("batches").model_copy(update={"negatives": ["none", "bm25", "fusion"]})
    table = merge_cells(wide, ["learning to rank"]).nodes[-1].config
    assert [cell.systems for cell in table.cells] == [{}, {"none": "pretrained"}]


def test_rounds_of_mining_may_be_set_where_there_are_mined_negatives(three: Ablation) -> None:
    mined = three.model_copy(update={"negatives": ["mined"], "set": ["rounds.number=2"]})
    assert cells(mined)[0].recipe.rounds.number == 2
    with pytest.raises(InputError, match=r"rounds\.number=0: in an ablation negatives give rounds\.number"):
        cells(mined.model_copy(update={"set": ["rounds.number=0"]}))
    with pytest.raises(InputError, match=r"rounds\.number=2: in an ablation negatives give rounds\.number"):
        cells(three.model_copy(update={"set": ["rounds.number=2"]}))


def test_attention_is_measured_in_the_cells_that_are_drawn(three: Ablation) -> None:
    measuring = three.model_copy(update={"set": ["attention.sections=9"]})
    merged = merge_cells(measuring, [*measuring.rows])
    assert by_stage(merged)["attention"] == 3
    assert [name for name in merged.nodes[-1].inputs if name.startswith("attention")] == [
        "attention_0",
        "attention_2",
        "attention_4",
    ]
    assert "attention (coCondenser, seed 1)" in [node.name for node in merged.nodes]


def test_a_row_continues_from_another_rows_model(tmp_path: Path) -> None:
    text = ROWS.replace("  Condenser continued: null\n", "").replace("seeds: [1, 2]", "seeds: [1]")
    ablation = own(tmp_path, text)
    merged = merge_cells(ablation, [*ablation.rows])
    nodes = {node.name: node for node in merged.nodes}
    continued = nodes["condenser (Condenser continued)"]
    assert continued.inputs["start"] is nodes["condenser (Condenser)"]
    assert continued.config.continued
    assert by_stage(merged)["initial"] == 1
    # Alone it still needs the model of the row that it continues, but not that row's fine-tuning.
    alone = merge_cells(
        apply_choice(ablation, Choice(reference="Condenser continued", rows=["Condenser continued"]))[0],
        ["Condenser continued"],
    )
    counts = by_stage(alone)
    assert (counts["condenser"], counts["finetune"], counts["initial"]) == (2, 1, 1)
    assert len({node.name for node in alone.nodes}) == len(alone.nodes)


def test_the_texts_of_a_row_are_built_before_the_row_that_it_continues_is_trained(tmp_path: Path) -> None:
    """The checks read the texts as soon as the initial model is built."""
    general = "set: ['pretraining={reader: beir, folder: general, document_key: doc, metadata: []}']\n"
    ablation = own(tmp_path, ROWS.replace("  Condenser continued: null\n", "") + general)
    row = "Condenser continued"
    names = [node.name for node in merge_cells(*apply_choice(ablation, Choice(reference=row, rows=[row]))).nodes]
    assert names.index("tokens") < names.index("initial") < names.index("condenser (Condenser)")
    # The same holds for a row with its own text.
    other = "['pretraining={reader: beir, folder: other, document_key: doc, metadata: []}']"
    text = ROWS.replace("Condenser continued: null", f"{row}: {{start: Condenser, set: {other}}}")
    names = [
        node.name for node in merge_cells(*apply_choice(own(tmp_path, text), Choice(reference=row, rows=[row]))).nodes
    ]
    assert names.index("tokens-pretraining") < names.index("condenser (Condenser)")


def test_the_plan_counts_the_stages_that_a_row_shares(three: Ablation, tmp_path: Path) -> None:
    rows, steps = plan_rows(Store(tmp_path / "store"), merged := merge_cells(three, [*three.rows]), "tiny")
    cell = 5 + 3 + 1 + 3 + 1  # ingest to initial; pre-trained: encode, index, search; stage 1 and its three; evaluate
    assert [row.row for row in rows] == ["Condenser", "coCondenser", "contrastive only", "table"]
    assert [row.stages for row in rows] == [2 * (cell + 1), 2 * (cell + 2), 2 * (cell + 2), 1]
    # The second seed shares all but stage 1, its three and evaluate. The next rows also share condenser and all before.
    assert [row.shared for row in rows] == [cell + 1 - 5, 6 + cell + 2 - 5, 6 + cell + 2 - 5, 0]
    assert all(row.stages == row.shared + row.reused + row.to_build for row in rows)
    whole = total(rows)
    assert (whole.cells, whole.to_build, len(steps)) == (6, len(merged.nodes), len(merged.nodes))
    assert (whole.seconds, whole.unknown) == (None, len(merged.nodes))


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_narrow_terminal_shows_the_plans_times(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [RowPlan(label, 12, 1_142, 1_031, 0, 111, 15_700, 3) for label in ("BERT", "Condenser continued", "table")]
    console = Console()
    with console.capture() as output:
        print_whole(plan_table(rows, total(rows)), console)
    lines = [line.rstrip() for line in output.get().splitlines()]
    whole = ["12", "1,142", "1,031", "0", "111", "4", "h", "22", "min", "+", "?"]
    assert [line.split()[-len(whole) :] for line in lines if line.startswith(("BERT", "Condenser"))] == [whole] * 2
    assert lines[-1].endswith("13 h 05 min + ?")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: [1]\n", r"own\.yaml:11: seed: unknown field \(did you mean seeds or test_seed\?\)"),
        ("  RetroMAE2: {sett: []}\n", r"own\.yaml:11: rows\.RetroMAE2\.sett: unknown field \(did you mean set"),
        ("  RetroMAE2: [condenser.stepps=1]\n", r"own\.yaml:11: rows\.RetroMAE2: condenser\.stepps=1: .*unknown"),
        (
            "  RetroMAE2: [condenser.objective=mlm]\n",
            r"own\.yaml:11: rows\.RetroMAE2: condenser\.obj.*: head_layers \(1\)",
        ),
        (
            "  Own: {start: Condenserr, set: []}\n",
            r"own\.yaml:11: rows\.Own\.start: no row 'Condenserr' \(did you mean",
        ),
        ("  Own: {start: Own, set: []}\n", r"own\.yaml:11: rows\.Own\.start: Own: a circle"),
        (
            "  COCONDENSER: []\n",
            r"own\.yaml:11: rows\.COCONDENSER: .* from coCondenser: ",
        ),
        ("  A+B: []\n  A-B: []\n", r"own\.yaml:12: rows\.A-B: Prefect's page cannot distinguish it from A\+B: "),
        ("  a: {start: b}\n  b: {start: a}\n", r"own\.yaml:11: rows\.a\.start: a, b: a circle"),
        ("  'a [bold]b': []\n", r"own\.yaml:11: rows\.a \[bold\]b: a row's name has letters, digits, \. _ \+ -"),
        ("  'a | b': []\n", r"own\.yaml:11: rows\.a \| b: a row's name has letters, digits, .* \(got 'a \| b'\)"),
        ("  bm25: []\n", r"own\.yaml:11: rows\.bm25: "),
        ("sizes: [0]\n", r"own\.yaml:11: sizes\.0.*: Input should be greater than or equal to 1 \(got 0\)"),
        ("measures: [RR@10, MRR@10]\n", r"own\.yaml:11: measures: one appears twice"),
        ("measures: [MRR@7]\n", r"own\.yaml:11: measures\.0: unknown measure; known are RR@10, .* \(got 'MRR@7'\)"),
        ("title: ''\n", r"own\.yaml:11: title: String should have at least 1 character"),
        ("sizes: [true]\n", r"own\.yaml:11: sizes\.0: a number is expected \(got True\)"),
        ("sizes: [1000000000000]\n", r"own\.yaml:11: sizes\.0: .*less than or equal to 1000000000 "),
        ("samples: 100000000000\n", r"own\.yaml:11: samples: .*less than or equal to 1000000 "),
        ("test_seed: true\n", r"own\.yaml:11: test_seed: a number is expected \(got True\)"),
        ("  RetroMAE2: null\n", r"own\.yaml:11: rows\.RetroMAE2: no such row to remove \(did you mean RetroMAE\?\)"),
        ("by_size: {7: []}\n", r"own\.yaml:11: by_size\.7: sizes has no 7, only null"),
        (
            "sizes: [7]\nby_size: {7: [a.b=1]}\n",
            r"own\.yaml:12: by_size\.7: a\.b=1: .*unknown field.* \(row Condenser\)",
        ),
        (
            "set: [stage1.epoch=1]\n",
            r"own\.yaml:11: set: stage1\.epoch=1: .*unknown field .*epochs\?\) \(row Condenser\)",
        ),
        ("set: [stage1.seed=1]\n", r"own\.yaml:11: set: stage1\.seed=1: in an ablation seeds give stage1\.seed \(row"),
        (
            "  x: ['stage2={seed: 1}']\n",
            r"own\.yaml:11: rows\.x: stage2=.*: in an ablation seeds give stage2",
        ),
        (
            "  x: [train_subset.queries=9]\n",
            r"own\.yaml:11: rows\.x: .*: in an ablation sizes give train_subset\.queries",
        ),
        ("  x: [rounds.number=2]\n", r"own\.yaml:11: rows\.x: .*: in an ablation negatives give rounds\.number"),
        (
            "  x: [attention.corpus=pretraining]\n",
            r"own\.yaml:11: rows\.x: .*: in an ablation all .* attention\.corpus=coll",
        ),
        ("  x: [ingest.limit=9]\n", r"own\.yaml:11: rows\.x: .*: all cells are measured on the same .*in `set`"),
        ("  x: ['evaluate={relevance: 2}']\n", r"own\.yaml:11: rows\.x: .*evaluate\.relevance .*in `set`"),
        ("sizes: [7]\nby_size: {7: [evaluate.relevance=2]}\n", r"own\.yaml:12: by_size\.7: .*same questions"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        own(tmp_path, ROWS + text)
    assert "\n" not in str(error.value)


def test_the_common_names_of_measures_are_understood(tmp_path: Path) -> None:
    assert own(tmp_path, ROWS + "measures: [MRR@10, R@100]\n").measures == ["RR@10", "R@100"]


def test_inherited_settings_of_a_size_may_have_no_cells(tmp_path: Path) -> None:
    assert own(tmp_path, "extends: low-data\nsizes: [1000]\n").by_size.keys() == {1000, 10000}


def test_a_setting_of_an_extended_file_is_reported_with_both_files(tmp_path: Path) -> None:
    (tmp_path / "notes.yaml").write_text(ROWS.replace("tiny", "text") + "  x: [ingest.path=notes]\n")
    with pytest.raises(
        InputError, match=r"/own\.yaml: rows\.x, from .*/notes\.yaml:11: ingest\.path=notes: .*unknown field"
    ):
        own(tmp_path, "extends: notes.yaml\nrecipe: tiny\n")


def test_other_mistakes_in_a_file_are_reported(tmp_path: Path) -> None:
    for text, message in (
        ("extends: standard\n", r"standard\.yaml|own\.yaml: recipe: .* is missing"),
        ("extends: standrd\n", r"own\.yaml:1: no ablation 'standrd'"),
        ("extends: standard\nrecipe: marcoo\n", r"own\.yaml:2: recipe: no recipe 'marcoo' \(did you mean marco"),
        (
            ROWS.replace("reference: coCondenser", "reference: BERT"),
            r"yaml:3: reference: 'BERT' is not among the rows",
        ),
        (ROWS.replace("[1, 2]", "[true]"), r"yaml:4: seeds\.0: a number is expected \(got True\)"),
        (
            ROWS.replace("[1, 2]", "[9223372036854775807]"),
            r"yaml:4: seeds: stage2\.seed=9223372036854775808: .*less than .* \(row Condenser\)",
        ),
        (ROWS.replace("[bm25]", "[none]"), r"yaml:5: negatives: none trains nothing"),
        (
            ROWS.replace("[bm25]", "[bn25]"),
            r"yaml:5: negatives\.0: .* 'none', 'bm25', 'mined' or 'fusion'",
        ),
        ("extends: own.yaml\n", "extends itself"),
        ("- a\n", r"own\.yaml:1: every ablation is a mapping"),
        ("extends: standard\nrows: " + "[" * 900 + "]" * 900, r"own\.yaml: nested too deeply"),
    ):
        with pytest.raises(InputError, match=message):
            own(tmp_path, text)
    with pytest.raises(InputError, match=r"no ablation 'marcoo' \(did you mean marco\?\); `cocondenser ablation list`"):
        load("marcoo")
