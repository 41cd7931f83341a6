"""Runs benchmarks by key and prints their ratios in one JSON line.

python -m benchmarks cache_cost collate     these two
python -m benchmarks --write                all; also writes results.json and the tables of both READMEs
"""

import argparse
import importlib
import json
import sys
import textwrap
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from benchmarks.paired import Skipped
from pipeline.runtime.host import cores, processor_name

FOLDER = Path(__file__).parent
RESULTS, PAGE, README = FOLDER / "results.json", FOLDER / "README.md", FOLDER.parent / "README.md"
# fmt: off
MODULES = (
    "condenser_step", "cocondenser_step", "cache", "finetune_step", "encode", "architectures", "search_flat", "abs",
    "loader", "workers", "ingest_memory", "resamples", "child_exit", "bfloat16",
)
# fmt: on


class Goal(NamedTuple):
    what: str
    """A description of what is compared."""
    floor: float
    stretch: float | None
    most: bool = False
    """Whether the goals are upper limits; otherwise they are lower limits."""

    def missed(self, ratio: float) -> bool:
        return ratio > self.floor if self.most else ratio < self.floor


GOALS = {
    "condenser_step_spans": Goal("Condenser step, spans, against the published way", 5.5, 7),
    "condenser_step_blocks": Goal("Condenser step, packed sentences, against the published way", 4.5, 5.3),
    "condenser_step_minilm": Goal("Condenser step, 6 x 384, against the published way", 4.0, 4.9),
    "condenser_step_sgemm": Goal("Condenser step, share of the machine's matrix products", 0.50, 0.60),
    "cocondenser_step": Goal("coCondenser step with its gradient cache, against the published way's", 5.5, 6.7),
    "cache_cost": Goal("gradient cache, time against none", 1.25, 1.05, most=True),
    "cache_memory": Goal("gradient cache, peak at 2,048 spans against 512", 1.15, 1.05, most=True),
    "finetune_step": Goal("fine-tuning step, 8 questions x 8 passages, against the published way", 1.8, 2.1),
    "encode_mini": Goal("encoding, 4 x 256, against sentence-transformers", 1.4, 1.7),
    "encode_minilm": Goal("encoding, 6 x 384, against sentence-transformers", 1.35, 1.5),
    "encode_base": Goal("encoding, 12 x 768, against sentence-transformers", 1.35, 1.7),
    "encode_sgemm": Goal("encoding, share of the machine's matrix products", 0.85, 0.95),
    "encode_roberta": Goal("encoding, RoBERTa, 6 x 384, against sentence-transformers", 1.2, 1.4),
    "encode_electra": Goal("encoding, ELECTRA, 6 x 384, against sentence-transformers", 1.2, 1.4),
    "encode_distilbert": Goal("encoding, DistilBERT, 6 x 384, against sentence-transformers", 1.2, 1.4),
    "encode_mpnet": Goal("encoding, MPNet, 6 x 384, against sentence-transformers", 1.2, 1.4),
    "encode_modernbert": Goal("encoding, ModernBERT, 6 x 384, against sentence-transformers", 1.2, 1.4),
    "encode_deberta-v2": Goal("encoding, DeBERTa (padded), 6 x 384, against sentence-transformers", 0.95, None),
    "collate": Goal("masks and batches, against a loop over tokens", 5, 8),
    "loader_share": Goal("masks and batches, share of a step", 0.01, 0.003, most=True),
    "workers": Goal("two processes of one thread, against one of two threads", 1, None),
    "ingest_memory": Goal("ingest, peak at 1,000,000 passages against 100,000", 1.2, 1.0, most=True),
    "search_flat": Goal("exact search, the slowest batch size, against one call of IndexFlatIP", 0.95, 1.0),
    "abs_greedy": Goal("batch scheduling, sums kept from swap to swap, against computing each swap's", 30, 60),
    "resamples": Goal("bootstrap over 10,570 questions, resamples kept, against drawing them", 8, None),
    "child_exit": Goal("a child process that imports PyTorch, memory not freed at its end, against freed", 1.1, None),
    "encode_minilm_bf16": Goal("encoding in bfloat16, MiniLM, against OpenVINO in bfloat16", 1.1, 1.3),
    "encode_base_bf16": Goal("encoding in bfloat16, 12 x 768, against OpenVINO in bfloat16", 1.1, 1.3),
    "condenser_step_bf16": Goal("Condenser step, bfloat16 against float32, the slower of two shapes", 1.6, 2),
    "cocondenser_step_bf16": Goal("coCondenser step with its gradient cache, bfloat16 against float32", 1.5, 1.8),
    "finetune_step_bf16": Goal("fine-tuning step, bfloat16 against float32", 1.5, 1.8),
}
HEADLINES = (
    *("condenser_step_spans", "cocondenser_step", "finetune_step", "encode_base"),
    *("condenser_step_bf16", "cocondenser_step_bf16", "finetune_step_bf16", "encode_base_bf16"),
)
"""Benchmarks in the project's README."""
BEGIN, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"


