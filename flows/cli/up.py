"""`cocondenser up`: Prefect's server, work pool, deployments and one worker, in the foreground."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from flows.cli.options import terminal
from flows.deploy.automations import (
    HEARTBEAT_SECONDS,
    check_block_name,
    crash_runs_without_heartbeat,
    notify_of_updates,
)
from flows.deploy.deployments import POOL, PREFECT_YAML
from flows.deploy.own_server import expect_no_home, own_server
from flows.deploy.processes import is_port_used, prefect_process
from pipeline.errors import InputError
from pipeline.runtime import processes
from pipeline.runtime.network import without_proxy
from tasks.api import healthy

PROFILE = "cocondenser"
SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # Leases in files outlive the server. Otherwise its restart would lose the slots of a limit.
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS),
    "PREFECT_CLI_PROMPT": "false",
}


def up(port: int, notify: str | None) -> None:
    """Returns when Ctrl-C or SIGTERM has ended everything. Raises InputError if another program has the port,
    if this command runs already, and for a wrong `notify`.

    `notify`: TYPE/NAME of the notification block of Prefect that reports updates (flows/deploy/automations.py).
    """
    check_block_name(notify)
    page = f"http://127.0.0.1:{port}"
    api = f"{page}/api"
    if healthy(api):
        raise InputError(f"--port {port}: a Prefect server uses this port already")
    if is_port_used(port):
        raise InputError(f"--port {port}: another program uses this port")
    if other := active_server():
        place = other.removesuffix("/api")
        raise InputError(f"the Prefect server of another `cocondenser up` answers at {place}; stop it first")
    if not PREFECT_YAML.is_file():
        raise InputError(f"{PREFECT_YAML} does not exist; `cocondenser up` needs the folder of the project")
    folder = PREFECT_YAML.parent
    without_proxy(os.environ)
    environment = {**processes.environment(), **SETTINGS, "PREFECT_API_URL": api}
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts the command with & ignores SIGINT
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt), ExitStack() as running:
        terminal.print("Starting Prefect's server ...")
        running.enter_context(own_server(port, SETTINGS, folder))
        running.enter_context(active_profile(api))
        crash_runs_without_heartbeat(api)
        notify_of_updates(api, notify)
        terminal.print("Creating the deployments ...")
        run_prefect(["work-pool", "create", "--type", "process", "--overwrite", POOL], environment)
        run_prefect(["--no-prompt", "deploy", "--all"], environment)
        terminal.print(f"\nPage:   {page}\nStart:  prefect deployment run cocondenser/pydocs-small\nStop:   Ctrl-C\n")
        work = ["worker", "start", "--pool", POOL, "--limit", "1"]
        worker = running.enter_context(prefect_process(work, environment, folder))
        while worker.poll() is None:
            time.sleep(0.5)
        raise InputError("Prefect's worker has ended unexpectedly")
    terminal.print("Server and worker have ended.")


def run_prefect(arguments: list[str], environment: Mapping[str, str]) -> None:
    """Runs a short Prefect command. Its output is shown only if it fails."""
    command = processes.python("prefect", *arguments)
    done = subprocess.run(command, env=environment, cwd=PREFECT_YAML.parent, capture_output=True, text=True)
    if done.returncode:
        raise InputError(*f"prefect {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}".splitlines())


def active_server() -> str | None:
    """Returns the address of the server in Prefect's profile `cocondenser`, if the profile is active and it answers."""
    expect_no_home()
    from prefect.settings import PREFECT_API_URL, load_profiles

    profiles = load_profiles()
    if profiles.active_name != PROFILE or PROFILE not in profiles.names:
        return None
    api = profiles[PROFILE].settings.get(PREFECT_API_URL)
    return str(api) if api and healthy(str(api)) else None


@contextmanager
def active_profile(api: str) -> Iterator[None]:
    """Writes the server's address into Prefect's profile `cocondenser`, which is active inside the block."""
    from prefect.settings import PREFECT_API_URL, Profile, load_profiles, save_profiles

    profiles = load_profiles()
    before = profiles.active_name
    if PROFILE in profiles.names:
        profiles.remove_profile(PROFILE)
    profiles.add_profile(Profile(name=PROFILE, settings={PREFECT_API_URL: api}))
    profiles.set_active(PROFILE)
    save_profiles(profiles)
    try:
        yield
    finally:
        profiles = load_profiles()
        if profiles.active_name == PROFILE:
            profiles.set_active(before if before in profiles.names and before != PROFILE else "ephemeral")
            save_profiles(profiles)
