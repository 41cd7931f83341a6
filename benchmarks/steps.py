"""The update that the pre-training benchmarks time: Condenser's or coCondenser's, this project's way and the published.

BERT's vocabulary of 30,522 entries with the ids, masks and lengths of pydocs, limit 128; dropout off, so both
ways must give the same loss.
"""

import sys
from collections.abc import Mapping

import numpy as np
import torch

from benchmarks import published
from benchmarks.data import pydocs
from benchmarks.paired import Figures, Step, Way, interleave, seconds
from pipeline.modeling import transformer
from pipeline.modeling.packing import Batch
from pipeline.pretrain import step as pretraining
from pipeline.pretrain.blocks import cut_documents
from pipeline.pretrain.masking import masked_batch
from pipeline.pretrain.objectives import objective
from pipeline.pretrain.spans import long_enough, spans
from pipeline.runtime.work import Machine
from pipeline.training.flops import peak

VOCABULARY, LIMIT, BUDGET = 30_522, 128, 2000
BATCHES = 4
"""Number of different batches, which are repeated in turn."""
SHAPES = {
    "mini": {"layers": 4, "hidden_size": 256, "heads": 4, "intermediate_size": 1024, "skip_from": 2},
    "tiny": {"layers": 2, "hidden_size": 32, "heads": 2, "intermediate_size": 64, "skip_from": 1},
    "base": {"layers": 12, "hidden_size": 768, "heads": 12, "intermediate_size": 3072, "skip_from": 6},
    "minilm": {"layers": 6, "hidden_size": 384, "heads": 12, "intermediate_size": 1536, "skip_from": 3},
}
TOLERANCE = 2e-5
"""Relative tolerance of a loss: float32, summed in another order."""


def new_module(shape: str, dropout: float) -> torch.nn.ModuleDict:
    """Returns a random BERT of this shape with a Condenser head of two layers, in training mode."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    s = SHAPES[shape]
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=s["hidden_size"],
        num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"],
        intermediate_size=s["intermediate_size"],
        max_position_embeddings=LIMIT,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    lm = BertForMaskedLM(config)
    return torch.nn.ModuleDict({"lm": lm, "head": transformer.new_head(lm, 2)}).train()


class Source:
    """Batches of spans (pairs of them) or blocks of pydocs, drawn at random."""

    def __init__(self, kind: str, sequences: int, budget: int = BUDGET, device: str = "cpu") -> None:
        self.data, self.kind, self.sequences, self.device = pydocs(), kind, sequences, device
        self.machine = Machine.model_construct(token_budget=budget, gradient_cache_chunk=None)
        edges = self.data.passages.offsets[self.data.doc_offsets]
        if kind == "spans":
            fits_N = np.flatnonzero(long_enough(np.diff(edges), 16))
            self.begin_N, self.length_N = edges[fits_N], np.diff(edges)[fits_N]
        else:
            assert self.data.passages.sentence_starts is not None
            self.begin_N, self.length_N = cut_documents(self.data.passages.sentence_starts, edges, LIMIT - 2, 0.1, 0)

    def draw(self, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns start, length and number of each sequence of batch i."""
        drawn = self.sequences // (2 if self.kind == "spans" else 1)
        row_S = np.random.default_rng(i).choice(len(self.begin_N), drawn, replace=False, shuffle=False)
        begin_S, length_S = self.begin_N[row_S], self.length_N[row_S]
        if self.kind == "spans":
            begin_S, length_S = spans(begin_S, length_S, row_S, LIMIT - 2, LIMIT - 2, 0, i)
            row_S = (2 * row_S[:, None] + np.arange(2)).ravel()
        return begin_S, length_S, row_S

    def __call__(self, i: int) -> Batch:
        """Returns batch i, collated again at each call as in training."""
        begin_S, length_S, row_S = self.draw(i)
        data = self.data
        return masked_batch(
            data.passages, begin_S, length_S, row_S, 0.15, 0, i, data.specials, self.machine, self.device
        )


def adam(module: torch.nn.Module, fused: bool, learning_rate: float = 1e-5) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), lr=learning_rate, fused=fused)


def update_weights(optimiser: torch.optim.Optimizer) -> None:
    """Changes the weights as pipeline/training/loop.py does, and clears the gradients."""
    optimiser.step()
    # The fused kernel does not count its change, and the cast copies of weights depend on it.
    torch.autograd.graph.increment_version([x for group in optimiser.param_groups for x in group["params"]])
    optimiser.zero_grad(set_to_none=False)


def ours(
    *,
    shape: str,
    kind: str,
    sequences: int,
    pairs: bool = False,
    cache: str = "auto",
    dropout: float = 0.0,
    budget: int = BUDGET,
    device: str = "cpu",
    learning_rate: float = 1e-5,
) -> Step:
    """This project's update: packing, losses, gradients, optimiser. On CUDA it reads no loss, which would wait."""
    module, skip_from = new_module(shape, dropout).to(device), SHAPES[shape]["skip_from"]
    source, optimiser = Source(kind, sequences, budget, device), adam(module, fused=True, learning_rate=learning_rate)
    goal = objective("condenser")
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def step(i: int) -> Figures:
        parts = pretraining.update(
            module, source(i), goal, skip_from=skip_from, pairs=pairs, cache=cache, key=(0, i), device=device
        )
        update_weights(optimiser)
        figures = {name: float(x) for name, x in parts.items() if device == "cpu" or not isinstance(x, torch.Tensor)}
        return figures | {"loss": sum(figures.get(name, 0.0) for name in ("head_mlm", "late_mlm", "contrastive"))}

    return step


def theirs(
    *,
    shape: str,
    kind: str,
    sequences: int,
    pairs: bool = False,
    chunk: int = 0,
    dropout: float = 0.0,
    device: str = "cpu",
) -> Step:
    """The published way's update, in chunks of `chunk` sequences (0: one chunk); its batches are padded in advance."""
    module, skip_from = new_module(shape, dropout).to(device), SHAPES[shape]["skip_from"]
    source, optimiser = Source(kind, sequences), adam(module, fused=False)
    batches = [source(i) for i in range(BATCHES)]
    given = [published.padded(x, LIMIT, source.data.specials.pad) for x in batches]
    update = published.cocondenser if pairs else published.condenser

    def step(i: int) -> Figures:
        optimiser.zero_grad()
        on_device = published.Padded(*(x.to(device) for x in given[i % BATCHES]))
        loss = update(module, on_device, skip_from, chunk or sequences)
        optimiser.step()
        return {"loss": float(loss), "tokens": batches[i % BATCHES].tokens}

    return step


def sgemm() -> Step:
    """Returns the speed of the machine's own matrix product, in operations per second."""
    return lambda _: {"rate": float(peak("cpu") or 0.0)}


def compare_steps(ways: Mapping[str, Way], rounds: int, tolerance: float = TOLERANCE) -> dict[str, list[Figures]]:
    """Returns each way's figures (`interleave`). SystemExit unless all ways with a loss have the same first one."""
    figures = interleave(ways, rounds, BATCHES)
    first = [rows[0]["loss"] for rows in figures.values() if "loss" in rows[0]]
    if max(first) - min(first) > tolerance * max(first):
        raise SystemExit(f"the ways differ in their first loss: {first}")
    print(", ".join(f"{name} {seconds(rows):.2f} s" for name, rows in figures.items()), file=sys.stderr)
    return figures
