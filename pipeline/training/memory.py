"""Does an update fit into memory, its graphs kept? An estimate that changes the speed and never the result."""

import os
from pathlib import Path
from typing import Any

from pipeline.modeling.packing import Batch

SHARE = 0.5
"""Of the memory that is free: the rest is for the head, the vocabulary's logits and what the estimate overlooks."""

GROUP = Path("/sys/fs/cgroup")
"""Where a container's own limit stands."""


def keeps_graphs(lm: Any, batch: Batch, cache: str, device: str) -> bool:
    """Whether the backbone's graphs of all chunks are kept at once, instead of computing the CLS vectors first."""
    tokens = sum(len(chunk.ids_T) for chunk in batch.chunks)
    longest = max((chunk.every.longest for chunk in batch.chunks), default=0)
    return keeps(lm.config, len(batch.chunks), tokens, longest, cache, device)


def keeps(config: Any, chunks: int, tokens: int, longest: int, cache: str, device: str) -> bool:
    """The same, of so many chunks with so many tokens together, the longest sequence of `longest`."""
    if cache != "auto":
        return cache == "never"
    return chunks < 2 or tokens * bytes_per_token(config, longest, device) < SHARE * free_bytes(device)


def bytes_per_token(config: Any, length: int, device: str) -> int:
    """Of a backbone's graph: inputs and outputs of each product, norm and activation, in four bytes each."""
    keeps_scores = config.attention_probs_dropout_prob > 0 and device == "cpu"  # kernels compute them again
    scores = 3 * config.num_attention_heads * length if keeps_scores else 0
    layer = 12 * config.hidden_size + 2 * config.intermediate_size + scores
    return 4 * config.num_hidden_layers * layer


def free_bytes(device: str) -> int:
    """Memory that this rank may take, the other ranks of the machine counted."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0]) + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit = GROUP / "memory.max"
    if limit.is_file() and limit.read_text().strip() != "max":
        parts = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
        used = int((GROUP / "memory.current").read_text()) - int(parts["inactive_file"])  # pages of files make room
        free = min(free, int(limit.read_text()) - used)
    return free // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
