"""Java in this process, which can start it only once."""

from typing import Any

import pytest

from pipeline.bm25.java import start_java


@pytest.fixture(scope="session")
def autoclass() -> Any:
    """The name of a Java class -> the class."""
    return start_java()
