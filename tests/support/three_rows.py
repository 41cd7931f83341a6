"""A small ablation as a file."""

from pathlib import Path

from flows.ablations.ablation import Ablation
from flows.ablations.file import load

ROWS = """\
extends: standard
recipe: tiny
reference: coCondenser
seeds: [1, 2]
negatives: [bm25]
rows:
  BERT: null
  ICT: null
  Condenser continued: null
  RetroMAE: null
"""
"""Three rows (Condenser, coCondenser, contrastive only), two seeds."""


def own(folder: Path, text: str) -> Ablation:
    return load(str(written(folder, text)))


def written(folder: Path, text: str) -> Path:
    path = folder / "own.yaml"
    path.write_text(text)
    return path
