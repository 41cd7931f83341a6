"""The list of words in CONTRIBUTING.md and its checker, .ci/words.py."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / ".ci/words.py"
spec = spec_from_file_location("words", SCRIPT)
assert spec is not None
assert spec.loader is not None
checker = module_from_spec(spec)
spec.loader.exec_module(checker)
WORDS = {"foo bar": "baz", "qux": "quux"}


def test_each_listed_word_has_a_replacement_that_is_not_listed() -> None:
    words = checker.word_list((ROOT / "CONTRIBUTING.md").read_text())
    assert len(words) >= 25
    for instead in words.values():
        assert instead
        assert not [*checker.found(instead, words)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a fault\nfoo bar\n", [(2, "foo bar", "baz")]),
        ("# It is foo\n# bar Qux.\n", [(1, "foo bar", "baz"), (2, "qux", "quux")]),
        ("foo_bar = quxes = aqux = 'qux-ish'\n", []),
    ],
    ids=["a line", "over the end of a line, in a comment", "parts of other words"],
)
def test_listed_words_are_found_by_line(text: str, expected: list[tuple[int, str, str]]) -> None:
    assert [*checker.found(text, WORDS)] == expected


def test_the_command_prints_file_line_and_replacement(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/words.py").write_text(SCRIPT.read_text())
    (tmp_path / "CONTRIBUTING.md").write_text(
        "# Rules\n\n## Words\n| avoid | write |\n|---|---|\n| foo bar, qux | baz |\n"
    )
    (tmp_path / "good.md").write_text("all is well\n")
    (tmp_path / "bad.md").write_text("this is foo\nbar and qux\n")
    (tmp_path / "untracked.md").write_text("qux\n")
    for arguments in (["init", "-q"], ["add", "good.md", "bad.md", "CONTRIBUTING.md"]):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)

    def run(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, str(tmp_path / ".ci/words.py"), *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        return result.returncode, result.stdout

    assert run() == (1, "bad.md:1: foo bar -> baz\nbad.md:2: qux -> baz\n")
    assert run("--paths", "good.md", "CONTRIBUTING.md") == (0, "")
    assert run("--skip", "bad.md") == (0, "")


def test_paths_limit_what_is_read() -> None:
    names = {path.name for path in checker.tracked(["docs", "README.md"], skipped=["docs/results.md"])}
    assert {"README.md", "architecture.md"} <= names
    assert "results.md" not in names
    assert "CHANGELOG.md" not in names
