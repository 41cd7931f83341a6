"""Whether an update fits into memory with all its graphs: an estimate that changes the speed, never the result."""

import os
from pathlib import Path
from typing import Any

from pipeline.modeling.packing import Batch

SHARE = 0.5
"""Share of the free memory; the rest is for the head, the vocabulary's logits and what the estimate leaves out."""

GROUP = Path("/sys/fs/cgroup")
"""Folder of a container's own memory limit."""


def keeps_graphs(lm: Any, batch: Batch, cache: str, device: str) -> bool:
    """Whether to keep the backbone's graphs of all chunks at once, instead of computing the CLS vectors first."""
    tokens = sum(len(chunk.ids_T) for chunk in batch.chunks)
    longest = max((chunk.every.longest for chunk in batch.chunks), default=0)
    return keeps(lm.config, len(batch.chunks), tokens, longest, cache, device)


def keeps(config: Any, chunks: int, tokens: int, longest: int, cache: str, device: str) -> bool:
    """As `keeps_graphs`, for `chunks` chunks of `tokens` tokens together; `longest`: tokens of the longest sequence."""
    if cache != "auto":
        return cache == "never"
    return chunks < 2 or tokens * bytes_per_token(config, longest, device) < SHARE * free_bytes(device)


def bytes_per_token(config: Any, length: int, device: str) -> int:
    """Returns the bytes per token of a backbone's graph: inputs and outputs of each operation, four bytes each."""
    keeps_scores = config.attention_probs_dropout_prob > 0 and device == "cpu"  # other kernels recompute them
    scores = 3 * config.num_attention_heads * length if keeps_scores else 0
    layer = 12 * config.hidden_size + 2 * config.intermediate_size + scores
    return 4 * config.num_hidden_layers * layer


def free_bytes(device: str) -> int:
    """Returns the bytes that this rank may use: its share among the ranks of the machine."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0]) + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit = GROUP / "memory.max"
    if limit.is_file() and limit.read_text().strip() != "max":
        parts = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        used = int((GROUP / "memory.current").read_text()) - int(parts["inactive_file"])  # cached files can be freed
        free = min(free, int(limit.read_text()) - used)
    return free // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
