import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from machines import make_machine
from warming import SOCKET

from pipeline.errors import InputError
from pipeline.runtime.child import set_tf32
from pipeline.runtime.host import can_fork
from pipeline.runtime.launch import CUDA_ALLOCATOR, child_environment, launch, layout, one_process
from pipeline.runtime.processes import end_child, listen, python, start_child
from pipeline.runtime.work import Machine, silent

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture(autouse=True)
def _children_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=os.pathsep)


@pytest.fixture
def own_processes(monkeypatch):
    """Children that are not forks of the tests' server."""
    monkeypatch.delenv(SOCKET, raising=False)


def machine(ranks: int = 1) -> Machine:
    return make_machine(ranks=ranks, checkpoint_minutes=0)


@pytest.mark.usefixtures("own_processes")
def test_result_and_progress_reach_the_caller(tmp_path):
    calls = []
    result = launch("children:echo", {"a": [1, "b"]}, machine(), lambda *x: calls.append(x), tmp_path)
    assert result == {"device": "cpu", "world": 1, "threads": 1, "precision": "float32", "a": [1, "b"]}
    assert calls[0] == (1, 3, "things", {"half": 0.0})
    assert calls[-1] == (3, 3, "things", {"half": 1.0})


def test_only_cuda_uses_tensorfloat_32_and_only_on_request():
    """Some images turn it on by a variable of the environment."""
    before = torch.get_float32_matmul_precision()
    try:
        for tf32, device, precision in ((True, "cuda", "high"), (False, "cuda", "highest"), (True, "cpu", "highest")):
            set_tf32(tf32, device)
            assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_child_computes_in_the_precision_of_its_machine(tmp_path):
    low = make_machine(precision="bfloat16")
    assert launch("children:echo", {}, low, silent, tmp_path)["precision"] == "bfloat16"


def test_a_child_is_no_rank_of_an_outer_torchrun(tmp_path, monkeypatch):
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert launch("children:echo", {}, machine(), silent, tmp_path)["world"] == 1


@pytest.mark.usefixtures("own_processes")
def test_a_finished_child_runs_its_exit_handlers_without_freeing_memory(tmp_path):
    began = time.monotonic()
    launch("children:keep_what_is_slow_to_free", {"path": str(tmp_path / "called")}, machine(), silent, tmp_path)
    assert time.monotonic() - began < 50
    assert (tmp_path / "called").exists()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_ranks_of_one_machine_connect_through_its_loopback(monkeypatch, device):
    """On GPUs too: numbers that steer the work go through the processors."""
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert child_environment(device, 1)["GLOO_SOCKET_IFNAME"] == "lo"
    assert "GLOO_SOCKET_IFNAME" not in child_environment(device, 1, alone=False)


def test_two_ranks_communicate(tmp_path):
    result = launch("children:sums", {}, machine(ranks=2), silent, tmp_path)
    assert result == {"sum": [2.0, 1.0]}


@pytest.mark.skipif(not can_fork(), reason="torchrun starts the ranks here")
def test_ranks_on_the_processor_share_the_imports_of_their_parent(tmp_path):
    result = launch("children:imported_here", {}, machine(ranks=2), silent, tmp_path)
    assert result == {"world": 2, "local_world": 2, "imported_here": False}


