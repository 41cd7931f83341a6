"""The command line, as a user calls it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner
from writing import put

from flows.cli.main import app, main
from flows.recipes.recipe import resolve
from flows.recipes.yaml_layers import RECIPES, SENTENCES, listed, summaries
from flows.sentences.recipe import resolve_sentences

HEAVY = ("torch", "transformers", "prefect", "pyarrow", "pandas", "numpy")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands below the group, and groups of commands."""
    for name, command in group.commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


def command_of(path: tuple[str, ...]) -> Any:
    command: Any = get_command(app)
    for name in path:
        command = command.commands[name]
    return command


ALL = tuple(commands(get_command(app)))


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_help_has_an_example(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert f"cocondenser {' '.join(command)}" in result.output.split("Example:")[1]


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_lines_of_help_end_with_sentences(command: tuple[str, ...]) -> None:
    text = command_of(command).help
    _, *others = text.split("\n\n")  # the first paragraph is wrapped; the others keep their ends of lines
    assert [line for paragraph in others for line in paragraph.splitlines() if not line.endswith((".", ":"))] == []


def test_help_imports_nothing_heavy(run_cli, tmp_path: Path) -> None:
    start = time.monotonic()
    result = run_cli("--help", store=tmp_path)
    assert result.returncode == 0
    assert time.monotonic() - start < 10  # 0.5 s on a machine that does nothing else
    code = f"import sys, flows.cli.main; print([m for m in {HEAVY} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_listing_recipes_imports_nothing_heavy() -> None:
    for command in ("recipes",), ("sentences", "recipes"):
        code = (
            f"import sys; from flows.cli.main import app; app({[*command, '--json']}, standalone_mode=False)\n"
            f"print([m for m in {(*HEAVY, 'flows.recipes.recipe')} if m in sys.modules])"
        )
        process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert process.stdout.splitlines()[-1] == "[]", process.stderr


def test_the_list_has_the_texts_of_the_checked_recipes() -> None:
    checked = [resolve(name) for name in listed()]
    checked_tasks = [resolve_sentences(name) for name in listed(SENTENCES)]
    for family, resolved in ((RECIPES, checked), (SENTENCES, checked_tasks)):
        assert summaries(family) == [(recipe.name, recipe.title, recipe.description) for recipe in resolved]


def test_recipes_lists_all_but_hidden_recipes(call_cli, tmp_path: Path) -> None:
    listed = json.loads(call_cli("recipes", "--json", store=tmp_path).stdout)
    assert {"marco", "pydocs-small"} <= {recipe["name"] for recipe in listed}
    assert "tiny" not in {recipe["name"] for recipe in listed}


MISTAKES = [
    (("run", "tyny"), "no recipe 'tyny' (did you mean tiny?)"),
    (("run", "tiny", "--set", "stage1.epoch=3"), "stage1.epoch: unknown field (did you mean epochs?)"),
    (("run", "tiny", "--until", "stage3"), "no stage 'stage3'"),
    (("run", "tiny", "--refresh", "stage3"), "no stage 'stage3'"),
    (("run", "tiny", "--keep", "stage3"), "no stage 'stage3'"),
    (("run", "tiny", "--only", "stage1"), "cocondenser run tiny --until ingest"),
    (("run", "tiny", "--set", "tokenizer.path=no/such/folder"), "no/such/folder"),
    (("run", "tiny", "--set", "condenser.checkpoint=no/such/folder"), "/no/such/folder: no such file or folder"),
    (("search", "how?"), "no finished run to search in; `cocondenser run pydocs-small` makes one"),
    (("search", "how?", "--recipe", "nosuch"), "no recipe 'nosuch'; `cocondenser recipes` lists them"),
    (("search", "how?", "--recipe", "pydoc"), "no recipe 'pydoc' (did you mean pydocs?)"),
    (("search", "how?", "--recipe", "text"), "no finished run of text to search in; `cocondenser run text` makes one"),
    (("update", "nosuch"), "no recipe 'nosuch'; `cocondenser recipes` lists them"),
    (("fuse", "no.trec", "nor.trec", "--out", "x"), "no.trec: no such file"),
    (("evaluate", "no.trec", "--qrels", "x"), "no.trec: no such file"),
    (("evaluate-model", "no/such/model", "tiny"), "model no/such/model: no such folder"),
    (("compare", "one", "two"), "no measured run 'one'; `cocondenser runs` lists them"),
    (("runs", "--store", "no/such/store"), "no/such/store: no such store; `cocondenser run RECIPE` makes one"),
    (
        ("search", "how?", "--store", "no/such/store"),
        "no/such/store: no such store; `cocondenser run RECIPE` makes one",
    ),
    (("runs", "--recipe", "pydoc"), "no recipe 'pydoc' (did you mean pydocs?)"),
    (("sentences", "run", "stbs"), "no recipe of sentences 'stbs' (did you mean stsb?)"),
    (("sentences", "run", "stsb", "--set", "models.BERT=no/folder"), "/no/folder: no such folder"),
    (("sentences", "plan", "stsb", "--set", "training.bach=3"), "training.bach: unknown field (did you mean batch?)"),
    (("artifacts", "show", "stage1"), "holds no artifact 'stage1'"),
    (("artifacts", "ls", "--stage", "stage1"), "no artifact of stage1"),
    (("artifacts", "path", "stage1"), "holds no artifact 'stage1'"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=lambda value: " ".join(value[:4]))
def test_a_mistake_is_one_line_and_exit_code_2(call_cli, tmp_path: Path, arguments, message: str) -> None:
    result = call_cli(*arguments, store=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_fuse_writes_nothing_into_a_store(tmp_path: Path) -> None:
    put(tmp_path, "format.json", '{"format": 1}')
    out = tmp_path / "objects" / "fused.trec"
    result = CliRunner().invoke(app, ["fuse", "a.trec", "b.trec", "--out", str(out)])
    assert f"--out {out}: inside the store" in str(result.exception)


def test_fuse_writes_no_plain_text_into_a_name_of_an_archive(tmp_path: Path) -> None:
    runs = [str(put(tmp_path, name, "q Q0 a 1 2 x")) for name in ("one.trec", "two.trec")]
    result = CliRunner().invoke(app, ["fuse", *runs, "--out", str(tmp_path / "both.trec.gz")])
    assert "a run is written as plain text; choose a name without .gz" in str(result.exception)


def test_fuse_writes_and_measures_the_joined_list(tmp_path: Path) -> None:
    first = put(tmp_path, "one.trec", "q Q0 a 1 2 x", "q Q0 b 2 1 x")
    second = put(tmp_path, "two.trec", "q Q0 b 1 9 x", "q Q0 a 2 1 x")
    qrels = put(tmp_path, "qrels.tsv", "query-id\tcorpus-id\tscore", "q\tb\t1")
    out = tmp_path / "both.trec"
    arguments = ["fuse", str(first), str(second), "--out", str(out), "--qrels", str(qrels)]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0
    why = "default: 1 dev question, fewer than 50"
    assert f"{out}: z-normalised scores, the first with weight 0.5 ({why})" in result.output
    assert [line.split() for line in result.output.splitlines()[1:4]] == [
        [str(first), ".500"], [str(second), "1.000"], ["fused", ".500"]
    ]  # fmt: skip
    assert [line.split()[2] for line in out.read_text().splitlines()] == ["a", "b"]
    as_json = json.loads(CliRunner().invoke(app, [*arguments, "--weight", "0.4", "--json"]).output)
    assert (as_json["out"], as_json["weight"], as_json["measured"]["fused"]) == (str(out), 0.4, 1)


def cut(path: Path, longest: int) -> str:
    """The message for a run whose lists are not longer."""
    return (
        f"warning: {path}: no list is longer than {longest}; RR@10 and RR@100 are RR@{longest}, R@20, R@50, R@100 and "
        f"R@1000 are R@{longest}, Success@5, Success@20 and Success@100 are Success@{longest} there, and nDCG@10 and "
        "AP are cut"
    )


def test_evaluate_measures_and_compares_run_files(tmp_path: Path) -> None:
    first = put(tmp_path, "one.trec", "q Q0 a 1 2 x", "q Q0 b 2 1 x", "other Q0 a 1 1 x")
    second = put(tmp_path, "two.trec", "q Q0 b 1 9 x", "r Q0 b 1 9 x")
    qrels = put(tmp_path, "qrels.txt", "q 0 b 1", "r 0 b 2", "none 0 a 0")
    arguments = ["evaluate", str(first), str(second), "--qrels", str(qrels)]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "400"})
    assert result.exit_code == 0
    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line.strip()}
    assert lines["2"][:2] == ["questions,", "mean"]
    assert [line.split()[1::3] for line in result.stdout.splitlines() if line.startswith("RR@10 ")] == [
        [".250", "1.000"], [".750", ".500", "0"]
    ]  # fmt: skip
    assert result.stderr.splitlines() == [
        f"warning: {qrels}: questions without a relevant passage, left out: 1",
        f"warning: {first}: questions without results, each counted as zero: 1",
        f"warning: {first}: rows of questions without a relevant passage, left out: 1 of 3",
        cut(first, 2),
        cut(second, 1),
    ]
    as_json = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert as_json["questions"] == 2
    assert as_json["systems"][str(first)]["RR@10"]["mean"] == 0.25
    [pair] = as_json["differences"]
    assert (pair["a"], pair["b"], pair["measures"]["RR@10"]["mean"]) == (str(second), str(first), 0.75)


