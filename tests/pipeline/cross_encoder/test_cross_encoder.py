import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from crossed import CONFIG, make_cross_encoder, wordpiece
from encoders import SUBSET
from safetensors.numpy import load_file
from sentence_transformers import CrossEncoder
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pipeline.cross_encoder.cross_encoder import CrossEncoderConfig, cross_encoder, missing
from pipeline.cross_encoder.lengths import read_lengths
from pipeline.cross_encoder.train import listwise, pointwise
from pipeline.errors import InputError


def train(world, start, work, mined=None, **fields):
    config = CONFIG.model_copy(update=fields)
    metrics = cross_encoder(config, SUBSET, world.collection, world.tokens, start, world.bm25, mined, work)
    return metrics, work.out


def weights(folder):
    return load_file(folder / "model.safetensors")


def assert_close(one, other, tolerance=2e-5):
    assert one.keys() == other.keys()
    for name in one:
        if not name.endswith("key.bias"):  # its gradient is zero in exact arithmetic
            np.testing.assert_allclose(one[name], other[name], atol=tolerance, err_msg=name)


@pytest.mark.parametrize("loss", ["listwise", "pointwise"])
def test_training_lowers_the_loss_and_ranks_the_judged_passage_first(world, pair_start, work, inline, loss):
    metrics, out = train(world, pair_start, work(), loss=loss, epochs=40)
    history = pq.read_table(out / "history.parquet").to_pydict()
    assert metrics["updates"] == len(history["loss"]) == 40 * 4
    assert metrics["loss_last"] < 0.5 * np.mean(history["loss"][:5])
    assert (metrics["queries"], metrics["examples_per_epoch"], metrics["questions_cut"]) == (24, 24, 0)
    assert tuple(read_lengths(out)) == (8, 4, 50)
    # With the real package, the judged passage of a question scores above its first negatives.
    questions = pq.read_table(world.collection / "queries.parquet")["text"].to_pylist()[:24]
    rows = pq.read_table(world.collection / "passages.parquet").to_pylist()
    passages = {row["passage_id"]: f"{row['title']} {row['text']}".strip() for row in rows}
    negatives = pq.read_table(world.bm25 / "negatives.parquet").to_pylist()
    lists = [[f"d{d}-0", *(n["passage_id"] for n in negatives if n["query_id"] == f"q{d}")][:5] for d in range(24)]
    pairs = [
        (question, passages[i]) for question, passage_ids in zip(questions, lists, strict=True) for i in passage_ids
    ]
    scores = CrossEncoder(str(out), device="cpu").predict(pairs, show_progress_bar=False).reshape(24, 5)
    assert (scores.argmax(axis=1) == 0).mean() > 0.8


