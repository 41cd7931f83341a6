"""Ready models and a collection as users have them: small, from scratch. Used by several test files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from writing import put

WORDS = (
    *("ledger", "harbour", "violin", "glacier", "orchard", "compass", "lantern", "thicket", "quarry", "meadow"),
    *("beacon", "cellar", "anvil", "bramble", "cobalt", "dune", "ember", "fjord", "gorse", "heath"),
)
QUERY, PASSAGE = "query: ", "passage: "
PROMPTS = {"query": QUERY, "passage": PASSAGE}
TWO = ("Transformer", "Pooling")
POOLING: dict[str, Any] = {
    "word_embedding_dimension": 24,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
}
READY = [
    *("ingest", "tokenizer", "tokens", "bm25", "model", "encode-model", "index-model", "search-model"),
    *("evaluate", "report"),
]
"""Nodes of a zero-shot evaluation."""


def write_json(path: Path, value: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def plain(folder: Path, seed: int = 0, **config: Any) -> Path:
    """A model of BERT type as transformers writes one, with a lower-casing WordPiece tokenizer."""
    import torch
    from transformers import BertConfig, BertModel

    from pipeline.tokenization.wordpiece import SPECIALS, Normal, build_tokenizer

    names = [*SPECIALS, *WORDS, "query", "passage", ":", "a", "e", *(f"##{letter}" for letter in "aeiourst")]
    tokenizer = build_tokenizer(names, Normal(lowercase=True, split_identifiers=False, drop_rules=False))
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = ("pad", "unk", "cls", "sep", "mask")
    specials = {f"{role}_token": f"[{role.upper()}]" for role in roles}
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, **specials}
    write_json(folder / "tokenizer_config.json", own)
    torch.manual_seed(seed)
    shape = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    given = {"vocab_size": len(names), "max_position_embeddings": 128, "initializer_range": 0.3, **shape, **config}
    BertModel(BertConfig(**given), add_pooling_layer=False).save_pretrained(folder)
    return folder


def sentence(folder: Path, kinds: Sequence[str] = ("Transformer", "Pooling", "Normalize"), **files: Any) -> Path:
    """Such a model with the files of sentence-transformers as its releases up to 5 wrote them.

    `files`: of config_sentence_transformers.json, `pooling`: of the pooling's, `texts`: of sentence_bert_config.json.
    """
    plain(folder)
    pooling, texts = files.pop("pooling", {}), files.pop("texts", {"max_seq_length": 40, "do_lower_case": False})
    modules = []
    for number, kind in enumerate(kinds):
        path = "" if number == 0 else f"{number}_{kind}"
        modules.append(
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        )
        if number:
            write_json(folder / path / "config.json", {**POOLING, **pooling} if kind == "Pooling" else {})
        if kind == "Dense":
            _write_dense(folder / path)
    write_json(folder / "modules.json", modules)
    write_json(folder / "config_sentence_transformers.json", files)
    write_json(folder / "sentence_bert_config.json", texts)
    return folder


def _write_dense(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(5)
    save_file({"linear.weight": torch.randn(16, 24)}, folder / "model.safetensors")
    identity = "torch.nn.modules.linear.Identity"
    own = {"in_features": 24, "out_features": 16, "bias": False, "activation_function": identity}
    write_json(folder / "config.json", own)


def beir(folder: Path, splits: Sequence[str] = ("test",), documents: int = 24) -> Path:
    """A collection in BEIR's layout; a third of its documents have titles, some words are capitals."""

    def words(start: int, count: int) -> str:
        return " ".join(WORDS[(start + i * i) % len(WORDS)] for i in range(count))

    rows = []
    for n in range(documents):
        text = f"{words(n, 5 + n % 9)}. {words(3 * n, 4).capitalize()}"
        rows.append({"_id": f"d{n}", "title": words(n, 2).title() if n % 3 == 0 else "", "text": text})
    put(folder, "corpus.jsonl", *map(json.dumps, rows))
    asked = [(f"{split}{n}", split, n) for split in splits for n in range(8)]
    put(folder, "queries.jsonl", *(json.dumps({"_id": q, "text": f"Which {words(n, 3)}?"}) for q, _, n in asked))
    for split in splits:
        judged = (f"{q}\td{n}\t1" for q, of, n in asked if of == split)
        put(folder, f"qrels/{split}.tsv", "query-id\tcorpus-id\tscore", *judged)
    return folder


def theirs(folder: Path, side: str, texts: list[str], **options: Any) -> np.ndarray:
    """Vectors as sentence-transformers makes them. `side`: query or document."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    return getattr(model, f"encode_{side}")(texts, show_progress_bar=False, **options)
