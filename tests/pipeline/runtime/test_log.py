"""Log lines of a child process, and the settings of its allocator."""

import logging
import os
from pathlib import Path

import pytest
from machines import make_machine

from pipeline.runtime.launch import CUDA_ALLOCATOR, child_environment, launch
from pipeline.runtime.work import silent

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_first_ranks_log_lines_reach_the_caller_once(tmp_path, monkeypatch, caplog, ranks):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=os.pathsep)
    with caplog.at_level(logging.INFO, "pipeline"):
        assert launch("talking:talk", {}, make_machine(ranks=ranks), silent, tmp_path) == {}
    assert [record.getMessage() for record in caplog.records] == ["two of 8 GPUs"]


def test_cuda_memory_has_segments_that_grow(monkeypatch):
    for name in CUDA_ALLOCATOR:
        monkeypatch.delenv(name, raising=False)
    assert child_environment("cuda", 1)["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert not {*CUDA_ALLOCATOR} & {*child_environment("cpu", 1)}


@pytest.mark.parametrize("name", CUDA_ALLOCATOR)
def test_the_users_own_allocator_settings_count(monkeypatch, name):
    for other in CUDA_ALLOCATOR:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, "max_split_size_mb:128")
    own = child_environment("cuda", 1)
    assert {other: own[other] for other in CUDA_ALLOCATOR if other in own} == {name: "max_split_size_mb:128"}
