"""One update of each training, on random rows and on any device: the CPU, a GPU, or a fake one.

The modules are those of the caller, who also decides where they are built.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from finetuned import CONFIG
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSequenceClassification

from pipeline.cross_encoder import train as cross_training
from pipeline.cross_encoder.pairs import PairRows
from pipeline.finetune import step as finetuning
from pipeline.finetune.encoders import Towers
from pipeline.finetune.examples import ExampleBatch
from pipeline.finetune.score_table import NO_PAIR, Scores, keys
from pipeline.finetune.train import loss_of
from pipeline.modeling import transformer
from pipeline.modeling.biencoder import Encoder, Projection
from pipeline.modeling.cross_entropy import inverse_cloze
from pipeline.modeling.model_files.model_config import AFTER_PADDING, ROBERTAS, TYPES, own_name
from pipeline.modeling.packing import Batch
from pipeline.pretrain import step as pretraining
from pipeline.pretrain.batches import packed
from pipeline.pretrain.masking import masked_batch
from pipeline.pretrain.objectives import objective
from pipeline.runtime.work import Machine
from pipeline.sentences import kinds
from pipeline.sentences.readers import TEXTS
from pipeline.tokenization.token_files import Ragged, Specials

BASE = {"vocab_size": 30522}
"""BERT base: 12 layers of 768 dimensions."""
SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}


def configuration(architecture: str, shape: dict[str, int], dropout: float) -> Any:
    """Returns the configuration of an untrained model; `shape`: fields that differ from BERT base."""
    fields: dict[str, Any] = {
        **shape,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "num_labels": 1,
    }
    if architecture in AFTER_PADDING:
        fields |= {"max_position_embeddings": 514, "pad_token_id": 1}
    if architecture in ROBERTAS:
        fields |= {"type_vocab_size": 1}
    if architecture == "modernbert":  # its default ids exceed small vocabularies
        fields |= {"pad_token_id": 1, "embedding_dropout": dropout, "local_attention": 16}
        fields |= dict.fromkeys(("bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id"), 2)
    if architecture not in TYPES:  # default ids of special tokens exceed small vocabularies
        fields |= {"embedding_size": 32, "pad_token_id": 1}
        fields |= dict.fromkeys(("bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id"), 2)
    return AutoConfig.for_model(architecture, **{own_name(architecture, name): x for name, x in fields.items()})


def language_model(architecture: str, shape: dict[str, int], dropout: float, head_layers: int) -> nn.ModuleDict:
    """Returns {"lm", "head"} of random weights, in training mode."""
    lm = AutoModelForMaskedLM.from_config(configuration(architecture, shape, dropout))
    head = transformer.new_head(lm, head_layers) if head_layers else nn.ModuleList()
    return nn.ModuleDict({"lm": lm, "head": head}).train()


def encoder(
    architecture: str,
    shape: dict[str, int],
    dropout: float,
    pooling: str = "cls",
    normalise: bool = False,
    projection: int | None = None,
) -> Encoder:
    """Returns an encoder of random weights, in training mode."""
    config = configuration(architecture, shape, dropout)
    model = AutoModelForMaskedLM.from_config(config).base_model
    linear = Projection(model.config.hidden_size, projection) if projection else None
    return Encoder(model.train(), pooling, normalise, linear)


def classifier(architecture: str, shape: dict[str, int], dropout: float) -> Any:
    """Returns a cross-encoder of random weights, in training mode."""
    return AutoModelForSequenceClassification.from_config(configuration(architecture, shape, dropout)).train()


def with_gradients(module: nn.Module) -> nn.Module:
    """Gives each trained parameter a gradient of zeros, as the training loop does."""
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    return module


def specials(vocabulary: int) -> Specials:
    return Specials(vocab_size=vocabulary, pad=0, unk=1, cls=2, sep=3, mask=4)


def rows(number: int, shortest: int, longest: int, vocabulary: int, seed: int = 0) -> list[np.ndarray]:
    """Returns random rows of ids, of random lengths."""
    rng = np.random.default_rng(seed)
    return [rng.integers(5, vocabulary, length) for length in rng.integers(shortest, longest + 1, number)]


def pretraining_batch(
    module: Any, machine: Machine, device: str, sequences: int, longest: int = 126, masks: bool = True
) -> Batch:
    """Returns random sequences of up to `longest` tokens, special tokens not included, packed for an update."""
    entries = specials(module["lm"].config.vocab_size)
    rng = np.random.default_rng(0)
    length_S = rng.integers(longest // 4, longest + 1, sequences)
    number = int(length_S.sum())
    ids_T, starts_T = rng.integers(5, entries.vocab_size, number), rng.random(number) < 0.7
    if not masks:
        return packed(ids_T, ids_T, np.zeros(number, bool), length_S, entries, machine, device)
    texts = Ragged(ids_T.astype(np.uint16), np.array([0, number]), starts_T, None)
    begin_S = np.cumsum(length_S) - length_S
    return masked_batch(texts, begin_S, length_S, np.arange(sequences), 0.15, 1, 2, entries, machine, device)


def pretraining_update(
    module: Any,
    name: str,
    machine: Machine,
    device: str,
    sequences: int,
    longest: int = 126,
    skip_from: int = 6,
) -> dict[str, Any]:
    """One update by the objective `name`; `ict` is that of the Inverse Cloze Task."""
    batch = pretraining_batch(module, machine, device, sequences, longest, masks=name != "ict")
    contrast = pretraining.SPANS
    if name == "ict":
        contrast = pretraining.Contrast("ict", inverse_cloze, module["projection"])
    return pretraining.update(
        module,
        batch,
        objective("contrastive_only" if name == "ict" else name),
        skip_from=skip_from,
        pairs=name in ("cocondenser", "contrastive_only", "ict"),
        contrast=contrast,
        cache=machine.gradient_cache,
        key=(1, 2),
        device=device,
    )


def finetuning_update(
    towers: Towers,
    loss: str,
    machine: Machine,
    device: str,
    questions: int,
    own: int,
    longest: int = 128,
    share_negatives: int | None = None,
) -> dict[str, Any]:
    """One update of a bi-encoder on `questions` questions of `own` passages each."""
    vocabulary = towers.encoders[0].model.config.vocab_size
    passages_QN = np.arange(questions * own).reshape(questions, own)
    excluded_QP = np.zeros((questions, questions * own), bool)
    excluded_QP[0, -1] = questions > 1
    batch = ExampleBatch(np.arange(questions), passages_QN, excluded_QP)
    config = CONFIG.model_copy(update={"loss": loss, "share_negatives": share_negatives})
    scores = None
    if loss == "soft_labels":
        key_S = keys(batch.queries_Q.repeat(own), passages_QN.ravel())
        score_S = np.random.default_rng(1).standard_normal(len(key_S)).astype(np.float32)
        scores = Scores(np.append(key_S, NO_PAIR), np.append(score_S, np.float32("nan")))
    ids = rows(questions, 6, 16, vocabulary) + rows(questions * own, longest // 3, longest, vocabulary)
    of_vectors = loss_of(config, batch, scores, towers.scorer, device)
    batch = finetuning.prepare_rows(towers, ids, questions, of_vectors, machine, device)
    return finetuning.update(towers, batch, machine, (1, 2), device)


def cross_encoder_update(
    model: Any, loss: str, machine: Machine, device: str, questions: int, own: int, longest: int = 128
) -> dict[str, Any]:
    """One update of a cross-encoder on `questions` questions of `own` passages each."""
    pairs = rows(questions * own, longest // 3, longest, model.config.vocab_size)
    of_group = {"listwise": cross_training.listwise, "pointwise": cross_training.pointwise}[loss]
    paired = PairRows(pairs, np.full(len(pairs), 6))
    batch = cross_training.prepare_pairs(model, paired, (questions, own), of_group, machine, device)
    return cross_training.update(model, batch, machine, (1, 2), device)


def sentences_update(towers: Towers, kind: str, machine: Machine, device: str, examples: int) -> dict[str, Any]:
    """One update of sentence similarity on `examples` rows of a table of this kind."""
    rng = np.random.default_rng(2)
    columns: dict[str, Any] = {
        "score": pa.array(rng.random(examples)),
        "label": pa.array(rng.integers(0, kinds.LABELS, examples), pa.int8()),
    }
    ids = rows(len(TEXTS[kind]) * examples, 6, 40, towers.encoders[0].model.config.vocab_size)
    loss = kinds.loss_of(kind, pa.table(columns), 1.0, towers.scorer, device)
    batch = finetuning.prepare_rows(towers, ids, 0, loss, machine, device)
    return finetuning.update(towers, batch, machine, (1, 2), device)


@contextmanager
def no_wait(device: str) -> Iterator[None]:
    """On a GPU, an error in the block if the host waits for it."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def agreement(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> tuple[float, float]:
    """Returns the least cosine of two gradients of a parameter, and the largest relative difference of their norms.

    Left out are parameters whose gradient is rounding noise: a thousandth of the whole gradient's norm or less, as
    that of the keys' biases, which attention does not depend on.
    """
    cosines, differences = [1.0], [0.0]
    least = 1e-3 * sum(float(x.double().norm()) ** 2 for x in theirs.values()) ** 0.5
    for name, expected in theirs.items():
        one, other = ours[name].double().flatten(), expected.double().flatten()
        if other.norm() > least:
            cosines.append(float(torch.nn.functional.cosine_similarity(one, other, dim=0)))
            differences.append(abs(float(one.norm() / other.norm()) - 1))
    return min(cosines), max(differences)


def check_gradients(of_gpu: dict[str, torch.Tensor], of_cpu: dict[str, torch.Tensor]) -> None:
    """Fails unless they agree within the precision of bfloat16."""
    cosine, difference = agreement(of_gpu, of_cpu)
    assert cosine > 0.99
    assert difference < 0.03


def gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    """Returns copies of the gradients on the CPU, by the parameters' names."""
    return {name: p.grad.cpu().clone() for name, p in module.named_parameters() if p.grad is not None}
