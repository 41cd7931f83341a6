"""A tokens artifact and a starting checkpoint, small enough to train in a second. Used by several test files."""

import json
from pathlib import Path

import numpy as np

OPTIMISER = {
    "learning_rate": 3e-3,
    "betas": (0.9, 0.98),
    "epsilon": 1e-5,  # so large that Adam does not make steps of rounding noise
    "weight_decay": 0.01,
    "clip_norm": 1.0,
    "warmup_ratio": 0.1,
    "warmup_steps": None,
}
CONDENSER = {
    "objective": "condenser",
    "budget": "4 steps",
    "batch_blocks": 12,
    "batch_tokens": None,
    "length": 24,
    "short_probability": 0.1,
    "mask_fraction": 0.15,
    "head_layers": 2,
    "skip_from": 1,
    "continued": False,
    "checkpoint": None,
    "seed": 5,
    "optimiser": OPTIMISER,
}
COCONDENSER = {
    "objective": "cocondenser",
    "budget": "4 steps",
    "batch_documents": 8,
    "batch_tokens": None,
    "span_min": 8,
    "span_max": 20,
    "corpus": "collection",
    "spans_from": "document",
    "random_lengths": False,
    "mask_fraction": 0.15,
    "skip_from": 1,
    "checkpoint": None,
    "seed": 5,
    "optimiser": OPTIMISER,
}


def make(folder: Path, documents: int = 60, dropout: float = 0.1) -> tuple[Path, Path]:
    """(tokens, start): documents of 4 to 79 tokens with a topic each, and a model of 2 layers x 32 without a head."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    from pipeline.modeling.checkpoint import save_checkpoint

    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 80, documents)
    ids = np.concatenate([5 + (rng.integers(0, 195) + rng.integers(0, 12, n)) % 195 for n in lengths])
    starts, sentences = rng.random(len(ids)) < 0.7, rng.random(len(ids)) < 0.1
    tokens = folder / "tokens"
    for name in ("passages", "titles", "queries"):
        (tokens / name).mkdir(parents=True)
        np.save(tokens / name / "tokens.npy", ids.astype(np.uint16))
        np.save(tokens / name / "offsets.npy", np.cumsum([0, *lengths]))
        np.save(tokens / name / "word_starts.npy", starts)
    np.save(tokens / "passages" / "sentence_starts.npy", sentences)
    np.save(tokens / "doc_offsets.npy", np.arange(documents + 1))
    specials = {"vocab_size": 200, "pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    (tokens / "specials.json").write_text(json.dumps(specials))

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(195))]
    tokenizer = Tokenizer(WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                            sep_token="[SEP]", mask_token="[MASK]").save_pretrained(folder / "tokenizer")  # fmt: skip
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=200,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    save_checkpoint(folder / "start", BertForMaskedLM(config), folder / "tokenizer")
    return tokens, folder / "start"
