"""The published code that the benchmarks compare with computes the same as this project's step."""

import numpy as np
import pytest
import torch
from machines import make_machine
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

from benchmarks import published
from pipeline.cross_encoder import train as cross_training
from pipeline.cross_encoder.pairs import PairRows
from pipeline.finetune import losses
from pipeline.finetune.step import backward, rank_pieces
from pipeline.modeling import transformer
from pipeline.modeling.biencoder import Encoder, vectors
from pipeline.modeling.inputs import pack
from pipeline.pretrain import masking, step
from pipeline.pretrain.objectives import objective
from pipeline.tokenization.token_files import Ragged, Specials

SPECIALS = Specials(vocab_size=60, pad=0, unk=1, cls=2, sep=3, mask=4)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("pairs", [False, True])
def test_the_published_step_gives_our_loss_and_gradients(pairs, attention):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    texts = Ragged(rng.integers(5, 60, 900).astype(np.uint16), np.array([0, 900]), rng.random(900) < 0.7, None)
    machine, begin_S, length_S = make_machine(token_budget=50), np.arange(8) * 100, rng.integers(5, 28, 8)
    batch = masking.masked_batch(texts, begin_S, length_S, np.arange(8), 0.15, 1, 2, SPECIALS, machine, "cpu")
    lm = BertForMaskedLM(BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
                                    intermediate_size=64, max_position_embeddings=32))  # fmt: skip
    module = torch.nn.ModuleDict({"lm": lm, "head": transformer.new_head(lm, 2)}).eval()
    parts = step.update(
        module, batch, objective("condenser"), skip_from=1, pairs=pairs, cache="always", key=(0, 0), device="cpu"
    )
    ours = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    padded_batch = published.padded(batch, 32, SPECIALS.pad)
    loss = (published.cocondenser if pairs else published.condenser)(module, padded_batch, 1, 3, attention)
    assert sum(float(parts.get(name, 0.0)) for name in ("head_mlm", "late_mlm", "contrastive")) == pytest.approx(
        float(loss)
    )
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_published_fine_tuning_gives_our_loss_and_gradients(attention):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    config = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
                        intermediate_size=64, max_position_embeddings=32)  # fmt: skip
    encoder = Encoder(BertModel(config, add_pooling_layer=False).eval(), "cls")
    ids = [rng.integers(5, 60, n) for n in (5, 9, 3, *rng.integers(10, 28, 6))]
    nothing_QP = torch.zeros(3, 6, dtype=torch.bool)
    ours = backward(
        encoder.model,
        lambda piece: vectors(encoder, pack([ids[row] for row in piece.row_B], "cpu")),
        rank_pieces(np.array([len(row) for row in ids]), 3, True, None, 50),
        (9, 32),
        lambda vectors_RE: losses.contrastive(vectors_RE[:3], vectors_RE[3:], nothing_QP, 1.0),
        True,
        "cpu",
    )
    gradients = {name: p.grad.clone() for name, p in encoder.model.named_parameters()}
    encoder.model.zero_grad()
    encoder.model.set_attn_implementation(attention)
    loss = published.biencoder(encoder.model, published.filled(ids[:3], 12, 0), published.filled(ids[3:], 32, 0))
    assert float(ours) == pytest.approx(float(loss))
    for name, parameter in encoder.model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=3e-5)


def test_the_published_fine_tuning_of_two_encoders_gives_the_gradients_of_both():
    rng, config = np.random.default_rng(0), small_config()
    first, second = (BertModel(config, add_pooling_layer=False).eval() for _ in range(2))
    questions, passages = ([rng.integers(5, 60, n) for n in lengths] for lengths in ((5, 9), (20, 11, 26, 14)))
    loss = published.biencoder(first, published.filled(questions, 12, 0), published.filled(passages, 28, 0), second)
    gradients = [next(model.parameters()).grad.clone() for model in (first, second)]
    for model in (first, second):
        model.zero_grad()
    vectors_of = [
        vectors(Encoder(model, "cls"), pack(sorted(ids, key=len), "cpu"))
        for model, ids in ((first, questions), (second, passages))
    ]
    by_length = np.argsort([len(row) for row in passages], kind="stable")
    passages_PE = vectors_of[1][torch.from_numpy(np.argsort(by_length))]
    expected = losses.contrastive(vectors_of[0], passages_PE, torch.zeros(2, 4, dtype=torch.bool), 1.0)
    expected.backward()
    assert float(loss) == pytest.approx(float(expected.detach()))
    for model, gradient in zip((first, second), gradients, strict=True):
        torch.testing.assert_close(gradient, next(model.parameters()).grad, rtol=1e-4, atol=3e-5)


def test_the_published_cross_encoder_gives_our_loss_and_gradients():
    rng = np.random.default_rng(0)
    model = BertForSequenceClassification(small_config(num_labels=1)).eval()
    ids = [rng.integers(5, 60, n) for n in rng.integers(10, 28, 6)]
    second_N = np.array([4, 4, 4, 6, 6, 6])
    machine, pairs = make_machine(token_budget=50), PairRows(ids, second_N)
    batch = cross_training.prepare_pairs(model, pairs, (2, 3), cross_training.listwise, machine, "cpu")
    parts = cross_training.update(model, batch, machine, (0, 0), "cpu")
    ours = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    types_BL = torch.from_numpy((np.arange(28) >= second_N[:, None]).astype(np.int64))
    loss = published.cross_encoder(model, published.filled(ids, 28, 0), types_BL, 3)
    assert float(parts["loss"]) == pytest.approx(float(loss))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-4, atol=3e-5)


def small_config(**fields):
    torch.manual_seed(0)
    return BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=64,
                      max_position_embeddings=32, **fields)  # fmt: skip
