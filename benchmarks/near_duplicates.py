"""Ingest with and without `near_duplicates` on a BEIR folder, and the share of planted near-duplicates that are found.

    python -m benchmarks.near_duplicates FOLDER ...

Prints the rows of docs/usage.md's table: groups, processor time, and the peak memory of ingest's own process. Then, for
passages of 60 to 100 words, copies with one, two and three words replaced by random words of the collection are added,
and the pairs that `find_groups` connects are counted, also wrong ones.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.data.collection import passage_batches
from pipeline.data.near_duplicates.minhash import find_groups

SIMILARITY = 0.8
PLANTED = 1000
CHILD = """
import json, sys, time
from pathlib import Path
from benchmarks.peak import peak_bytes
from pipeline.data.ingest import ingest
from pipeline.data.readers.beir import BeirConfig
from pipeline.runtime.work import Machine, Work, silent

folder, out, similarity = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
config = BeirConfig(reader="beir", folder=folder, document_key="", metadata=[], near_duplicates=similarity)
start = time.process_time()
metrics = ingest(config, Work(out, out, Machine.model_construct(), silent))
print(json.dumps({**metrics, "seconds": time.process_time() - start, "megabytes": peak_bytes() / 2**20}))
"""


def ingested(folder: Path, out: Path, similarity: float | None) -> dict:
    """Returns the metrics of ingest in a process of its own, with its time and memory."""
    command = [sys.executable, "-c", CHILD, str(folder), str(out), json.dumps(similarity)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout  # its errors are shown
    return json.loads(output.splitlines()[-1])


def planted(texts: Sequence[str], changed: int) -> tuple[int, int, int]:
    """Returns (planted, found, wrong) pairs: of copies with `changed` other words, and of copies with another text."""
    draw = random.Random(changed)
    chosen = [n for n, text in enumerate(texts) if 60 <= len(text.split()) <= 100]
    chosen = draw.sample(chosen, min(PLANTED, len(chosen)))
    copies = []
    for n in chosen:
        words = texts[n].split()
        for place in draw.sample(range(len(words)), changed):
            words[place] = draw.choice(draw.choice(texts).split() or ["word"])
        copies.append(" ".join(words))
    groups = find_groups(lambda: iter([texts, copies]), SIMILARITY)
    firsts = groups.first(np.arange(len(texts) + len(copies)))
    same = firsts[len(texts) :] == firsts[chosen]
    grouped = np.isin(np.arange(len(texts), len(firsts)), groups.row_U)
    return len(chosen), int(same.sum()), int((grouped & ~same).sum())


def main(folders: Sequence[str]) -> None:
    for name in folders:
        with tempfile.TemporaryDirectory() as place:
            outs = [Path(place) / str(n) for n in range(2)]
            for out in outs:
                out.mkdir()
            plain, compared = (ingested(Path(name), out, s) for out, s in zip(outs, (None, SIMILARITY), strict=True))
            texts = [text for batch in passage_batches(outs[1], ["text"]) for text in batch["text"]]
        passages = f"{compared['passages']:,} ({compared['words'] / compared['passages']:.0f})"
        groups = f"{compared['near_duplicate_groups']:,} + {compared['near_duplicates']:,}"
        seconds, megabytes = (f"{plain[key]:.1f} -> {compared[key]:.1f}" for key in ("seconds", "megabytes"))
        print(f"| {Path(name).name} | {passages} | {groups} | {seconds} | {megabytes} MB |")
        for changed in (1, 2, 3):
            number, found, wrong = planted(texts, changed)
            print(f"  {changed} of 60 to 100 words changed: {found:,} of {number:,} found, {wrong:,} wrong")


if __name__ == "__main__":
    main(sys.argv[1:])
