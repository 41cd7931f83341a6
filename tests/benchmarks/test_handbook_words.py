"""The table of passages' lengths per language."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.handbook_words import main, shares


def test_shares() -> None:
    import numpy as np

    assert shares(np.array([10, 20, 30, 200]), 126) == (25, pytest.approx(174.5), 0.25)


def test_a_language_is_measured(tmp_path) -> None:
    import typer

    (tmp_path / "xx").mkdir()
    body = "".join(f"<p>Sentence number {i} says that file-{i} is read.</p>" for i in range(60))
    (tmp_path / "xx" / "a.html").write_text(f"<html><title>Files</title><body>{body}</body></html>")
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, [str(tmp_path), "--json"])
    assert result.exit_code == 0
    (row,) = json.loads(result.stdout)
    assert (row["name"], row["words"]) == ("xx", 60 * 9)
    assert row["passages"] == round(60 * 11 / 80)
    assert row["lengths"]["WordPiece"]["longer"] == 0
    assert row["lengths"]["input"]["median"] > row["lengths"]["WordPiece"]["median"]
