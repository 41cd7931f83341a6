"""Peak memory of ingest at 1,000,000 passages over that at 100,000; below 1 GB in both.

Each collection is ingested by its own child process.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

SMALL, LARGE = 100_000, 1_000_000
CHILD = """
import sys
from pathlib import Path
from benchmarks.peak import peak_bytes
from pipeline.data.ingest import ingest
from pipeline.data.readers.beir import BeirConfig
from pipeline.runtime.work import Machine, Work, silent

folder, out = map(Path, sys.argv[1:])
config = BeirConfig(reader="beir", folder=folder, document_key="doc", metadata=[])
ingest(config, Work(out, out, Machine.model_construct(), silent))
print(peak_bytes())
"""


def generate(folder: Path, passages: int) -> None:
    """Writes a BEIR folder of random words: four passages of 40 to 100 words per document, one question per 100."""
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
    """Returns the peak resident memory in MB of a process that ingests `passages`."""
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place) / "source", Path(place) / "out"
        generate(folder, passages)
        out.mkdir()
        command = [sys.executable, "-c", CHILD, str(folder), str(out)]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout  # its errors are shown
        return int(output.split()[-1]) / 2**20


def compare_ingest() -> float:
    peaks = {passages: peak(passages) for passages in (SMALL, LARGE)}
    print(", ".join(f"{passages:,} passages: {peak:.0f} MB" for passages, peak in peaks.items()), file=sys.stderr)
    return peaks[LARGE] / peaks[SMALL]


ROWS = {"ingest_memory": compare_ingest}
