"""The registry of stages, and what a new stage takes: a module, an entry, a node and a section of the base recipe."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import pytest
from commands import command_server

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
NODE = '    ingest = graph.add("ingest", "ingest", recipe.ingest)\n'
SECTION = "\nletters:\n  letter: e\n  least: 1\n"


def test_what_an_entry_names_is_there() -> None:
    known = {"ingest-pretraining", *(node.name for node in nodes(resolve("tiny"))), "tokens-pretraining", AT_START}
    known |= {"tokens-miner", "tokens-cross-encoder", "cross-initial"}
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
    assert STAGES["initial"].field_of("cross-initial", "checkpoint") == "cross_encoder_initial.checkpoint"
    of_tokenizers = {"cross-encoder": "cross_encoder.checkpoint", "miner": "rounds.miner"}
    of_tokenizers |= {"cross-initial": "cross_encoder_initial.checkpoint"}
    assert {name: STAGES["tokenizer"].field_of(f"tokenizer-{name}", "path") for name in of_tokenizers} == of_tokenizers


def test_problems_of_all_nodes_are_one_message_up_to_an_error_that_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = {"a": [Unfit("a: small", ["--set a=1"])], "b": [Unfit("a: small", ["--set a=1"]), Unfit("b: small", [])]}

    def check(node: Planned) -> Iterator[InputError]:
        if node.name == "c":
            raise InputError("c: wrong")
        yield from problems.get(node.name, [])

    monkeypatch.setitem(STAGES, "letters", Stage("unused:unused", checks={"ingest": check}))

    def message(*names: str) -> str:
        with pytest.raises(InputError) as refused:
            early_checks.check("ingest", {}, [Node(name, "letters", Config()) for name in names])
        return str(refused.value)

    assert message("a") == message("a", "a") == "a: small; take --set a=1"
    assert message("a", "b").splitlines() == ["a: small", "b: small; no value fits", "take --set a=1"]
    assert message("a", "c", "b").splitlines() == ["a: small", "c: wrong", "take --set a=1"]
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
        shutil.copytree(ROOT / name, folder / name)  # with the compiled modules, which saves seconds
    (folder / "pipeline" / "letters.py").write_text(MODULE)
    stages = folder / "tasks" / "stages.py"
    stages.write_text(stages.read_text().removesuffix("\n}\n") + ENTRY)
    own = '    graph.add("letters", "letters", recipe.section("letters"), collection=ingest)\n'
    replaced(folder / "flows" / "dag.py", NODE, NODE + own)
    base = folder / "flows" / "recipes" / "base.yaml"
    base.write_text(base.read_text() + SECTION)
    return folder


@pytest.mark.slow
def test_a_new_stage_takes_an_entry_a_node_and_a_section(code: Path, served: dict[str, str], store: Store) -> None:
    def built() -> list[str]:
        return [record.stage for record in store.records()]

    with command_server(served, code) as run:

        def call(*arguments: str) -> subprocess.CompletedProcess[str]:
            return run(*arguments, "tiny", "--until", "letters", "--json", store=store.root)

        unknown = call("plan", "--set", "letters.leter=e")
        assert unknown.returncode == 2
        assert "letters.leter: unknown field (did you mean letter" in unknown.stderr
        refused = call("run", "--set", "letters.letter=long")
        assert (refused.returncode, refused.stderr) == (2, "error: letters.letter: 'long' is no letter\n")
        assert built() == []
        refused = call("run", "--set", "letters.least=9999")
        assert refused.returncode == 2
        assert refused.stderr.splitlines()[-1].startswith("error: letters.least: the collection has ")
        assert built() == ["ingest"]
        first, again = call("run"), call("run")
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert sorted(built()) == ["ingest", "letters"]
    assert "letters counted: " in again.stderr
    artifacts = [json.loads(ended.stdout)["artifacts"]["letters"] for ended in (first, again)]
    assert artifacts[0]["digest"] == artifacts[1]["digest"]
    assert re.search(r"letters +built ", first.stderr)
    assert re.search(r"letters +cached ", again.stderr)
