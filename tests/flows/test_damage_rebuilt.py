"""Flipped bits in the store of a whole run are detected, reported and built again. The figures never change."""

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


def same(results: dict, reference: dict) -> bool:
    """The same figures, and the same bytes where these can be equal."""
    digests = [
        {node: artifact["digest"] for node, artifact in run["artifacts"].items() if node not in BY_KEY}
        for run in (results, reference)
    ]
    return results["results"] == reference["results"] and digests[0] == digests[1]


def test_a_flipped_bit_in_every_artifact_is_detected_and_built_again(
    tiny_copy: Path, tiny_run, run_served, call_cli
) -> None:
    """One file of each artifact, of the kind that is damaged least so far."""
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
    verified = call_cli("artifacts", "verify", store=tiny_copy)
    assert verified.returncode == 1
    lines = verified.stdout.splitlines()
    assert [line for line in flipped.values() if line not in lines] == []
    again = run_served("run", "tiny", "--json", "--device", "cpu", store=tiny_copy)
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
def test_a_run_detects_damage_in_what_it_reads_or_shows(
    name: str, more: list[str], tiny_copy: Path, tiny_run, run_served
) -> None:
    """Without `verify`: the same run builds the artifact again and gives the same figures."""
    [run] = runs(Store(tiny_copy))
    node, _, inner = name.partition("/")
    flip(run.nodes[node].path / inner, 1001)
    result = run_served("run", "tiny", "--json", "--device", "cpu", *more, store=tiny_copy)
    assert result.returncode == 0, result.stderr
    assert f"objects/{run.nodes[node].digest[:12]}" in result.stderr
    assert f"{inner} was changed" in result.stderr
    assert same(json.loads(result.stdout), tiny_run[1])