@pytest.mark.usefixtures("own_processes")
def test_what_a_module_prints_or_raises_when_ranks_import_it_is_no_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "a b"))  # the ranks meet in a file there
    (tmp_path / "a b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "loud.py").write_text("print('imported')\ndef answer(*, progress, device): return 1")
    (tmp_path / "faulty.py").write_text("from pipeline.errors import InputError\nraise InputError('a.tsv:7: damaged')")
    assert launch("loud:answer", {}, machine(ranks=2), silent, tmp_path) == 1
    with pytest.raises(InputError, match=r"^a\.tsv:7: damaged$"):
        launch("faulty:answer", {}, machine(ranks=2), silent, tmp_path)
    assert not list((tmp_path / "a b").iterdir())


def test_a_free_rank_takes_the_next_item_and_the_first_rank_sends_numbers(tmp_path):
    folder = tmp_path / "taken"
    folder.mkdir()
    result = launch("children:steered", {"folder": str(folder)}, machine(ranks=2), silent, tmp_path)
    assert result == {"numbers": [14, 6 << 40], "rows": 15}
    rank_of = dict(path.name.split("-") for path in folder.iterdir())
    assert sorted(rank_of) == [*"012345"]
    assert sorted(item for item, rank in rank_of.items() if rank == rank_of["0"]) == ["0"]


def test_errors_of_a_child_are_raised_in_the_caller(tmp_path):
    with pytest.raises(InputError, match=r"^collection.tsv:7: three columns expected$"):
        launch("children:fail", {"how": "input"}, machine(), silent, tmp_path)
    with pytest.raises(RuntimeError, match="ValueError: an unforeseen value"):
        launch("children:fail", {"how": "error"}, machine(), silent, tmp_path)
    with pytest.raises(RuntimeError, match="exit code 3:\nlast words"):
        launch("children:fail", {"how": "exit"}, machine(), silent, tmp_path)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_child_killed_for_its_memory_is_reported_with_the_field_to_lower(tmp_path, ranks):
    with pytest.raises(RuntimeError, match=r"out of memory\? lower machine\.token_budget") as raised:
        launch("children:fail", {"how": "kill"}, machine(ranks=ranks), silent, tmp_path)
    assert not str(raised.value).rstrip().endswith(":")  # it may have written nothing


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_aborted_child_shows_where_it_was(tmp_path, ranks):
    with pytest.raises(RuntimeError, match="in its child process") as raised:
        launch("children:fail", {"how": "abort"}, machine(ranks=ranks), silent, tmp_path)
    message = str(raised.value)
    assert "Fatal Python error: Aborted" in message
    assert "children.py" in message
    assert "ChildFailedError" not in message
    if ranks == 2:
        assert message.splitlines()[-1].count("(exitcode: -6) local_rank: 1") == 1


@pytest.mark.usefixtures("own_processes")
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_that_aborts_after_its_work_changes_nothing(tmp_path, ranks):
    assert launch("children:abort_in_leaving", {}, machine(ranks=ranks), silent, tmp_path) == {"whole": True}


def test_one_process_has_the_users_threads_or_those_that_its_work_needs():
    several = make_machine(ranks=4, torchrun=["--nnodes=2"], threads="auto", workers=3)
    assert one_process(several) == make_machine(ranks=1, torchrun=[], threads="auto", workers=3)
    assert one_process(several, 6).threads == 6
    assert one_process(make_machine(threads=2), 6).threads == 2
    assert layout(one_process(several), "cpu", None) == (1, 1)


def test_one_failing_rank_ends_all_ranks(tmp_path):
    with pytest.raises(InputError, match="the last rank's own trouble"):
        launch("children:fail_on_last_rank", {}, machine(ranks=2), silent, tmp_path)


def test_each_node_gets_the_result_from_its_own_rank(tmp_path):
    """The launcher's node may have another rank than 0: two nodes of one rank each, started by hand."""
    job = {
        "function": "children:sums",
        "arguments": {},
        "device": "cpu",
        "ranks": 1,
        "torchrun": [],
        "meeting_file": None,
        "tf32": False,
        "precision": "float32",
    }
    common = {"LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = python("pipeline.runtime.child", json.dumps(job))
    nodes = [start_child(command, child_environment("cpu", 1) | common | {"RANK": str(rank)}) for rank in range(2)]
    result = {"sum": [2.0, 1.0]}
    assert [listen(node, silent) for node in nodes] == [{"result": result}] * 2
    for node in nodes:
        end_child(node)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.slow
def test_another_node_joins_by_torchruns_own_flags(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    flags = ["--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--local-addr=127.0.0.1"]
    checkpoints = tmp_path / "key" / "checkpoints"
    code = (
        f"from pathlib import Path; from pipeline.runtime.multi_node import join; join(Path({str(tmp_path)!r}), print)"
    )
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONUNBUFFERED": "1"}
    other = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        two = make_machine(ranks=1, torchrun=flags)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        result = launch("children:sums", {}, two, silent, checkpoints)
        assert result == {"sum": [2.0, 1.0]}
        assert other.stdout.readline() == "joining sums with 1 ranks\n"
        assert other.stdout.readline() == "finished\n"
        assert not (checkpoints / "job.json").exists()
        with pytest.raises(InputError, match=r"collection.tsv:7"):
            launch("children:fail", {"how": "input"}, two, silent, checkpoints)
        assert other.stdout.readline() == "joining fail with 1 ranks\n"
        assert other.stdout.readline() == "failed: collection.tsv:7: three columns expected\n"
        assert not list((tmp_path / "temporary").glob("torchelastic_*"))
    finally:
        other.kill()
        del os.environ["GLOO_SOCKET_IFNAME"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_first_ranks_log_lines_reach_the_caller_once(tmp_path, caplog, ranks):
    with caplog.at_level(logging.INFO, "pipeline"):
        assert launch("children:log", {}, machine(ranks), silent, tmp_path) == {}
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
