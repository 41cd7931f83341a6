"""Pre-training on a GPU: the same losses as on the CPU, as far as bfloat16 goes."""

import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
from machines import make_machine

from pipeline.cocondenser import CocondenserConfig, cocondenser
from pipeline.condenser import CondenserConfig, condenser
from pipeline.work import Work, silent

sys.path.insert(0, str(Path(__file__).parent))
import small

pytestmark = pytest.mark.gpu


def work(folder: Path, device: str, chunk_spans: int) -> Work:
    folder.mkdir()
    machine = make_machine(device=device, chunk_spans=chunk_spans)
    return Work(folder, folder, machine, silent)


@pytest.mark.parametrize("chunk_spans", [0, 5])
def test_first_losses_are_the_cpus(tmp_path, chunk_spans):
    tokens, start = small.make(tmp_path / "given", dropout=0.0)
    for device in ("cpu", "cuda"):
        condensed, out = tmp_path / f"condenser-{device}", tmp_path / f"cocondenser-{device}"
        condenser(CondenserConfig(**small.CONDENSER), tokens, start, work(condensed, device, chunk_spans))
        cocondenser(CocondenserConfig(**small.COCONDENSER), tokens, condensed, work(out, device, chunk_spans))
    for stage in ("condenser", "cocondenser"):
        ours = pandas.read_parquet(tmp_path / f"{stage}-cuda" / "history.parquet")
        theirs = pandas.read_parquet(tmp_path / f"{stage}-cpu" / "history.parquet")
        for name in {"head_mlm", "late_mlm", "contrastive"} & {*ours.columns}:
            np.testing.assert_allclose(ours[name][:3], theirs[name][:3], rtol=0.05)
