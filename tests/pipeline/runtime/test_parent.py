"""Child processes end with the process that started them, by the kernel (Linux) or by a pipe (elsewhere)."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from hiding import FOLDER, hide
from machines import make_machine
from warming import SOCKET

from pipeline.runtime import host
from pipeline.runtime.processes import ROOT

SUPPORT = FOLDER.parent
KERNEL = pytest.param("kernel", marks=pytest.mark.skipif(not host.has_prctl(), reason="a system without prctl"))


@pytest.fixture(params=[KERNEL, "pipe"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Of a caller whose children see its end by `request.param`."""
    path = [str(FOLDER)] if request.param == "pipe" else []
    mine = {name: value for name, value in os.environ.items() if name != SOCKET}
    return {**mine, "PYTHONPATH": os.pathsep.join([*path, str(SUPPORT), str(ROOT)])}


@contextmanager
def caller(code: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `code` until it is killed."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def kill(process: subprocess.Popen[str], family: list[psutil.Process]) -> None:
    """Kills the process by a signal that it cannot handle; its family has to end too."""
    assert all(one.is_running() for one in family)
    process.kill()
    process.wait()
    assert psutil.wait_procs(family, timeout=15)[1] == []


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_kill_9_of_the_caller_leaves_no_orphan(tmp_path, environment, ranks):
    pids = tmp_path / "pids"
    pids.mkdir()
    machine = make_machine(ranks=ranks, checkpoint_minutes=0).model_dump_json()
    code = f"""
        from pathlib import Path
        from pipeline.runtime.launch import launch
        from pipeline.runtime.work import Machine, silent
        machine = Machine.model_validate_json({machine!r})
        launch("children:sleep", {{"pids": {str(pids)!r}}}, machine, silent, Path({str(tmp_path)!r}))
    """
    with caller(code, environment) as process:
        end = time.monotonic() + 90
        while len([*pids.iterdir()]) < ranks:
            assert time.monotonic() < end
            time.sleep(0.1)
        kill(process, psutil.Process(process.pid).children(recursive=True))


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_exception_in_the_caller_ends_all_processes(tmp_path, environment, ranks):
    pids = tmp_path / "pids"
    pids.mkdir()
    machine = make_machine(ranks=ranks, checkpoint_minutes=0).model_dump_json()
    code = f"""
        import time
        from pathlib import Path
        from pipeline.runtime.launch import launch
        from pipeline.runtime.work import Machine, silent

        def cancel(*_):
            while len([*Path({str(pids)!r}).iterdir()]) < {ranks}:
                time.sleep(0.1)
            raise KeyboardInterrupt

        machine = Machine.model_validate_json({machine!r})
        try:
            launch("children:sleep", {{"pids": {str(pids)!r}}}, machine, cancel, Path({str(tmp_path)!r}))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            time.sleep(60)
    """
    with caller(code, environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "interrupted\n"
        there = [psutil.Process(pid) for pid in (int(path.name) for path in pids.iterdir()) if psutil.pid_exists(pid)]
        assert psutil.wait_procs(there, timeout=15)[1] == []


def test_another_programs_module_gets_the_signal(tmp_path, environment):
    """As Prefect's server, which ends in order at SIGTERM."""
    (tmp_path / "program.py").write_text(
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(Path(sys.argv[1]).touch()))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    code = f"""
        import time
        from pipeline.runtime.processes import python, start_child
        words = ["SIGTERM", "program", {str(tmp_path / "ended")!r}]
        child = start_child(python("pipeline.runtime.descendant", *words))
        print(child.stdout.readline(), end="", flush=True)
        time.sleep(60)
    """
    path = os.pathsep.join([environment["PYTHONPATH"], str(tmp_path)])
    with caller(code, {**environment, "PYTHONPATH": path}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        kill(process, psutil.Process(process.pid).children())
    assert (tmp_path / "ended").exists()


def test_a_child_whose_caller_has_ended_before_it_asks_ends_too(environment):
    code = "from pipeline.runtime.processes import die_with_parent; die_with_parent(); print('alive')"
    there = {**environment, "PIPELINE_PARENT": "1"}
    ended = subprocess.run([sys.executable, "-c", code], env=there, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")


def test_hidden_calls_are_hidden_from_children_too(monkeypatch):
    hide(monkeypatch)
    code = """
        import os, resource, subprocess, sys
        found = "import os; print(hasattr(os, 'fork'), hasattr(os, 'sched_getaffinity'))"
        print(subprocess.run([sys.executable, "-c", found], capture_output=True, text=True).stdout.strip())
        print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        try:
            print(len(open("/proc/self/status").read()) > 0)
        except OSError as error:
            print(error.strerror)
    """
    with caller(code, dict(os.environ)) as process:
        assert process.stdout is not None
        assert process.stdout.read().splitlines() == ["False False", "256", "hidden by the tests"]