def test_the_first_update_equals_that_of_transformers(world, pair_start, work, inline):
    """The gradient norm in the history equals that of the model of transformers on padded rows."""
    from pipeline.finetune import examples, pools
    from pipeline.modeling.checkpoint import new_classifier

    _, out = train(world, pair_start, work(), epochs=1, batch_queries=24)
    row = pq.read_table(out / "history.parquet").to_pylist()[0]
    pool = pools.read_pools(world.collection, world.bm25)
    batch = examples.draw_batch(pool, 0, examples.epoch_order(CONFIG.seed, 0, 24), examples.Draw(2, None, CONFIG.seed))
    questions = pq.read_table(world.collection / "queries.parquet")["text"].to_pylist()
    passages = pq.read_table(world.collection / "passages.parquet").to_pylist()
    pairs = [
        (questions[q], f"{passages[p]['title']} {passages[p]['text']}".strip())
        for q, passage_numbers in zip(batch.queries_Q, batch.passages_QN, strict=True)
        for p in passage_numbers
    ]
    inputs = AutoTokenizer.from_pretrained(out)(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    model = new_classifier(pair_start, CONFIG.seed)
    logit_QN = model(**inputs).logits.view(24, 3)
    loss = -logit_QN.log_softmax(1)[:, 0].mean()
    loss.backward()
    norm = torch.stack(
        [p.grad.norm() for p in model.parameters() if p.grad is not None and p is not model.classifier.bias]
    ).norm()
    assert row["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert row["gradient_norm"] == pytest.approx(norm.item(), rel=1e-4)


def test_losses():
    logit_QN = torch.tensor([[2.0, 0.5, -1.0], [0.0, 1.0, 3.0]])
    assert listwise(logit_QN) == pytest.approx(float(-F.log_softmax(logit_QN, 1)[:, 0].mean()))
    assert listwise(logit_QN + 7) == pytest.approx(float(listwise(logit_QN)))
    probability = torch.sigmoid(logit_QN)
    right = torch.cat([probability[:, :1], 1 - probability[:, 1:]], 1)
    assert pointwise(logit_QN) == pytest.approx(float(-right.log().mean()))


def test_equal_seeds_give_equal_bytes(world, pair_start, work, inline):
    one, two, other = (
        train(world, pair_start, work(str(i)), dropout=0.1, seed=seed)[1] for i, seed in enumerate((0, 0, 1))
    )
    assert sorted(path.name for path in one.iterdir()) == [
        *(
            "config.json",
            "history.parquet",
            "model.safetensors",
            "pairs.json",
            "tokenizer.json",
            "tokenizer_config.json",
        )
    ]
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes(), path.name
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()
    modes = {path.stat().st_mode for path in one.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_cached_training_equals_plain_training(world, pair_start, work, inline, chunk):
    plain = weights(train(world, pair_start, work("plain"))[1])
    cached = weights(train(world, pair_start, work("cached", gradient_cache_chunk=chunk, gradient_cache="always"))[1])
    assert_close(plain, cached)


def test_token_budget_does_not_change_training(world, pair_start, work, inline):
    small = train(world, pair_start, work("small", token_budget=1))[1]
    assert_close(weights(small), weights(train(world, pair_start, work("large", token_budget=10**5))[1]))


def test_mined_negatives_are_used(world, pair_start, work, inline, tmp_path, write_negatives):
    rows = [(f"q{q}", f"d{(q + 1) % 60}-1", "mined", 1, 1.0) for q in range(20)]
    write_negatives(tmp_path / "mined" / "negatives.parquet", rows)
    metrics, _ = train(world, pair_start, work(), mined=tmp_path / "mined")
    assert metrics["examples_per_epoch"] == 48
    assert metrics["negatives_filled"] == 20 * 1 + 4 * 2


def test_questions_beyond_the_limit_are_counted(world, pair_start, work, inline):
    lengths = [len(text.split()) for text in pq.read_table(world.collection / "queries.parquet")["text"].to_pylist()]
    metrics, _ = train(world, pair_start, work(), question_tokens=5)
    assert metrics["questions_cut"] == sum(n > 3 for n in lengths[:24]) > 0


def test_an_existing_cross_encoder_is_used_without_training(world, pair_start, work, inline, tmp_path):
    """A folder as on the hub, without the files of this project, is used instead of training."""
    existing = make_cross_encoder(pair_start, tmp_path / "ready", seed=9)
    (existing / "pairs.json").unlink()
    assert missing(CONFIG.model_copy(update={"checkpoint": existing})) == []
    metrics, out = train(world, pair_start, work(), checkpoint=existing)
    assert metrics["updates"] == 0
    assert_close(weights(existing), weights(out), 0)
    assert tuple(read_lengths(out)) == (8, 4, 50)
    assert AutoModelForSequenceClassification.from_pretrained(out).config.num_labels == 1


def test_a_checkpoint_of_another_vocabulary_is_reported_in_one_line(world, pair_start, work, tmp_path):
    existing = make_cross_encoder(pair_start, tmp_path / "ready")
    names = json.loads((existing / "tokenizer.json").read_text())
    names["model"]["vocab"]["w7"], names["model"]["vocab"]["w8"] = 13, 12
    (existing / "tokenizer.json").write_text(json.dumps(names))
    with pytest.raises(InputError, match=r"cross_encoder.checkpoint .*: its vocabulary .* entry 12"):
        train(world, pair_start, work(), checkpoint=existing)
    small = tmp_path / "start"
    shutil.copytree(pair_start, small)
    wordpiece(small, 299)
    with pytest.raises(InputError, match="its vocabulary has 305 entries, the tokenizer's 304"):
        train(world, small, work("small"), checkpoint=existing)


def test_a_folder_that_is_not_a_cross_encoder_is_reported_before_a_run(world, pair_start, tmp_path):
    assert missing(CONFIG) == missing(CONFIG.model_copy(update={"checkpoint": tmp_path / "nowhere"})) == []
    (line,) = missing(CONFIG.model_copy(update={"checkpoint": world.checkpoint}))
    assert line.startswith("cross_encoder.checkpoint: ")
    assert line.endswith("config.json: not a classifier of one label (BertModel, 0 labels)")
    (line,) = missing(CONFIG.model_copy(update={"checkpoint": world.collection}))
    assert "config.json: missing" in line


def test_a_cross_encoder_that_contradicts_its_files_is_reported_before_a_run(pair_start, tmp_path):
    config = CONFIG.model_copy(update={"checkpoint": make_cross_encoder(pair_start, tmp_path / "ready")})
    path = config.checkpoint / "config.json"
    own = json.loads(path.read_text())
    path.write_text(json.dumps({**own, "max_position_embeddings": 32}))
    assert missing(config) == [
        f"cross_encoder.checkpoint: {path}: max_position_embeddings is 32, but the weights have 64 positions"
    ]
    path.write_text(json.dumps(own))
    wordpiece(config.checkpoint, 301)
    (line,) = missing(config)
    assert line.endswith("config.json: vocab_size is 305, but the tokenizer has 306 entries")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"negatives_per_query": 119}, "negatives_per_query: 119"),
        ({"passage_tokens": 130}, "cross_encoder: pairs of 139 tokens, but the model in .* has 64 positions"),
        ({"negatives_from": "collection"}, "negatives.parquet: missing"),
    ],
)
def test_bad_input_is_reported_in_one_line(world, pair_start, work, inline, fields, message):
    with pytest.raises(InputError, match=message) as error:
        train(world, pair_start, work(), **fields)
    assert "\n" not in str(error.value)


