import signal

import pytest


def pytest_sessionstart() -> None:
    # A shell that starts the tests with & has SIGINT ignored, and so would the runs that they interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
