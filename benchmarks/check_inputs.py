"""The time that a stage needs to hash its inputs: `python -m benchmarks.check_inputs --store DIR`.

For each artifact of the store's newest run: the seconds that a process needs to hash the inputs of its build, over the
seconds of the build. Exit code 1 if the share of the whole run is above 1 %.
"""

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from artifacts import objects
from artifacts.runs import runs
from artifacts.store import Store

MOST = 0.01


def hashing(store: Store, digest: str) -> float:
    begun = time.perf_counter()
    problem = objects.problem(store.objects / digest, digest, deep=True)
    assert problem is None, problem
    return time.perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, required=True)
    store = Store(parser.parse_args().store)
    [run, *_] = runs(store)
    digests = {ref.identity: ref.digest for ref in run.nodes.values()}
    took = {digest: hashing(store, digest) for digest in digests.values()}
    table = Table("node", "build s", "hashing s", "share", box=None)
    built = hashed = 0.0
    seen: set[str] = set()
    for node, ref in run.nodes.items():
        record = store.record(ref.key)
        if record is None:
            continue
        read = {digests[identity] for identity in record.inputs.values() if identity in digests}
        every, new = sum(took[digest] for digest in read), sum(took[digest] for digest in read - seen)
        seen |= read
        built, hashed = built + record.seconds, hashed + new  # a process hashes each once
        table.add_row(node, f"{record.seconds:.1f}", f"{every:.4f}", f"{every / record.seconds:.2%}")
    table.add_row("the run", f"{built:.1f}", f"{hashed:.4f}", f"{hashed / built:.2%}")
    Console(stderr=True).print(table)
    print(hashed / built)
    return int(hashed / built > MOST)


if __name__ == "__main__":
    sys.exit(main())
