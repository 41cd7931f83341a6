"""Connects to a Ray cluster while it is needed, and checks its machines before long work depends on them."""

import contextlib
import hashlib
import io
import json
import logging
import os
import re
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts import versions
from artifacts.fingerprint import code_version
from pipeline.errors import InputError
from pipeline.runtime.processes import ROOT, environment, workers
from pipeline.runtime.work import Machine
from tasks.api import healthy
from tasks.stages import STAGES

if TYPE_CHECKING:
    from prefect_ray import RayTaskRunner

COMPUTING = ("torch", "numpy", "faiss")
PASSED_ON = ("PYTHONPATH", "PYTHONSAFEPATH")
"""Variables of a child's environment that the workers of a cluster need."""
SHARED = "all machines of the cluster must see the store under the same path"
SECONDS_TO_CONNECT = 5.0
SECONDS_TO_LOOK = 120.0
OBJECTS = 1 << 27
"""Bytes of a local cluster's object store. It is small, because parts exchange no data."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
WORDS = 40
"""Longest text of an error; Ray's errors may have pages."""


@contextlib.contextmanager
def cluster(machine: Machine, log: Callable[[str], None]) -> Iterator["RayTaskRunner"]:
    """Connects to the cluster, or starts one of `workers` cores that ends with the block. Its output goes to `log`.

    Raises InputError if that fails.
    """
    check_address(machine.ray)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import ray
    from prefect_ray import RayTaskRunner

    # Other machines use this code if it has the same path there; otherwise it must be installed.
    given: dict[str, Any] = {"runtime_env": {"env_vars": {name: environment()[name] for name in PASSED_ON}}}
    given |= {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if machine.ray == "local":
        given |= {"num_cpus": workers(machine), "include_dashboard": False, "object_store_memory": OBJECTS}
    handler = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(Lines(log)))
        stack.callback(ray.shutdown)
        try:
            with contextlib.chdir(ROOT):  # Ray's workers look for modules there first
                runner = stack.enter_context(RayTaskRunner(address=machine.ray, init_kwargs=given))
        except Exception as error:  # ConnectionError, ValueError, RuntimeError, gRPC's own
            raise InputError(f"machine.ray: {machine.ray}: {one_line_error(error.__cause__ or error)}") from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)  # Ray's own handler would end a run before it cleans up
        yield runner


class Lines(io.TextIOBase):
    """Sends printed text to a log, line by line."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.log = log

    def write(self, text: str) -> int:
        for line in filter(None, map(str.strip, text.splitlines())):
            self.log(one_line_error(line))
        return len(text)


def resources(machine: Machine) -> tuple[str, int]:
    """Returns (the device of all parts, number of such devices or cores in the connected cluster).

    All parts use one device: vectors of a CPU and of a GPU differ in their last bits.
    """
    import ray

    found = ray.cluster_resources()
    gpus, cores = int(found.get("GPU", 0)), int(found.get("CPU", 0))
    check_device(machine)
    if machine.device == "cuda" and not gpus:
        raise InputError(f"machine.device: cuda, but the Ray cluster {machine.ray} has no GPU")
    if not cores:
        raise InputError(f"machine.ray: the Ray cluster {machine.ray} has no core to work with")
    return ("cuda", gpus) if gpus and machine.device != "cpu" else ("cpu", cores)


def check_device(machine: Machine) -> None:
    """Raises InputError if no part can use the device."""
    if machine.device == "mps":
        raise InputError("machine.device: mps, but parts on a Ray cluster use cuda or cpu")


def check_address(address: str | None) -> None:
    """Raises InputError if Ray is not installed, or if nothing answers at a cluster's address."""
    if address is None:
        return
    if find_spec("ray") is None or find_spec("prefect_ray") is None:
        raise InputError("machine.ray: Ray is not installed: pip install 'cocondenser[ray]'")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return
    try:
        socket.create_connection((host, int(port)), SECONDS_TO_CONNECT).close()
    except OSError as error:
        why = str(error.strerror or error).lower()
        line = f"machine.ray: {address}: no Ray cluster answers ({why}); `ray start --head` starts one"
        raise InputError(line) from error


def check_cluster(machine: Machine, store: Path, api: str | None, log: Callable[[str], None]) -> None:
    """Raises InputError if a machine of the cluster lacks the store, this code, or Prefect's server at `api`."""
    check_device(machine)
    check_address(machine.ray)
    if machine.ray in (None, "local"):
        return
    store.mkdir(parents=True, exist_ok=True)
    token = store / f"ray-{uuid.uuid4().hex}"
    token.write_text(token.name)
    try:
        with cluster(machine, log):
            for host, seen in inspect_machines(token, api):
                problem = complaint(seen, store, api)
                if problem:
                    raise InputError(f"machine.ray: {host} {problem}")
    finally:
        token.unlink(missing_ok=True)


def inspect_machines(token: Path, api: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (host, result of `inspect_machine` there) for each machine that builds parts."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    pending = []
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU"):
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            on_it = ray.remote(inspect_machine).options(num_cpus=0, scheduling_strategy=there)
            pending.append((node["NodeManagerHostname"], on_it.remote(str(token), api)))
    for host, answer in pending:
        try:
            yield host, ray.get(answer, timeout=SECONDS_TO_LOOK)
        except ray.exceptions.RayError as error:
            raise InputError(f"machine.ray: {host} cannot run cocondenser: {one_line_error(error)}") from error


def inspect_machine(token: str, api: str | None) -> dict[str, Any]:
    """Returns what the current machine sees."""
    path = Path(token)
    return {
        "store": path.is_file() and path.read_text() == path.name,
        "writable": os.access(path.parent, os.W_OK),
        "code": code(),
        "libraries": libraries(),
        "page": api is None or healthy(api, SECONDS_TO_CONNECT),
    }


def complaint(seen: dict[str, Any], store: Path, api: str | None) -> str | None:
    if not seen["store"]:
        return f"does not see {store}: {SHARED}"
    if not seen["writable"]:
        return f"may not write in {store}"
    if seen["code"] != code():
        return "has another version of cocondenser than this machine"
    for name, version in libraries().items():
        if seen["libraries"][name] != version:
            return f"has {name} {seen['libraries'][name]}, this machine {version}: vectors would differ"
    if not seen["page"]:
        return (
            f"does not reach Prefect at {api}: `prefect server start --host 0.0.0.0` on one machine, and on this one "
            "PREFECT_API_URL=http://THAT_MACHINE:4200/api"
        )
    return None


def code() -> str:
    """Returns a hash of all code that builds parts."""
    parts = [code_version(stage.function) for stage in STAGES.values() if stage.parts]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def libraries() -> dict[str, str]:
    """Returns the versions of the libraries that compute a part's bytes, without build tags, which differ."""
    return {name: version.partition("+")[0] for name, version in versions.library_versions(COMPUTING).items()}


def one_line_error(error: BaseException | str) -> str:
    """Returns an error's text in one line, without colours."""
    return " ".join(re.sub(r"\x1b\[[\d;]*m", "", str(error)).split()[:WORDS]) or type(error).__name__