def test_a_training_resumes_after_a_stop(world, pair_start, work, inline):
    whole = weights(train(world, pair_start, work("whole"), dropout=0.1)[1])

    class Stop(Exception):
        pass

    def stop(done, total, unit, numbers=None):
        if unit == "updates" and done == 6:
            raise Stop

    stopped = work("stopped", checkpoint_minutes=0, progress=stop)
    with pytest.raises(Stop):
        train(world, pair_start, stopped, dropout=0.1)
    assert [path.name for path in stopped.checkpoints.glob("step-*")]
    seen = []
    again = type(stopped)(stopped.out, stopped.checkpoints, stopped.machine, lambda done, *rest: seen.append(done))
    assert_close(whole, weights(train(world, pair_start, again, dropout=0.1)[1]), 0)
    assert seen[0] > 1


def test_no_negatives_are_refused():
    with pytest.raises(ValueError, match="negatives_per_query"):
        CrossEncoderConfig(**{**CONFIG.model_dump(), "negatives_per_query": 0})


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("loss", ["listwise", "pointwise"])
def test_two_ranks_equal_one(world, pair_start, work, chunk, loss):
    one = weights(train(world, pair_start, work("one", gradient_cache_chunk=chunk), loss=loss)[1])
    two = weights(train(world, pair_start, work("two", gradient_cache_chunk=chunk, ranks=2), loss=loss)[1])
    assert_close(one, two)


@pytest.mark.slow
def test_dropout_is_the_same_for_one_and_two_ranks(world, pair_start, work):
    settings = {"batch_queries": 8, "epochs": 1, "dropout": 0.2}
    one = weights(train(world, pair_start, work("one", gradient_cache_chunk=4), **settings)[1])
    two = weights(train(world, pair_start, work("two", gradient_cache_chunk=4, ranks=2), **settings)[1])
    assert_close(one, two)


@pytest.mark.gpu
@pytest.mark.parametrize("chunk", [None, 4])
def test_a_gpu_reaches_the_same_loss_as_a_cpu(world, pair_start, work, chunk):
    cpu, _ = train(world, pair_start, work("cpu", gradient_cache_chunk=chunk), epochs=10)
    gpu, _ = train(world, pair_start, work("gpu", gradient_cache_chunk=chunk, device="cuda"), epochs=10)
    assert gpu["loss_last"] == pytest.approx(cpu["loss_last"], abs=0.1)  # bfloat16