def benchmark_rows() -> dict[str, Callable[[], float]]:
    return {key: row for name in MODULES for key, row in importlib.import_module(f"benchmarks.{name}").ROWS.items()}


def save_ratios(ratios: dict[str, float]) -> None:
    """Saves the ratios; keeps earlier ones that were not measured now."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    note = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{processor_name()}, {cores()} cores",
        "versions": {name: version(name) for name in ("torch", "transformers", "numpy")},
    }
    results |= {key: {"ratio": ratio, **note} for key, ratio in ratios.items()}
    RESULTS.write_text(json.dumps({key: results[key] for key in GOALS if key in results}, indent=2) + "\n")


def table() -> str:
    """Returns the table of all results, their goals and the machine."""
    results = json.loads(RESULTS.read_text())
    lines = ["| key | what | measured | floor | stretch |", "|---|---|---|---|---|"]
    for key, goal in GOALS.items():
        sign, stretch = "<=" if goal.most else ">=", "" if goal.stretch is None else f"{goal.stretch:g}"
        measured = f"{results[key]['ratio']:.3g}" if key in results else "not measured"
        lines.append(f"| {key} | {goal.what} | {measured} | {sign} {goal.floor:g} | {stretch} |")
    measured_at: dict[str, list[str]] = {}
    for key, entry in results.items():
        measured_at.setdefault(f"{entry['date']}, {entry['machine']}", []).append(key)
    where = [f"- {place}: {', '.join(keys)}" for place, keys in sorted(measured_at.items())]
    return "\n".join([*lines, "", "Measured:", *(textwrap.fill(line, 100, subsequent_indent="  ") for line in where)])


def headlines() -> str:
    """Returns the table of the project's README."""
    results = json.loads(RESULTS.read_text())
    rows = [f"| {GOALS[key].what} | {results[key]['ratio']:.2f} x |" for key in HEADLINES if key in results]
    return "\n".join(["| what | speed |", "|---|---|", *rows])


def write_tables() -> None:
    for path, text in ((PAGE, table()), (README, headlines())):
        before, rest = path.read_text().split(BEGIN)
        path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


def main() -> None:
    known = benchmark_rows()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("keys", nargs="*", metavar="KEY", help=f"all if none: {', '.join(known)}")
    parser.add_argument("--write", action="store_true", help="write results.json and the tables of both READMEs")
    given = parser.parse_args()
    if unknown := set(given.keys) - set(known):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    ratios = {}
    for key in given.keys or known:
        started = time.monotonic()
        try:
            ratios[key] = round(known[key](), 4)
        except Skipped as reason:
            print(f"{key}: skipped: {reason}", file=sys.stderr)
            continue
        print(f"{key}: {ratios[key]} ({time.monotonic() - started:.0f} s)", file=sys.stderr)
        if given.write:
            save_ratios({key: ratios[key]})
    if given.write:
        write_tables()
    print(json.dumps(ratios))
    missed = [f"{key} ({ratio})" for key, ratio in ratios.items() if GOALS[key].missed(ratio)]
    if missed:
        sys.exit(f"beyond the floor: {', '.join(missed)}")


if __name__ == "__main__":
    main()
