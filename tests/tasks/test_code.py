"""Only changes of the code that computes a stage's bytes change its key."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from artifacts import fingerprint
from artifacts.keys import code_hash
from tasks.keys import UNCOUNTED, stage_code
from tasks.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]
Codes = dict[str, str]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Codes]]:
    """A copy of the library, of which keys are computed, and the codes of its stages."""
    folder = tmp_path_factory.mktemp("library")
    shutil.copytree(ROOT / "pipeline", folder / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    with mock.patch.object(fingerprint, "_folder", lambda root: folder / root):
        yield folder / "pipeline", codes()


@pytest.fixture
def before(copied: tuple[Path, Codes]) -> Codes:
    return copied[1]


@pytest.fixture
def source(copied: tuple[Path, Codes]) -> Iterator[Path]:
    """The copy, which a test may edit."""
    folder, _ = copied
    texts = {path: path.read_text() for path in folder.rglob("*.py")}
    yield folder
    for path, text in texts.items():
        if path.read_text() != text:
            path.write_text(text)


def codes() -> Codes:
    return {stage: code_hash(stage_code(stage)) for stage in STAGES}


def edit(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text()
    after = change(before)
    assert after != before, path
    path.write_text(after)


def replace(path: Path, old: str, new: str) -> None:
    edit(path, lambda text: text.replace(old, new, 1))


def test_uncounted_modules_change_no_key(source: Path, before: Codes) -> None:
    for module in UNCOUNTED:
        path = source.parent / f"{module.replace('.', '/')}.py"
        edit(path, lambda text: f"{text}\nNEW = 'another message'\n")
    assert codes() == before


def test_messages_docstrings_and_comments_change_no_key(source: Path, before: Codes) -> None:
    reworded = 0
    for path in source.rglob("*.py"):
        text = path.read_text()
        changed, count = re.subn(r'(raise \w+\(\s*f?")(?!")', r"\1Reworded: ", text)
        reworded += count
        changed = re.sub(r'\A"""', '"""Reworded: ', changed)
        path.write_text(f"{changed}\n# A comment.\n")
    assert reworded > 200
    assert codes() == before


FORMULAS = {
    "words that are masked": (
        "pretrain/masking.py",
        "draw_M < 0.8]] =",
        "draw_M < 0.7]] =",
        {"condenser", "cocondenser"},
    ),
    "loss of fine-tuning": (
        "finetune/losses.py",
        "passages_PE.T / temperature",
        "passages_PE.T * temperature",
        {"finetune"},
    ),
    "fusion": (
        "evaluate/fusion/fuse.py",
        "off_R / spread_Q",
        "off_R * spread_Q",
        {"evaluate", "adapt", "fusion_labels", "generate", "dimensions"},
    ),
    "lists of an index": ("dense/index.py", "BLOCK = 16384", "BLOCK = 8192", {"index"}),
    "exact search": ("dense/rescore.py", "np.float64", "np.float32", {"index", "search", "adapt", "generate"}),
    "order of sums over ranks": (
        "runtime/ranks.py",
        "dist.all_reduce(x, async_op=True)",
        "dist.all_reduce(-x, async_op=True)",
        None,
    ),
}
"""Formula: (file, code, other code, the stages that compute with it)."""


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_changes_the_stages_that_compute_with_it(source: Path, before: Codes, formula: str) -> None:
    name, old, new, stages = FORMULAS[formula]
    replace(source / name, old, new)
    after = codes()
    changed = {stage for stage in STAGES if before[stage] != after[stage]}
    if stages is None:
        assert {"condenser", "cocondenser", "finetune"} <= changed
        assert not changed & {"ingest", "tokenizer", "tokens", "bm25", "mine", "evaluate"}
    else:
        assert changed == stages


def test_reranking_does_not_depend_on_indexes() -> None:
    assert not [file for file in stage_code("rerank") if "/dense/" in file]
