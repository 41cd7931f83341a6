"""Peak memory of ingest at 1,000,000 passages over that at 100,000: floor 1.2, aim 1.0; and below 1 GB.

    python -m benchmarks.ingest_memory [--small 100000] [--large 1000000]

Each collection is ingested by a child process of its own; its peak is the kernel's maximum resident set size.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path

CHILD = """
import sys
from pathlib import Path
from pipeline.ingest import ingest
from pipeline.readers.beir import BeirConfig
from pipeline.work import Machine, Work, silent

folder, out = map(Path, sys.argv[1:])
machine = Machine(
    device="cpu", ranks=1, threads=1, workers=1, token_budget=1, chunk_spans=0, checkpoint_minutes=0
)
ingest(BeirConfig(reader="beir", folder=folder, document_key="doc"), Work(out, out, machine, silent))
"""


def generate(folder: Path, passages: int) -> None:
    """A BEIR folder of random words: four passages of 40 to 100 words to a document, a question for each 100."""
    words = random.Random(0)
    vocabulary = ["".join(words.choices("abcdefghijklmnopqrstuvwxyz", k=words.randint(2, 9))) for _ in range(20_000)]
    (folder / "qrels").mkdir(parents=True)
    with (
        open(folder / "corpus.jsonl", "w") as corpus,
        open(folder / "queries.jsonl", "w") as queries,
        open(folder / "qrels" / "train.tsv", "w") as qrels,
    ):
        qrels.write("query-id\tcorpus-id\tscore\n")
        for i in range(passages):
            text = " ".join(words.choices(vocabulary, k=words.randint(40, 100)))
            corpus.write(json.dumps({"_id": f"passage-{i}", "doc": f"document-{i // 4}", "text": text}) + "\n")
            if i % 100 == 0:
                queries.write(json.dumps({"_id": f"query-{i}", "text": " ".join(text.split()[:6])}) + "\n")
                qrels.write(f"query-{i}\tpassage-{i}\t1\n")


def peak(passages: int) -> float:
    """Peak resident memory in MB of a process that ingests so many passages."""
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place) / "source", Path(place) / "out"
        generate(folder, passages)
        out.mkdir()
        child = os.posix_spawn(sys.executable, [sys.executable, "-c", CHILD, str(folder), str(out)], dict(os.environ))
        _, status, usage = os.wait4(child, 0)
        if status:
            raise SystemExit(f"ingest of {passages} passages failed")
        return usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    sizes = parser.parse_args()
    small, large = peak(sizes.small), peak(sizes.large)
    print(f"{sizes.small:,} passages: {small:.0f} MB; {sizes.large:,}: {large:.0f} MB", file=sys.stderr)
    print(json.dumps({"ingest_memory": round(large / small, 3)}))


if __name__ == "__main__":
    main()
