"""Encoding keeps a shard in memory, not the collection."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SHARD, WORDS = 4_000, 4
MEASURED = """
import resource, sys
from pathlib import Path
from encoders import ENCODER
from machines import make_machine
from pipeline.dense.encode import EncodeConfig, encode
from pipeline.runtime.work import Work, silent

tokens, checkpoint, out, shard = sys.argv[1:]
work = Work(Path(out), Path(out), make_machine(token_budget=1024), silent)
settings = EncodeConfig(passage_tokens=16, shard_passages=int(shard))
encode(settings, ENCODER, Path("not read"), Path(tokens), Path(checkpoint), work)
print([resource.getrusage(who).ru_maxrss >> 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)])
"""
SUPPORT = Path(__file__).parents[2] / "support"


def write_texts(folder: Path, texts: int) -> None:
    rng = np.random.default_rng(0)
    for name, words in (("passages", WORDS), ("titles", 0)):
        (folder / name).mkdir(parents=True)
        np.save(folder / name / "tokens.npy", rng.integers(5, 305, texts * words).astype(np.uint16))
        np.save(folder / name / "offsets.npy", np.arange(texts + 1) * words)
        np.save(folder / name / "word_starts.npy", np.ones(texts * words, bool))


@pytest.mark.slow
def test_memory_is_bounded_by_a_shard(world, write_model, tmp_path: Path) -> None:
    """250,000 more passages have 61 MiB of vectors. The pages read from a mapped file count too: 4 MiB."""
    write_model(tmp_path / "model", tmp_path / "tokenizer", dimension=128)
    megabytes = []
    for passages in (50_000, 300_000):
        shutil.copytree(world.tokens, tokens := tmp_path / str(passages) / "tokens")
        shutil.rmtree(tokens / "passages")
        shutil.rmtree(tokens / "titles")
        write_texts(tokens, passages)
        (out := tmp_path / str(passages) / "out").mkdir()
        code = f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\n{MEASURED}"
        command = [sys.executable, "-c", code, *map(str, (tokens, tmp_path / "model", out, SHARD))]
        process = subprocess.run(command, capture_output=True, text=True, check=True, cwd=SUPPORT.parents[1])
        megabytes.append(json.loads(process.stdout))
    (parent, children), (parent_more, children_more) = megabytes
    assert parent_more - parent < 24
    assert children_more - children < 24
