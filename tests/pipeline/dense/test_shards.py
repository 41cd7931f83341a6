import subprocess
import sys

import numpy as np
import pytest

from pipeline import shards
from pipeline.errors import InputError
from pipeline.work import silent


def rows(start, stop, tick):
    tick(stop - start)
    return np.arange(start, stop)


def whole(folder):
    return np.concatenate([np.load(path) for path in sorted(folder.glob("*.npy"))]).tolist()


def test_spans_cover_all_rows_once():
    assert shards.spans(7, 3) == [(0, 3), (3, 6), (6, 7)]
    assert shards.spans(6, 3) == [(0, 3), (3, 6)]
    assert shards.spans(0, 3) == []


@pytest.mark.parametrize(("device", "workers"), [("cpu", 1), ("cpu", 3), ("cuda", 1)])  # nothing here touches a GPU
def test_shards_are_built_in_order_and_kept(tmp_path, device, workers):
    np.save(tmp_path / shards.name(1), np.array([30, 40, 50]))
    (tmp_path / shards.name(0)).with_suffix(".part").write_bytes(b"cut off")
    np.save(tmp_path / shards.name(2), np.arange(5))  # of another size: not this shard
    said = []
    shards.build(tmp_path, shards.spans(7, 3), rows, device, workers, "things", lambda *a: said.append(a))
    assert whole(tmp_path) == [0, 1, 2, 30, 40, 50, 6]
    assert said[-1][:3] == (7, 7, "things")


def test_a_worker_leaves_its_parents_exit_alone(tmp_path):
    """As under Prefect, whose hook waits for threads that a fork does not have."""
    program = (
        "import os, sys, threading\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from pipeline import shards\n"
        "parent = os.getpid()\n"
        "threading._register_atexit(lambda: 1 / (os.getpid() == parent))\n"
        "make = lambda start, stop, tick: np.arange(start, stop)\n"
        "shards.build(Path(sys.argv[1]), [(0, 2)], make, 'cpu', 1, 'things', lambda *a: None)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert whole(tmp_path) == [0, 1]


def test_what_a_worker_raises_is_raised(tmp_path):
    def bad(start, stop, tick):
        raise InputError("a line") if start else ValueError("unforeseen")

    with pytest.raises(RuntimeError, match="unforeseen"):
        shards.build(tmp_path, [(0, 1)], bad, "cpu", 1, "things", silent)
    with pytest.raises(InputError, match="a line"):
        shards.build(tmp_path, [(1, 2)], bad, "cpu", 1, "things", silent)
