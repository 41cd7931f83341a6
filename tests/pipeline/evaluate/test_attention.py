"""The entropy of [CLS]'s attention, compared with the weights of transformers and with closed forms."""

import json
import math
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from small import make
from transformers import BertConfig, BertForMaskedLM, BertModel, RobertaConfig, RobertaModel

from pipeline.errors import InputError
from pipeline.evaluate.attention import AttentionConfig, attention, draw_sections
from pipeline.evaluate.attention_entropy import entropy, entropy_rows
from pipeline.modeling.checkpoint import load_encoder, save_checkpoint
from pipeline.modeling.inputs import pack
from pipeline.modeling.transformer import new_head
from pipeline.tokenization.token_files import Tokens

CONFIG = AttentionConfig(sections=30, corpus="pretraining", length=24, seed=0)
SHAPE = {"vocab_size": 60, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 32,
         "max_position_embeddings": 40, "initializer_range": 0.5}  # fmt: skip


def rows(lengths: list[int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.concatenate(([2], rng.integers(5, 60, n - 2), [3])) for n in lengths]


def from_weights(model: BertModel | RobertaModel, row: np.ndarray) -> np.ndarray:
    """[L, H], from the attention weights of transformers, row by row, in float64."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(input_ids=torch.from_numpy(row)[None], output_attentions=True).attentions
    weights_LHn = torch.stack(attentions)[:, 0, :, 0].double()
    return -(weights_LHn * weights_LHn.log()).sum(-1).numpy()


@pytest.mark.parametrize(
    "model",
    [
        lambda: BertModel(BertConfig(**SHAPE), add_pooling_layer=False),
        lambda: RobertaModel(RobertaConfig(**SHAPE, pad_token_id=1), add_pooling_layer=False),
    ],
    ids=["bert", "roberta"],
)
@pytest.mark.parametrize("budget", [1, 60, 10_000])
def test_entropy_equals_that_of_the_weights_of_transformers(model, budget):
    torch.manual_seed(0)
    model, ids, done = model().eval(), rows([9, 30, 3, 9, 17, 30, 4]), []
    actual = entropy_rows(model, ids, budget, done.append)
    assert actual.shape == (7, 3, 4)
    assert sum(done) == 7
    np.testing.assert_allclose(actual, [from_weights(model, row) for row in ids], atol=2e-5)
    assert actual.std() > 0.1  # the compared values are not all equal


def test_uniform_attention_over_n_tokens_has_entropy_log_n():
    model = BertModel(BertConfig(**SHAPE), add_pooling_layer=False).eval()
    for layer in model.encoder.layer:
        torch.nn.init.zeros_(layer.attention.self.query.weight)
    actual = entropy_rows(model, rows([3, 8, 31]), 1000, lambda count: None)
    expected = np.log([3, 8, 31])[:, None, None]
    np.testing.assert_allclose(actual, np.broadcast_to(expected, actual.shape), rtol=1e-6)


def test_entropy_of_known_weights():
    """Two heads of two dimensions: weights (1/4, 3/4) and (1, 0), then (1/3, 1/3, 1/3) and (1/2, 1/4, 1/4)."""
    at = pack([np.zeros(2, np.int64), np.zeros(3, np.int64)], "cpu").every
    score = math.sqrt(2) * np.array([[0, 0], [math.log(3), -1e4], [0, math.log(2)], [0, 0], [0, 0]])  # [T, H]
    key_TD = torch.tensor(np.stack([score, np.zeros_like(score)], -1).reshape(5, 4), dtype=torch.float32)
    query_BD = torch.tensor([[1.0, 9.0, 1.0, 9.0]] * 2)
    quarter = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    expected = [[quarter, 0.0], [math.log(3), 1.5 * math.log(2)]]
    torch.testing.assert_close(entropy(query_BD, key_TD, at, 2), torch.tensor(expected))


def test_the_table_holds_the_means_over_sections_and_heads(world, work, inline):
    done, other = work(), world.checkpoint.parent / "other"
    model = load_encoder(world.checkpoint)
    data = Tokens.open(world.tokens)
    if not other.exists():
        torch.manual_seed(5)
        save_checkpoint(other, BertModel(model.config, add_pooling_layer=False), world.checkpoint)
    metrics = attention(CONFIG, world.tokens, done, pretrained=world.checkpoint, stage1=other)
    table = pq.read_table(done.out / "attention.parquet").to_pylist()
    assert [(row["model"], row["layer"]) for row in table] == [(m, n) for m in ("pretrained", "stage1") for n in (1, 2)]
    picked = draw_sections(data.passages.offsets, 30, 0)
    texts = [np.concatenate(([2], data.passages[row][:22], [3])).astype(np.int64) for row in picked]
    assert {len(text) for text in texts} > {24}, "some are cut, some are not"
    for name, folder in (("pretrained", world.checkpoint), ("stage1", other)):
        expected_LH = np.mean([from_weights(load_encoder(folder), text) for text in texts], 0)
        rows_of_model = [row for row in table if row["model"] == name]
        np.testing.assert_allclose([row["entropy"] for row in rows_of_model], expected_LH.mean(1), atol=2e-5)
        np.testing.assert_allclose([row["low"] for row in rows_of_model], expected_LH.min(1), atol=2e-5)
        np.testing.assert_allclose([row["high"] for row in rows_of_model], expected_LH.max(1), atol=2e-5)
        assert metrics[f"{name}/layer 2"] == pytest.approx(rows_of_model[1]["entropy"])
    assert (metrics["sections"], metrics["tokens"]) == (30, sum(map(len, texts)))
    assert len(metrics) == 4


def test_processes_change_no_byte_and_shard_sizes_change_only_the_last_digits(world, work, inline, monkeypatch):
    reports, tables = [], []
    for shard, workers in ((250, 1), (7, 1), (7, 3)):
        monkeypatch.setattr("pipeline.evaluate.attention.SHARD", shard)
        done = work(f"{shard}-{workers}", workers=workers, progress=lambda *report: reports.append(report))
        attention(CONFIG, world.tokens, done, pretrained=world.checkpoint, stage1=world.checkpoint)
        assert reports[-1][:3] == (60, 60, "sections")
        tables.append(done.out / "attention.parquet")
    assert tables[1].read_bytes() == tables[2].read_bytes()
    one, other = (pq.read_table(table)["entropy"].to_numpy() for table in tables[:2])
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_the_passage_encoder_of_an_untied_model_is_used(world, work, inline, tmp_path):
    torch.manual_seed(6)
    untied, other = tmp_path / "untied", BertModel(load_encoder(world.checkpoint).config, add_pooling_layer=False)
    shutil.copytree(world.checkpoint, untied / "passage")
    save_checkpoint(untied / "query", other, world.checkpoint)
    done = work()
    attention(CONFIG, world.tokens, done, pretrained=world.checkpoint, stage1=untied)
    pretrained, stage1 = np.split(pq.read_table(done.out / "attention.parquet")["entropy"].to_numpy(), 2)
    np.testing.assert_array_equal(pretrained, stage1)


def test_a_condenser_checkpoint_is_read_without_its_heads(tmp_path, work, inline):
    tokens, start = make(tmp_path)
    lm = BertForMaskedLM.from_pretrained(start)
    save_checkpoint(tmp_path / "condenser", lm, start, new_head(lm, 2).state_dict())
    done = work()
    metrics = attention(CONFIG, tokens, done, pretrained=tmp_path / "condenser", model=start)
    assert metrics["pretrained/layer 2"] == metrics["model/layer 2"]


def test_attention_runs_in_a_child_process(world, work):
    done = work()
    metrics = attention(CONFIG, world.tokens, done, pretrained=world.checkpoint)
    assert 0 < metrics["pretrained/layer 2"] < math.log(24)
    assert [path.name for path in done.out.iterdir()] == ["attention.parquet"]


def test_the_length_is_limited_by_the_positions_of_the_model(world, work, inline):
    done = work()
    metrics = attention(
        CONFIG.model_copy(update={"length": 512, "sections": 500}), world.tokens, done, pretrained=world.checkpoint
    )
    data = Tokens.open(world.tokens)
    assert metrics["sections"] == len(data.passages)
    assert metrics["tokens"] == np.minimum(data.passages.lengths + 2, 64).sum()


def test_passages_without_a_token_are_not_sections():
    offsets = np.array([0, 0, 4, 4, 9, 9])
    assert draw_sections(offsets, 9, 0).tolist() == [1, 3]
    assert len(draw_sections(offsets, 1, 0)) == 1
    assert {int(draw_sections(offsets, 1, seed)[0]) for seed in range(20)} == {1, 3}
    with pytest.raises(InputError, match=r"^attention: no passage has a token"):
        draw_sections(np.array([0, 0]), 5, 0)


def test_a_model_with_too_small_a_vocabulary_is_refused(world, work, tmp_path):
    shutil.copytree(world.tokens, tmp_path / "tokens")
    specials = json.loads((world.tokens / "specials.json").read_text())
    (tmp_path / "tokens" / "specials.json").write_text(json.dumps({**specials, "vocab_size": 999}))
    with pytest.raises(InputError, match=r"checkpoint: .* 305 tokens, but the tokenizer has 999"):
        attention(CONFIG, tmp_path / "tokens", work(), pretrained=world.checkpoint)
