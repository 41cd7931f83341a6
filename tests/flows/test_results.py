"""What a run says at its end."""

import sys
from pathlib import Path

from flows.results import next_line


def test_the_line_to_type_next(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COCONDENSER_STORE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    assert next_line("How?", tmp_path) == 'cocondenser search "How?"'
    assert next_line(None, tmp_path) == 'cocondenser search "..."'
    other = tmp_path / "an other"
    assert next_line("How?", other) == f"cocondenser search \"How?\" --store '{other}'"


def test_it_can_be_typed_where_the_environment_is_not_active(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COCONDENSER_STORE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(sys, "argv", [".venv/bin/cocondenser", "run"])
    assert next_line("How?", tmp_path) == '.venv/bin/cocondenser search "How?"'
    monkeypatch.setattr(sys, "argv", ["flows/cli.py", "run"])
    assert next_line("How?", tmp_path) == 'cocondenser search "How?"'