def test_a_narrow_terminal_shows_every_measure_and_figure(tmp_path: Path) -> None:
    run_files = [put(tmp_path, f"{n}.trec", "q Q0 a 1 2 x", "q Q0 b 2 1 x") for n in range(5)]
    arguments = ["evaluate", *map(str, run_files), "--qrels", str(put(tmp_path, "qrels.txt", "q 0 b 1"))]
    outputs = [CliRunner().invoke(app, arguments, env={"COLUMNS": width}).stdout for width in ("50", "2000")]
    figures = [[line.split() for line in text.splitlines() if "@" in line] for text in outputs]
    assert figures[0] == figures[1]


def test_missing_files_are_reported_with_their_download_commands(call_cli, tmp_path: Path) -> None:
    result = call_cli("run", "nq", "--until", "ingest", store=tmp_path)
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 4
    assert "data/dpr/psgs_w100.tsv.gz does not exist: wget -P data/dpr https://" in lines[0]
    assert "Traceback" not in result.stderr


def test_a_store_of_a_newer_format_is_refused(call_cli, tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text('{"format": 99}')
    result = call_cli("artifacts", "ls", store=tmp_path)
    assert result.returncode == 2
    assert "format 99 is newer" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "tiny"),
        ("plan", "tiny"),
        ("evaluate-model", "no/model", "tiny"),
        ("sentences", "run", "stsb"),
        ("ablation", "run", "tiny"),
        ("artifacts", "unpack", "no.tar.gz"),
    ],
    ids=" ".join,
)
def test_no_store_is_created_among_other_files(call_cli, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """As in an export or in the home folder."""
    (tmp_path / "README.md").write_text("mine")
    result = call_cli(*arguments, store=tmp_path)
    line = f"error: {tmp_path}: no store: it has no format.json; choose a new or an empty folder\n"
    assert (result.returncode, result.stderr) == (2, line)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize("command", ["ls", "gc", "verify"])
def test_an_empty_store_has_no_artifacts_and_a_missing_one_is_reported(call_cli, tmp_path: Path, command: str) -> None:
    assert json.loads(call_cli("artifacts", command, "--json", store=tmp_path).stdout) == []
    absent = call_cli("artifacts", command, store=tmp_path / "none")
    assert (absent.returncode, absent.stdout) == (2, "")
    assert absent.stderr == f"error: {tmp_path / 'none'}: no such store; `cocondenser run RECIPE` makes one\n"
    assert not (tmp_path / "none").exists()


def test_the_plan_of_an_empty_store_builds_everything(call_cli, tmp_path: Path) -> None:
    steps = json.loads(call_cli("plan", "tiny", "--until", "tokens", "--json", store=tmp_path).stdout)
    assert [(step["node"], step["action"]) for step in steps] == [
        ("ingest", "build"),
        ("tokenizer", "unknown"),
        ("tokens", "unknown"),
    ]
    assert steps[0]["why"] == ["nothing built yet"]
    assert steps[1]["why"] == ["unknown until ingest is built"]
    assert steps[0]["seconds"] is None


def test_a_plan_reports_what_the_run_would_refuse(call_cli, tmp_path: Path) -> None:
    options = ("--until", "bm25", "--set", f"ingest.path={tmp_path / 'none'}", "--json")
    (first, second) = json.loads(call_cli("plan", "text", *options, store=tmp_path).stdout)
    refused = call_cli("run", "text", *options, store=tmp_path).stderr
    assert first["why"] == [refused.removeprefix("error: ").removesuffix("\n")]
    assert first["why"][0].endswith("(--set ingest.path=FOLDER)")
    assert second["why"] == ["unknown until ingest is built"]


LONG = "x" * 300


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "x", "--store", LONG],
        ["search", "x", "--recipe", LONG],
        ["plan", "tiny", "--store", LONG],
        ["plan", f"{LONG}.yaml"],
        ["plan", "text", "--set", f"ingest.path={LONG}"],
    ],
    ids=lambda arguments: " ".join(arguments).replace(LONG, "LONG"),
)
def test_a_name_that_is_too_long_is_one_line(arguments, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").mkdir()
    monkeypatch.setattr(sys, "argv", ["cocondenser", *arguments])
    with pytest.raises(SystemExit) as exit_error:
        main()
    assert exit_error.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ")
    assert LONG in line
    assert line.endswith(": file name too long\n")
    assert line.count("\n") == 1


@pytest.mark.parametrize("arguments", [["recipes"], ["runs", "--json"]], ids=" ".join)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_standard_output_is_one_line(run_cli, environment, tmp_path, arguments, unbuffered) -> None:
    with Path("/dev/full").open("w") as full:
        variables = {**environment, "PYTHONUNBUFFERED": unbuffered}
        done = run_cli(*arguments, store=tmp_path, stdout=full, variables=variables)
    assert (done.returncode, done.stderr) == (2, "error: no space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "tiny"], "error: interrupted; the same command resumes from the last checkpoint\n"),
        (["ablation", "run", "tiny"], "error: interrupted; the same command resumes from the last checkpoint\n"),
        (["sentences", "run", "stsb"], "error: interrupted; the same command resumes from the last checkpoint\n"),
        (["artifacts", "push", "there"], "error: interrupted; the same command continues\n"),
        (["artifacts", "pull", "there"], "error: interrupted; the same command continues\n"),
        (["recipes"], "error: interrupted\n"),
        (["plan", "update"], "error: interrupted\n"),
    ],
)
def test_ctrl_c_reports_how_to_resume_where_possible(arguments, line, monkeypatch, capsys) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flows.recipes.yaml_layers.named", interrupt)
    monkeypatch.setattr("flows.recipes.yaml_layers.parse", interrupt)
    monkeypatch.setattr("flows.graph.selection.store_folder", interrupt)
    monkeypatch.setattr(sys, "argv", ["cocondenser", *arguments])
    with pytest.raises(SystemExit) as exit_error:
        main()
    assert exit_error.value.code == 130
    assert capsys.readouterr().err == line
