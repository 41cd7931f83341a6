"""The registry of stages, and what a new stage takes: a module, an entry, a node and a section of the base recipe."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import pytest

from artifacts.store import Store
from flows.dag import Node, nodes
from flows.graph import early_checks
from flows.recipes.recipe import resolve
from pipeline.advice import Unfit
from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.runtime.planned import Planned
from tasks.stages import AT_START, STAGES, Stage

ROOT = Path(__file__).resolve().parents[3]
MODULE = '''"""Counts a letter in the passages."""

from pathlib import Path

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics, Work


class LettersConfig(Config):
    letter: str
    """What is counted."""
    least: int
    """Passages that the collection must have."""


def check(node: Planned) -> None:
    if len(node.config.letter) != 1:
        raise InputError(f"{node.section}.letter: {node.config.letter!r} is no letter")


def check_collection(node: Planned) -> None:
    passages = node.input("collection").metrics["passages"]
    if passages < node.config.least:
        raise InputError(f"{node.section}.least: the collection has {passages} passages")


def letters(config: LettersConfig, collection: Path, work: Work) -> Metrics:
    from pipeline.data.stored import read_table

    texts = read_table(collection / "passages.parquet", columns=["text"]).column(0).to_pylist()
    count = sum(text.count(config.letter) for text in texts)
    (work.out / "count").write_text(str(count))
    return {"count": count}
'''
ENTRY = """
    "letters": Stage(
        "pipeline.letters:letters",
        section="letters",
        checks={
            AT_START: at("pipeline.letters:check"),
            "ingest": at("pipeline.letters:check_collection"),
        },
        notices={"count": ("letters counted", "letters.letter")},
    ),
}
"""
COMMANDS = """
import json, os, sys, tempfile, traceback

from flows.cli.main import main

replies = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    files = [tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")]
    for number, file in enumerate(files, 1):
        os.dup2(file.fileno(), number)
    sys.argv = ["cocondenser", *json.loads(line)]
    code = None
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    for file in files:
        file.seek(0)
    print(json.dumps([code or 0, *(file.read() for file in files)]), file=replies, flush=True)
"""
"""Runs each command line of standard input, which saves their imports."""
NODE = '    ingest = graph.add("ingest", "ingest", recipe.ingest)\n'
SECTION = "\nletters:\n  letter: e\n  least: 1\n"


def test_what_an_entry_names_is_there() -> None:
    known = {"ingest-pretraining", *(node.name for node in nodes(resolve("tiny"))), "tokens-pretraining", AT_START}
    for name, stage in STAGES.items():
        assert callable(stage.function), name
        assert {*stage.checks} <= known
        for hook in (stage.libraries, stage.unread, stage.sources, stage.missing, *stage.checks.values()):
            if isinstance(hook, partial):
                assert callable(resolve_name(*hook.args)), hook


def test_the_recipe_names_of_fields() -> None:
    adopt, finetune, ingest = STAGES["adopt"], STAGES["finetune"], STAGES["ingest"]
    assert adopt.field_of("miner (BERT)", "checkpoint") == "rounds.miner"
    assert [finetune.section_of(name) for name in ("stage1", "stage2-2 (BERT, seed 1)")] == ["stage1", "stage2"]
    assert [ingest.section_of(name) for name in ("ingest-whole", "ingest-pretraining")] == ["ingest", "pretraining"]
    assert STAGES["cross_encoder"].field_of("cross-encoder-2", "checkpoint") == "cross_encoder.checkpoint"


def test_problems_of_all_nodes_are_one_message_up_to_an_error_that_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"a": [Unfit("a: small", ["--set a=1"])], "b": [Unfit("a: small", ["--set a=1"]), Unfit("b: small", [])]}

    def check(node: Planned) -> Iterator[InputError]:
        if node.name == "c":
            raise InputError("c: wrong")
        yield from said.get(node.name, [])

    monkeypatch.setitem(STAGES, "letters", Stage("unused:unused", checks={"ingest": check}))

    def told(*names: str) -> str:
        with pytest.raises(InputError) as refused:
            early_checks.check("ingest", {}, [Node(name, "letters", Config()) for name in names])
        return str(refused.value)

    assert told("a") == told("a", "a") == "a: small; take --set a=1"
    assert told("a", "b").splitlines() == ["a: small", "b: small; no value fits", "take --set a=1"]
    assert told("a", "c", "b").splitlines() == ["a: small", "c: wrong", "take --set a=1"]
    early_checks.check("tokens", {}, [Node("c", "letters", Config())])
    early_checks.check("ingest", {}, [Node("d", "letters", Config())])


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A copy of the program with a further stage: one new file, three that are edited."""
    folder = tmp_path / "code"
    for name in ("artifacts", "pipeline", "tasks", "flows"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pipeline" / "letters.py").write_text(MODULE)
    stages = folder / "tasks" / "stages.py"
    stages.write_text(stages.read_text().removesuffix("\n}\n") + ENTRY)
    own = '    graph.add("letters", "letters", recipe.section("letters"), collection=ingest)\n'
    replaced(folder / "flows" / "dag.py", NODE, NODE + own)
    base = folder / "flows" / "recipes" / "base.yaml"
    base.write_text(base.read_text() + SECTION)
    return folder


Call = Callable[..., tuple[int, str, str]]


@contextmanager
def commands(code: Path, environment: Mapping[str, str]) -> Iterator[Call]:
    """`call("run", ...)` on `tiny` until the new stage, with the copied code: its exit code, output and messages."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMANDS],
        env=environment,
        cwd=code,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def call(*arguments: str) -> tuple[int, str, str]:
            print(json.dumps([*arguments, "tiny", "--until", "letters", "--json"]), file=process.stdin, flush=True)
            exit_code, output, messages = json.loads(process.stdout.readline())
            return exit_code, output, messages

        yield call


def test_a_new_stage_takes_an_entry_a_node_and_a_section(code: Path, served: dict[str, str], store: Store) -> None:
    def built() -> list[str]:
        return [record.stage for record in store.records()]

    environment = {**served, "COCONDENSER_STORE": str(store.root)}
    with commands(code, environment) as call:
        exit_code, _, messages = call("plan", "--set", "letters.leter=e")
        assert exit_code == 2
        assert "letters.leter: unknown field (did you mean letter" in messages
        exit_code, _, messages = call("run", "--set", "letters.letter=long")
        assert (exit_code, messages) == (2, "error: letters.letter: 'long' is no letter\n")
        assert built() == []
        exit_code, _, messages = call("run", "--set", "letters.least=9999")
        assert exit_code == 2
        assert messages.splitlines()[-1].startswith("error: letters.least: the collection has ")
        assert built() == ["ingest"]
        first = call("run")
    with commands(code, environment) as call:
        again = call("run")
    assert (first[0], again[0]) == (0, 0), first[2] + again[2]
    assert sorted(built()) == ["ingest", "letters"]
    assert "letters counted: " in again[2]
    artifacts = [json.loads(output)["artifacts"]["letters"] for _, output, _ in (first, again)]
    assert artifacts[0]["digest"] == artifacts[1]["digest"]
    assert re.search(r"letters +built ", first[2])
    assert re.search(r"letters +cached ", again[2])
