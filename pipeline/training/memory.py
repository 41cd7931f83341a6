"""How much memory an update needs, and how much there is: estimates that change the speed, never the loss.

Shapes: T tokens of a chunk, D dimensions, I inner dimensions of a layer, V vocabulary. On CUDA activations have two
bytes, or four with `machine.precision: float32`.
"""

import logging
from typing import Any

import torch
from torch import nn

from pipeline.config import CountOrAuto, number_or
from pipeline.modeling.architectures.registry import of_config
from pipeline.modeling.model_files.model_config import field, inner_size
from pipeline.modeling.packing import Batch
from pipeline.runtime import ranks
from pipeline.runtime.host import free_memory
from pipeline.runtime.precision import is_low
from pipeline.runtime.work import Machine

LOG = logging.getLogger(__name__)
GIB = 1 << 30

SHARE = 0.5
"""Share of a CPU's free memory that kept graphs may take; the rest is for the head, the vocabulary's logits and what
the estimate leaves out."""
CUDA_SHARE = 0.85
"""Share of a GPU's free memory that an update may take. The rest is for the vectors of the whole batch, communication,
and what the allocator cannot use."""

CPU_BUDGET = 2000
"""Tokens of a forward pass on a CPU. More do not fit its cache."""
MPS_BUDGET = 8192
"""Tokens of a forward pass on a Mac's GPU, whose memory is the host's. Not measured: four times a CPU's."""
CUDA_BUDGET = 65_536
"""Most tokens of a forward pass on a GPU. From here on a larger pass is hardly faster."""
STEP = 1024
"""An automatic budget is a multiple: some free bytes more or less do not change the chunks."""

MASKED = 0.15
"""Share of masked tokens (BERT)."""
HEAD_LAYERS = 2
"""Layers of a Condenser head."""


def keeps_graphs(lm: Any, batch: Batch, cache: str) -> bool:
    """Whether to keep the backbone's graphs of all chunks at once, instead of computing the CLS vectors first."""
    tokens = sum(len(chunk.ids_T) for chunk in batch.chunks)
    longest = max((chunk.every.longest for chunk in batch.chunks), default=0)
    return keeps(lm.config, len(batch.chunks), tokens, longest, cache)


def keeps(config: Any, chunks: int, tokens: int, longest: int, cache: str) -> bool:
    """As `keeps_graphs`, for `chunks` chunks of `tokens` tokens together; `longest`: tokens of the longest sequence."""
    if cache != "auto":
        return cache == "never"
    return chunks < 2 or tokens * bytes_per_token(config, longest) < SHARE * free_bytes("cpu")


