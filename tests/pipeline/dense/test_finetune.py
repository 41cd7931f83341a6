import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from encoders import ENCODER
from safetensors.numpy import load_file

from pipeline.errors import InputError
from pipeline.finetune import FinetuneConfig, finetune
from pipeline.training import Optimiser

OPTIMISER = Optimiser(
    learning_rate=3e-3,
    betas=(0.9, 0.98),
    epsilon=1e-6,
    weight_decay=0.01,
    clip_norm=1.0,
    warmup_ratio=0.1,
    warmup_steps=None,
    seed=3,
)
CONFIG = FinetuneConfig(
    epochs=2,
    batch_queries=7,
    negatives_per_query=2,
    negatives_from="bm25",
    negative_depth=0,
    mix="twice",
    positives_considered=3,
    max_queries=0,
    share_negatives=0,
    passage_tokens=40,
    temperature=1.0,
    mask_positives=True,
    dropout=0.0,
    seed=0,
    optimiser=OPTIMISER,
)


def train(world, work, mined=None, start=None, encoder=ENCODER, **fields):
    config = CONFIG.model_copy(update=fields)
    start = start or world.checkpoint
    metrics = finetune(config, encoder, world.collection, world.tokens, start, world.bm25, mined, work)
    return metrics, work.out


def encoder(**fields):
    return ENCODER.model_copy(update=fields)


def weights(folder):
    return load_file(folder / "model.safetensors")


def assert_close(one, other, tolerance):
    assert one.keys() == other.keys()
    for name in one:
        if name.endswith("key.bias"):  # its gradient is zero in exact arithmetic: Adam makes steps of rounding errors
            continue
        np.testing.assert_allclose(one[name], other[name], atol=tolerance, err_msg=name)


def test_training_lowers_the_loss_and_writes_a_checkpoint(world, work, inline):
    metrics, out = train(world, work(), epochs=30)
    history = pq.read_table(out / "history.parquet").to_pydict()
    assert metrics["updates"] == len(history["loss"]) == 30 * 4
    assert metrics["tokens"] == sum(history["tokens"])
    assert metrics["loss_last"] < 0.5 * np.mean(history["loss"][:5])
    assert (metrics["queries"], metrics["examples_per_epoch"], metrics["negatives_filled"]) == (24, 24, 0)
    assert metrics["questions_cut"] == 0
    assert json.loads((out / "modules.json").read_text())


def test_equal_seeds_give_equal_bytes(world, work, inline):
    one, two, other = (train(world, work(str(i)), dropout=0.1, seed=seed)[1] for i, seed in enumerate((0, 0, 1)))
    for path in one.iterdir():
        if path.is_file():
            assert path.read_bytes() == (two / path.name).read_bytes(), path.name
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_cached_training_equals_plain_training(world, work, inline, chunk):
    plain = weights(train(world, work("plain"))[1])
    cached = weights(train(world, work("cached", chunk_spans=chunk))[1])
    assert_close(plain, cached, 2e-5)


def test_token_budget_does_not_change_training(world, work, inline):
    assert_close(
        weights(train(world, work("small", token_budget=1))[1]),
        weights(train(world, work("large", token_budget=100_000))[1]),
        2e-5,
    )


def test_untied_encoders_start_equal_and_part(world, work, inline):
    _, out = train(world, work(), encoder=encoder(tied=False))
    question, passage = weights(out / "query"), weights(out / "passage")
    assert not (out / "model.safetensors").exists()
    name = "encoder.layer.0.attention.self.query.weight"
    assert np.abs(question[name] - passage[name]).max() > 1e-4
    train(world, work("again"), start=out, encoder=encoder(tied=False))  # goes on from two encoders
    with pytest.raises(InputError, match="tied"):
        train(world, work("tied"), start=out)


def test_stage_two_sees_each_question_twice(world, work, inline, tmp_path, write_negatives):
    rows = [(f"q{q}", f"d{(q + 1) % 60}-1", "mined", 1, 1.0) for q in range(20)]
    write_negatives(tmp_path / "mined" / "negatives.parquet", rows)
    metrics, _ = train(world, work(), mined=tmp_path / "mined")
    assert metrics["examples_per_epoch"] == 48
    assert metrics["negatives_filled"] == 20 * 1 + 4 * 2


def test_masking_positives_matters(world, work, inline):
    """Two epochs in one batch: each question stands there twice, its other positive or its own beside its own."""
    masked = train(world, work("masked"), batch_queries=48)[0]["loss_last"]
    unmasked = train(world, work("unmasked"), batch_queries=48, mask_positives=False)[0]["loss_last"]
    assert masked < unmasked


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"negatives_per_query": 119}, "negatives_per_query: 119"),
        ({"passage_tokens": 128}, "passage_tokens: 128"),
        ({"negatives_from": "collection"}, "negatives.parquet: missing"),
    ],
)
def test_bad_input_is_one_line(world, work, inline, fields, message):
    with pytest.raises(InputError, match=message) as error:
        train(world, work(), **fields)
    assert "\n" not in str(error.value)


def test_zero_temperature_is_refused():
    with pytest.raises(ValueError, match="temperature"):
        FinetuneConfig(**{**CONFIG.model_dump(), "temperature": 0.0})


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [0, 4])
def test_two_ranks_equal_one(world, work, chunk):
    one = weights(train(world, work("one", chunk_spans=chunk))[1])
    two = weights(train(world, work("two", chunk_spans=chunk, ranks=2))[1])
    assert_close(one, two, 2e-5)


@pytest.mark.slow
def test_dropout_is_the_same_for_one_and_two_ranks_at_aligned_chunks(world, work):
    settings = {"batch_queries": 8, "epochs": 1, "dropout": 0.2}
    one = weights(train(world, work("one", chunk_spans=4), **settings)[1])
    two = weights(train(world, work("two", chunk_spans=4, ranks=2), **settings)[1])
    assert_close(one, two, 2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [0, 4])
def test_a_rank_may_be_without_questions(world, work, chunk):
    settings = {"batch_queries": 1, "epochs": 1, "max_queries": 3}
    one = weights(train(world, work("one", chunk_spans=chunk), **settings)[1])
    two = weights(train(world, work("two", chunk_spans=chunk, ranks=2), **settings)[1])
    assert_close(one, two, 2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("chunk", [0, 4])
def test_a_gpu_learns_what_the_cpu_learns(world, work, chunk):
    cpu, _ = train(world, work("cpu", chunk_spans=chunk))
    gpu, _ = train(world, work("gpu", chunk_spans=chunk, device="cuda"))
    assert gpu["loss"] == pytest.approx(cpu["loss"], rel=0.1)  # bfloat16
