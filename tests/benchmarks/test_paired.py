"""The processes of the ways that a benchmark compares."""

from pathlib import Path

import pytest

from benchmarks import paired
from benchmarks.paired import Way, ask, interleave

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(autouse=True)
def _support_in_children(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))


@pytest.mark.parametrize("tuned", [True, False])
@pytest.mark.parametrize(("name", "error"), [("at_start", "no such model"), ("at_step", "step 0 fails")])
def test_an_error_of_a_process_is_shown(name, error, tuned):
    with pytest.raises(SystemExit) as raised:
        interleave({"ours": Way(f"failing_ways:{name}", {}, tuned)}, 1, 1)
    first, *_, last = str(raised.value).splitlines()
    assert first == f"failing_ways:{name} ended, exit code 1:"
    assert last == f"ValueError: {error}"


def test_a_process_that_ended_before_its_first_step_shows_its_error():
    with paired.running({"ours": Way("failing_ways:at_start", {}, tuned=True)}) as processes:
        processes["ours"].process.wait()  # its pipe is broken
        with pytest.raises(SystemExit, match="ValueError: no such model"):
            ask(processes["ours"], 0)


def test_a_process_may_write_to_stderr():
    figures = interleave({"ours": Way("failing_ways:loud", {}, tuned=True)}, 1, 1)["ours"]
    assert figures[0]["i"] == 0
