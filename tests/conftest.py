import os
import signal

import pytest


def pytest_sessionstart() -> None:
    # A shell that starts the tests with & has SIGINT ignored, and so would the runs that they interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A process of several has the two set, and a console made with them keeps its width whatever a test then sets.
    for size in ("COLUMNS", "LINES"):
        os.environ.pop(size, None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests share what they build, so one process runs them all.

    Quick tests of flows and tasks share Prefect's temporary server too: two of them starting side by side lose one.
    """
    for item in items:
        folder, name = item.path.parent, item.path.stem
        servers = folder.name in ("flows", "tasks") and not item.get_closest_marker("slow")
        item.add_marker(pytest.mark.xdist_group("servers" if servers else f"{folder.name}/{name}"))
