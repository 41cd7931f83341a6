"""Starts runs of the flow as processes, and kills or interrupts them at chosen stages."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from warming import SOCKET

from artifacts.locks import read_holder

ROOT = Path(__file__).resolve().parents[2]
TRAINED = ("ict", "condenser", "cocondenser", "finetune", "cross_encoder")


def command(recipe: str, settings: Sequence[str] = ()) -> list[str]:
    """A run that writes a checkpoint after each update, so that there is always one to resume from."""
    options = [word for setting in ("machine.checkpoint_minutes=0", *settings) for word in ("--set", setting)]
    return [sys.executable, "-m", "flows.cli", "run", recipe, "--device", "cpu", *options]


def run(command: Sequence[str], environment: dict[str, str], store: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*command, "--json"],
        env={**environment, "COCONDENSER_STORE": str(store)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: "subprocess.Popen[str]") -> tuple[dict, str]:
    """(its standard output as JSON, its standard error)."""
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    return json.loads(out), err


def at_work_on(store: Path, node: str) -> str | None:
    """The key that a living process is building for `node`."""
    for lock in (store / "locks").glob("*.lock"):
        holder = read_holder(lock)
        if holder and holder.node == node and psutil.pid_exists(holder.pid) and (store / "work" / lock.stem).exists():
            return lock.stem
    return None


def cut_off(
    node: str,
    stage: str,
    command: Sequence[str],
    environment: dict[str, str],
    store: Path,
    by: signal.Signals = signal.SIGKILL,
) -> bool:
    """Starts a run and sends it a signal while it builds `node`; in a training, once that has a checkpoint.

    Returns False if the run ended before. No process of the run may be left; so its children are not forks of the
    server of the tests, which would outlive it.
    """
    process = run(command, {name: value for name, value in environment.items() if name != SOCKET}, store)
    family: list[psutil.Process] = []
    try:
        while True:
            key = at_work_on(store, node)
            training = stage in TRAINED and not list((store / "work" / str(key) / "checkpoints").glob("step-*"))
            if key and not training:
                break
            if process.poll() is not None:
                assert process.returncode == 0, process.stderr and process.stderr.read()
                return False
            time.sleep(0.005)
        time.sleep(random.uniform(0, 0.2))
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True)
        return process.poll() is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, by)
        process.communicate()
        _, alive = psutil.wait_procs(family, timeout=20)
        assert not alive, "a run that was cut off leaves processes behind"
