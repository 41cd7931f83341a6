"""The small collection that is adapted to."""

import pytest
from adapted import Corpus, make_corpus


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Read-only."""
    return make_corpus(tmp_path_factory.mktemp("adapt"))