def resolve_auto(
    machine: Machine, device: str, config: Any, module: nn.Module, most_tokens: int | None = None
) -> Machine:
    """Returns the machine with what its `token_budget` and `gradient_cache` mean for training `module`, on all ranks.

    `module`: on the device, still without gradients and Adam's moments. `config`: of its backbone. `most_tokens`: no
    update has more, over all ranks; None if the loss compares no vectors, so that no update needs a gradient cache. On
    a CPU and on MPS `gradient_cache: auto` stays, and each update decides (`keeps`).
    """
    budget = training_budget(machine.token_budget, device, config, module)
    machine = machine.model_copy(update={"token_budget": budget})
    if most_tokens is None or machine.gradient_cache != "auto" or device != "cuda":
        return machine
    tokens = -(-most_tokens // ranks.world())
    if machine.gradient_cache_chunk is None and tokens <= budget:  # one chunk
        return machine.model_copy(update={"gradient_cache": "never"})
    need = bytes_factor(device) * graphs_bytes(config, tokens, min(tokens, budget), has_dropout(module))
    usable = usable_bytes(module)
    keep = need <= usable
    LOG.info("%s", cache_line(keep, tokens, need, usable))
    return machine.model_copy(update={"gradient_cache": "never" if keep else "always"})


def cache_line(keep: bool, tokens: int, need: int, usable: int) -> str:
    """Returns the line that explains the choice of `gradient_cache: auto`."""
    graphs = f"the graphs of up to {tokens:,} tokens need {need / GIB:.1f} GiB"
    return f"gradient cache {'off' if keep else 'on'}: {graphs}, a GPU has {usable / GIB:.1f} GiB for them"


def training_budget(choice: CountOrAuto, device: str, config: Any, module: nn.Module) -> int:
    """Returns the tokens of a forward pass with gradients, equal on all ranks."""
    if choice != "auto" or device != "cuda":
        return number_or(choice, fixed_budget(device))
    usable = usable_bytes(module) - cast_bytes(config)
    return least_of_ranks(tokens_in(usable, bytes_factor(device) * chunk_bytes(config, has_dropout(module))))


def encoding_budget(choice: CountOrAuto, device: str, config: Any) -> int:
    """Returns the tokens of a forward pass without gradients. `config`: of the backbone, which is on the device."""
    if choice != "auto" or device != "cuda":
        return number_or(choice, fixed_budget(device))
    factor = bytes_factor(device)
    usable = int(CUDA_SHARE * free_bytes(device)) - (cast_bytes(config) if factor == 1 else 0)
    return tokens_in(usable, factor * pass_bytes(config))


def bytes_factor(device: str) -> int:
    """Returns the bytes of an activation relative to 2, for which the estimates are. Not measured for float32."""
    return 1 if is_low(device) else 2


def fixed_budget(device: str) -> int:
    """Returns the tokens of a forward pass on a device whose free memory does not decide."""
    return MPS_BUDGET if device == "mps" else CPU_BUDGET


def tokens_in(usable: int, per_token: int) -> int:
    """Returns the tokens of a forward pass that fit into `usable` bytes, at most CUDA_BUDGET."""
    return min(max(usable // per_token // STEP * STEP, STEP), CUDA_BUDGET)


def least_of_ranks(number: int) -> int:
    """Returns the smallest number of all ranks: they must cut a batch into the same chunks."""
    if ranks.world() == 1:
        return number
    of_ranks = torch.zeros(ranks.world(), dtype=torch.int64)
    of_ranks[ranks.rank()] = number
    return int(ranks.sum_over_ranks(of_ranks).min())


def has_dropout(module: nn.Module) -> bool:
    """Whether a layer drops out values in training."""
    return any(isinstance(layer, nn.Dropout) and layer.p > 0 for layer in module.modules())


def usable_bytes(module: nn.Module) -> int:
    """Returns the bytes of this rank's GPU for chunks: without the gradients and Adam's moments, which come later."""
    later = 3 * 4 * sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    return int(CUDA_SHARE * max(free_bytes("cuda") - later, 0))


def graphs_bytes(config: Any, tokens: int, chunk_tokens: int, dropout: bool) -> int:
    """Returns the peak of an update that keeps the graphs of `tokens` tokens, in chunks of `chunk_tokens`, on CUDA."""
    kept = kept_bytes(config, dropout)
    return tokens * kept + chunk_tokens * (chunk_bytes(config, dropout) - kept) + cast_bytes(config)


def cast_bytes(config: Any) -> int:
    """Returns the bytes of the copies of weights on CUDA (pipeline/modeling/cast_weights.py): layers and vocabulary."""
    maps = of_config(config).inner_maps
    by_layer = 4 * config.hidden_size**2 + maps * config.hidden_size * inner_size(config)
    return 2 * (config.num_hidden_layers * by_layer + config.vocab_size * config.hidden_size)


def kept_bytes(config: Any, dropout: bool) -> int:
    """Returns the bytes per token of a backbone's graph on CUDA. Its last layer computes only the masked tokens."""
    size, layer = config.hidden_size, layer_bytes(config, dropout)
    embeddings = size * dropout  # the mask
    last = 6 * size + int(MASKED * layer)  # keys and values of all tokens, and their input
    return embeddings + (config.num_hidden_layers - 1) * layer + last


def layer_bytes(config: Any, dropout: bool) -> int:
    """Returns the bytes per token that one layer keeps for its backward pass on CUDA.

    Per dimension, 2 bytes each: the layer's input, query, key, value, the attended values, their linear map, the input
    and the output of the inner layer's maps; and two masks of dropout (1 each). The inner layer keeps its output before
    and after GELU; a gated unit keeps its two inputs and their product. With pre-norm, both sums are float32. Attention
    keeps a normaliser for each head.
    """
    attention, sums = 4 * config.num_attention_heads, sum_bytes(config)
    return (16 + 2 * dropout + sums) * config.hidden_size + inner_bytes(config) + attention


def sum_bytes(config: Any) -> int:
    """Returns the bytes per token and dimension by which a layer's float32 sums exceed those of bfloat16."""
    return 4 if of_config(config).pre_norm else 0


def inner_bytes(config: Any) -> int:
    """Returns the bytes per token of an inner layer: outputs of its maps and of the activation, 2 each."""
    return 2 * of_config(config).inner_maps * inner_size(config)


def chunk_bytes(config: Any, dropout: bool) -> int:
    """Returns the peak bytes per token of one chunk's training on CUDA: backbone, Condenser head and vocabulary.

    Logits of the masked tokens, from the backbone and from the head: bfloat16, and their gradient replaces them.
    """
    logits = 2 * MASKED * config.vocab_size * 2
    return kept_bytes(config, dropout) + HEAD_LAYERS * layer_bytes(config, dropout) + int(logits)


def pass_bytes(config: Any) -> int:
    """Returns the peak bytes per token of a forward pass without gradients on CUDA."""
    return (18 + sum_bytes(config)) * config.hidden_size + inner_bytes(config)


def bytes_per_token(config: Any, length: int) -> int:
    """Returns the bytes per token of a backbone's graph on a CPU: inputs and outputs of each operation, in float32."""
    # Without dropout float32's kernel computes them again; in bfloat16 they fit what the other operations save.
    keeps_scores = (field(config, "attention_probs_dropout_prob") or 0) > 0
    scores = 3 * config.num_attention_heads * length if keeps_scores else 0
    layer = 12 * config.hidden_size + inner_bytes(config) // 2 + scores
    return 4 * config.num_hidden_layers * layer


def free_bytes(device: str) -> int:
    """Returns the bytes that this rank may use: its share among the ranks of the machine."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0]) + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return free_memory() // ranks.local_world()
