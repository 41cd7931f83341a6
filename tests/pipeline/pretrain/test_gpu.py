"""Pre-training on a GPU: the same losses as on the CPU, within the precision of bfloat16."""

from pathlib import Path

import numpy as np
import pandas
import pytest
import small
import torch
import updates
from machines import make_machine
from transformers import BertConfig, BertForMaskedLM

from pipeline.modeling import transformer
from pipeline.pretrain import masking
from pipeline.pretrain import step as pretraining
from pipeline.pretrain.cocondenser import CocondenserConfig, cocondenser
from pipeline.pretrain.condenser import CondenserConfig, condenser
from pipeline.pretrain.objectives import objective
from pipeline.runtime.work import Work, silent
from pipeline.tokenization.token_files import Ragged, Specials
from pipeline.training import loop

pytestmark = pytest.mark.gpu


def work(folder: Path, device: str, chunk: int | None) -> Work:
    folder.mkdir()
    machine = make_machine(device=device, gradient_cache_chunk=chunk)
    return Work(folder, folder, machine, silent)


@pytest.mark.parametrize("chunk", [None, 5])
@pytest.mark.parametrize("name", ["condenser", "retromae"])
def test_first_losses_equal_those_on_the_cpu(tmp_path, chunk, name):
    tokens, start = small.make(tmp_path / "given", dropout=0.0)
    fields = {"objective": name, "head_layers": 2 if name == "condenser" else 1}
    for device in ("cpu", "cuda"):
        condensed, out = tmp_path / f"condenser-{device}", tmp_path / f"cocondenser-{device}"
        config = CondenserConfig(**{**small.CONDENSER, **fields})
        condenser(config, tokens, start, work(condensed, device, chunk))
        if name == "condenser":
            cocondenser(CocondenserConfig(**small.COCONDENSER), tokens, condensed, work(out, device, chunk))
    for stage in ("condenser", "cocondenser") if name == "condenser" else ("condenser",):
        ours = pandas.read_parquet(tmp_path / f"{stage}-cuda" / "history.parquet")
        theirs = pandas.read_parquet(tmp_path / f"{stage}-cpu" / "history.parquet")
        for loss in {"head_mlm", "late_mlm", "contrastive", "mlm", "decoder"} & {*ours.columns}:
            np.testing.assert_allclose(ours[loss][:3], theirs[loss][:3], rtol=0.05)


def step(dropout: float, cache: str) -> tuple[dict, dict[str, torch.Tensor]]:
    """One coCondenser update of a small model on the GPU; it is an error if the host waits."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    texts = Ragged(rng.integers(5, 60, 4000).astype(np.uint16), np.array([0, 4000]), rng.random(4000) < 0.7, None)
    lm = BertForMaskedLM(
        BertConfig(vocab_size=60, hidden_size=64, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64,
                   max_position_embeddings=64, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    )  # fmt: skip
    module = torch.nn.ModuleDict({"lm": lm, "head": transformer.new_head(lm, 2)}).train().to("cuda")
    specials, machine = Specials(vocab_size=60, pad=0, unk=1, cls=2, sep=3, mask=4), make_machine(token_budget=300)
    begin_S, length_S, row_S = np.arange(32) * 100, rng.integers(5, 60, 32), np.arange(32)
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch = masking.masked_batch(texts, begin_S, length_S, row_S, 0.15, 1, 2, specials, machine, "cuda")
        parts = pretraining.update(
            module, batch, objective("condenser"), skip_from=1, pairs=True, cache=cache, key=(0, 0), device="cuda"
        )
        loop.together(list(parts.values()), "cuda")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return parts, {name: p.grad.clone() for name, p in module.named_parameters()}


@pytest.mark.parametrize(
    ("name", "head_layers", "cache"),
    [("condenser", 2, "never"), ("mlm", 0, "never"), ("cocondenser", 2, "never"), ("cocondenser", 2, "always")],
)
def test_gradients_equal_the_cpus(name, head_layers, cache):
    """RetroMAE is not among them: its decoder draws other masks on another device."""
    found = {}
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        module = updates.language_model("bert", updates.SMALL, 0.0, head_layers).to(device)
        machine = make_machine(device=device, token_budget=1000, gradient_cache=cache)
        updates.pretraining_update(updates.with_gradients(module), name, machine, device, sequences=32, skip_from=1)
        found[device] = updates.gradients(module)
    updates.check_gradients(found["cuda"], found["cpu"])


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_cache_changes_nothing_and_the_host_never_waits(dropout):
    plain, plain_gradients = step(dropout, "never")
    cached, cached_gradients = step(dropout, "always")
    for name in ("head_mlm", "late_mlm", "contrastive"):
        assert float(cached[name]) == pytest.approx(float(plain[name]), rel=1e-3)
    for name, gradient in plain_gradients.items():
        torch.testing.assert_close(cached_gradients[name], gradient, rtol=0.05, atol=1e-3)
