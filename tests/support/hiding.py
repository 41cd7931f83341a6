"""Another system than Linux: this process and its children lack what tests/support/hidden/ hides."""

import os
from pathlib import Path

import pytest
from warming import SOCKET

from pipeline.runtime import host

FOLDER = Path(__file__).parent / "hidden"
forks = pytest.mark.skipif(not host.can_fork(), reason="processes do not fork here")
"""Tests of forks."""


def hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children start from scratch, with Linux's calls hidden; this process does not use them."""
    monkeypatch.setenv("PYTHONPATH", str(FOLDER), prepend=os.pathsep)
    monkeypatch.delenv(SOCKET, raising=False)
    monkeypatch.setattr(host, "has_prctl", lambda: False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
