"""A child process that imports PyTorch and ends: with its memory freed, against without (`quick_exit`)."""

import subprocess
import sys
import time
from statistics import median

ROUNDS = 7
CHILD = """
import sys
from pipeline.runtime.processes import quick_exit
mark_finished = quick_exit()
import pipeline.finetune.train, pipeline.dense.encode, transformers.models.bert.modeling_bert
if sys.argv[1] == "quick":
    mark_finished(0)
"""


def seconds(way: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", CHILD, way], check=True)
    return time.perf_counter() - started


def compare_exits() -> float:
    """Returns the ratio of a whole child's time that frees its memory to one that does not."""
    seconds("quick")  # files come from the disk's cache afterwards
    rounds = [(seconds("plain"), seconds("quick")) for _ in range(ROUNDS)]
    print(f"plain {median(a for a, _ in rounds):.2f} s, quick {median(b for _, b in rounds):.2f} s", file=sys.stderr)
    return median(plain / quick for plain, quick in rounds)


ROWS = {"child_exit": compare_exits}

if __name__ == "__main__":
    print(compare_exits())
