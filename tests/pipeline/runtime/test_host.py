"""What the machine has, on systems that say it in different ways."""

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pipeline.runtime import host


@pytest.fixture(autouse=True)
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a container's limits; without files there is none."""
    monkeypatch.setattr(host, "GROUP", tmp_path)
    return tmp_path


def test_cores_are_those_on_which_the_process_may_run(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 5, 7}, raising=False)
    assert host.cores() == 3


def test_all_cores_count_where_the_system_does_not_say_which_are_allowed(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 10)
    assert host.cores() == 10
    monkeypatch.setattr(psutil, "cpu_count", lambda: None)
    assert host.cores() == 1


@pytest.mark.parametrize(
    ("limit", "cores"), [("max 100000", 8), ("150000 100000", 2), ("10000 100000", 1), ("900000 100000", 8), ("", 8)]
)
def test_a_containers_share_of_time_limits_the_cores(group, monkeypatch, limit, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {*range(8)}, raising=False)
    (group / "cpu.max").write_text(f"{limit}\n")
    assert host.cores() == cores


def test_files_in_memory_do_not_count_against_a_containers_limit(group, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=50_000_000))
    assert host.free_memory() == 50_000_000
    for name, text in {"max": "9000000", "current": "8000000", "stat": "anon 2000000\ninactive_file 6000000\n"}.items():
        (group / f"memory.{name}").write_text(text)
    assert host.free_memory() == 7_000_000
    (group / "memory.max").write_text("max\n")
    assert host.free_memory() == 50_000_000


def test_this_machine_has_memory_and_a_processor():
    assert host.free_memory() > 2**20
    assert host.processor_name().strip()


def test_a_macs_processor_is_named_by_its_system(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "PROCESSORS", tmp_path / "cpuinfo")
    monkeypatch.setattr("sys.platform", "darwin")
    named = SimpleNamespace(stdout="Apple M2\n")
    monkeypatch.setattr(host.subprocess, "run", lambda command, **options: named)
    assert host.processor_name() == "Apple M2"
    assert host.processor_flags() == []


@pytest.mark.parametrize("prctl", [True, False])
def test_a_process_forks_only_where_the_forks_end_with_it(monkeypatch, prctl):
    monkeypatch.setattr(os, "fork", lambda: 0, raising=False)
    monkeypatch.setattr(host, "has_prctl", lambda: prctl)
    assert host.can_fork() == prctl
    monkeypatch.delattr(os, "fork")
    assert not host.can_fork()
