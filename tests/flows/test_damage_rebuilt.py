"""Flipped bits in the store of a whole run: noticed, named, built again to the reference, never another figure."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from artifacts.runs import runs
from artifacts.store import Store

pytestmark = pytest.mark.slow

BY_KEY = ("bm25", "report")
"""Nodes whose bytes vary from build to build."""


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 1 << at % 8
    path.write_bytes(data)


def same(found: dict, reference: dict) -> bool:
    """The same figures, and the same bytes where these can be equal."""
    digests = [
        {node: given["digest"] for node, given in run["artifacts"].items() if node not in BY_KEY}
        for run in (found, reference)
    ]
    return found["results"] == reference["results"] and digests[0] == digests[1]


def test_a_bit_of_a_file_in_every_artifact(tiny_copy: Path, tiny_run, run_served, call_cli) -> None:
    """One file an artifact, of the kind that was damaged least so far."""
    [run] = runs(Store(tiny_copy))
    kinds, draws, flipped = Counter[str](), random.Random(0), {}
    for ref in run.nodes.values():
        if ref.digest in flipped:
            continue
        files = [path for path in sorted(ref.path.rglob("*")) if path.is_file() and path.stat().st_size]
        path = min(files, key=lambda path: kinds[path.suffix])
        kinds[path.suffix] += 1
        flip(path, draws.randrange(1 << 30))
        flipped[ref.digest] = f"objects/{ref.digest[:12]}: {path.relative_to(ref.path)} was changed"
    assert {*kinds} >= {".parquet", ".npy", ".safetensors", ".json", ".trec", ".html", ""}
    named = call_cli("artifacts", "verify", store=tiny_copy)
    assert named.returncode == 1
    lines = named.stdout.splitlines()
    assert [line for line in flipped.values() if line not in lines] == []
    again = run_served("run", "tiny", "--json", "--device", "cpu", store=tiny_copy, seconds=900)
    assert again.returncode == 0, again.stderr
    assert same(json.loads(again.stdout), tiny_run[1])
    assert call_cli("artifacts", "verify", store=tiny_copy).returncode == 0


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("ingest/qrels.parquet", ["--refresh", "evaluate"]),
        ("search-stage2/run.parquet", ["--refresh", "evaluate"]),
        ("evaluate/metrics.json", []),
        ("report/report.html", []),
    ],
)
def test_a_run_notices_what_it_reads_or_shows(
    name: str, more: list[str], tiny_copy: Path, tiny_run, run_served
) -> None:
    """Without `verify`: the same run builds it again, and gives the same figures."""
    [run] = runs(Store(tiny_copy))
    node, _, inner = name.partition("/")
    flip(run.nodes[node].path / inner, 1001)
    ended = run_served("run", "tiny", "--json", "--device", "cpu", *more, store=tiny_copy)
    assert ended.returncode == 0, ended.stderr
    assert f"objects/{run.nodes[node].digest[:12]}" in ended.stderr
    assert f"{inner} was changed" in ended.stderr
    assert same(json.loads(ended.stdout), tiny_run[1])
