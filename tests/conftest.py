import os
import signal

import pytest
from warming import fork_server


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests with & has SIGINT ignored, and so would the runs that they interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A process of several has the two set, and a console made with them keeps its width whatever a test then sets.
    for size in ("COLUMNS", "LINES"):
        os.environ.pop(size, None)
    # Two processes of tests share the cores: with threads of their own they would wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not hasattr(config, "workerinput"):  # all of pytest's processes have one fork server
        running = fork_server()
        running.__enter__()
        config.add_cleanup(lambda: running.__exit__(None, None, None))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


STARTS_A_SERVER = {"harness", "environment"}
"""Fixtures of quick tests that start Prefect's servers, or the command line, which does."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests share what they build, so one process runs them all.

    Files whose quick tests start Prefect's servers share a process too: two of them starting side by side lose one.
    """
    servers = {
        item.path
        for item in items
        if not item.get_closest_marker("slow") and STARTS_A_SERVER & set(getattr(item, "fixturenames", ()))
    }
    for item in items:
        together = item.path in servers and not item.get_closest_marker("slow")
        item.add_marker(pytest.mark.xdist_group("servers" if together else f"{item.path.parent.name}/{item.path.stem}"))
