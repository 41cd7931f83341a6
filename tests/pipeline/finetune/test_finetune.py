import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encoders import ENCODER
from finetuned import CONFIG, train
from safetensors.numpy import load_file

from pipeline.data.collection import schemas, write_table
from pipeline.errors import InputError
from pipeline.finetune import examples
from pipeline.finetune.config import FinetuneConfig, TrainSubset
from pipeline.finetune.validation import ValidationConfig
from pipeline.modeling.model_files.sentence_transformers_files import read_vector


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
    plain = weights(train(world, work("plain", gradient_cache="never"))[1])
    cached = weights(train(world, work("cached", gradient_cache_chunk=chunk, gradient_cache="always"))[1])
    assert_close(plain, cached, 2e-5)


def test_token_budget_does_not_change_training(world, work, inline):
    assert_close(
        weights(train(world, work("small", token_budget=1))[1]),
        weights(train(world, work("large", token_budget=100_000))[1]),
        2e-5,
    )


def test_untied_encoders_start_equal_and_diverge(world, work, inline):
    _, out = train(world, work(), encoder=encoder(tied=False))
    question, passage = weights(out / "query"), weights(out / "passage")
    assert not (out / "model.safetensors").exists()
    name = "encoder.layer.0.attention.self.query.weight"
    assert np.abs(question[name] - passage[name]).max() > 1e-4
    train(world, work("again"), start=out, encoder=encoder(tied=False))  # continues with two encoders
    with pytest.raises(InputError, match="tied"):
        train(world, work("tied"), start=out)


def test_stage_two_sees_each_question_twice(world, work, inline, tmp_path, write_negatives):
    rows = [(f"q{q}", f"d{(q + 1) % 60}-1", "mined", 1, 1.0) for q in range(20)]
    write_negatives(tmp_path / "mined" / "negatives.parquet", rows)
    metrics, _ = train(world, work(), mined=tmp_path / "mined")
    assert metrics["examples_per_epoch"] == 48
    assert metrics["negatives_filled"] == 20 * 1 + 4 * 2


def test_masked_positives_lower_the_loss(world, work, inline):
    """Two epochs in one batch: each question occurs twice, with its other positive or the same one."""
    masked = train(world, work("masked"), batch_queries=48)[0]["loss_last"]
    unmasked = train(world, work("unmasked"), batch_queries=48, mask_positives=False)[0]["loss_last"]
    assert masked < unmasked


def write_scores(folder, world, score):
    """A teacher's scores of every training question with every passage: score(question, passage's document)."""
    ids = pq.read_table(world.collection / "passages.parquet")["passage_id"].to_pylist()
    rows = [(f"q{q}", p, score(q, int(p[1:].split("-")[0]))) for q in range(24) for p in ids]
    columns = dict(zip(("query_id", "passage_id", "score"), map(list, zip(*rows, strict=True)), strict=True))
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "scores.parquet")
    return folder


def test_a_certain_teacher_has_the_same_effect_as_the_judgements(world, work, inline, tmp_path):
    sure = write_scores(tmp_path / "sure", world, lambda q, d: 100.0 if d == q else -100.0)
    hard = weights(train(world, work("hard"))[1])
    soft = weights(train(world, work("soft"), soft_labels=sure, loss="soft_labels")[1])
    assert_close(hard, soft, 1e-6)
    unsure = write_scores(tmp_path / "unsure", world, lambda q, d: 1.0 if d == q else 0.5)
    other = weights(train(world, work("unsure"), soft_labels=unsure, loss="soft_labels")[1])
    name = "encoder.layer.0.attention.self.query.weight"
    assert np.abs(other[name] - hard[name]).max() > 1e-4


def test_pairs_without_a_score_are_reported_before_training(world, work, inline, tmp_path):
    folder = write_scores(tmp_path / "some", world, lambda q, d: 0.0)
    rows = pq.read_table(folder / "scores.parquet")
    pq.write_table(rows.slice(0, 23 * 120), folder / "scores.parquet")  # none of q23
    with pytest.raises(InputError, match="no score of 11 pairs"):
        train(world, work(), soft_labels=folder, loss="soft_labels")
    with pytest.raises(InputError, match="needs a cross-encoder's scores"):
        train(world, work("none"), loss="soft_labels")


def test_pseudo_labelled_questions_are_trained_on(world, work, inline, tmp_path, write_negatives):
    """Questions of the collection without a judgement, and q5, which already has one."""
    queries = pq.read_table(world.collection / "queries.parquet").to_pandas()
    queries.loc[queries.query_id.isin(["q24", "q26"]), "split"] = "train"
    collection = tmp_path / "collection"
    shutil.copytree(world.collection, collection)
    queries.to_parquet(collection / "queries.parquet")
    (tmp_path / "pseudo").mkdir()
    qrels = [("train", "q24", "d24-0", 1), ("train", "q26", "d26-1", 1)]
    write_table(tmp_path / "pseudo" / "qrels.parquet", schemas()["qrels"], qrels)
    rows = [(q, f"d{d}-0", "pseudo", 1, 0.0) for q in ("q24", "q26") for d in range(3)]
    write_negatives(tmp_path / "pseudo" / "negatives.parquet", rows)
    larger = replace(world, collection=collection)
    metrics, _ = train(larger, work(), pseudo_labels=tmp_path / "pseudo")
    assert (metrics["queries"], metrics["negatives_filled"]) == (26, 0)
    metrics, _ = train(larger, work("few"), pseudo_labels=tmp_path / "pseudo", subset=TrainSubset(queries=4, seed=0))
    assert metrics["queries"] == 6


def test_learning_to_rank_trains_a_scorer(world, work, inline):
    _, out = train(world, work(), epochs=20, loss="learning_to_rank")
    history = pq.read_table(out / "history.parquet").to_pydict()
    assert np.mean(history["loss"][-8:]) < np.mean(history["loss"][:8]) - 0.05
    scorer = load_file(out / "scorer.safetensors")
    assert {name: x.shape for name, x in scorer.items()} == {"weight": (1, 32), "bias": (1,)}


@pytest.mark.parametrize("loss", ["contrastive", "learning_to_rank"])
def test_validation_follows_each_epoch(world, work, inline, loss):
    validation = ValidationConfig(questions=12, candidates=10, keep="last")
    metrics, out = train(world, work(), epochs=4, loss=loss, validation=validation)
    rows = pq.read_table(out / "validation.parquet").to_pylist()
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 4), (2, 8), (3, 12), (4, 16)]
    assert all(0 < row["RR@10"] <= 1 for row in rows)
    assert (metrics["dev_RR@10"], metrics["dev_epoch"]) == (rows[-1]["RR@10"], 4)
    assert len({row["RR@10"] for row in rows}) > 1


def test_the_best_epoch_is_kept(world, work, inline, monkeypatch):
    """The measured figures are fixed: the second epoch is the best."""
    figures = iter([0.5, 0.9, 0.9, 0.1])
    monkeypatch.setattr("pipeline.finetune.validator.Validator.measure", lambda self: next(figures))
    validation = ValidationConfig(questions=12, candidates=10, keep="best")
    metrics, best = train(world, work("best"), epochs=4, validation=validation)
    assert (metrics["dev_RR@10"], metrics["dev_epoch"]) == (0.9, 2)
    state = load_file(work_folder(best) / "best-8.safetensors")
    assert_close({k.removeprefix("0.model."): v for k, v in state.items()}, weights(best), 0)
    figures = iter([0.5, 0.9, 0.9, 0.1])
    last = train(world, work("last"), epochs=4, validation=validation.model_copy(update={"keep": "last"}))[1]
    assert (best / "model.safetensors").read_bytes() != (last / "model.safetensors").read_bytes()


def work_folder(out):
    return out.parent / "checkpoints"


def test_the_best_epoch_without_validation_is_refused():
    with pytest.raises(ValueError, match="needs questions above 0"):
        ValidationConfig(questions=0, candidates=10, keep="best")


def test_questions_share_negatives_within_their_group(world, work, inline):
    alone = train(world, work("alone"), share_negatives=1)[0]["loss_last"]
    shared = train(world, work("shared"))[0]["loss_last"]
    assert alone < shared  # fewer passages to distinguish
    assert train(world, work("whole"), share_negatives=7)[0]["loss_last"] == shared


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_projection_prefix_and_normalisation_are_trained_and_saved(world, work, inline, pooling):
    config = encoder(pooling=pooling, projection=6, normalise=True, question_prefix="w1", title_separator="space")
    _, out = train(world, work(), encoder=config, epochs=20, temperature=0.1)
    history = pq.read_table(out / "history.parquet").to_pydict()
    assert np.mean(history["loss"][-8:]) < 0.8 * np.mean(history["loss"][:8])
    vector = read_vector(out)
    assert (vector.pooling, vector.normalise, vector.projection.weight_ED.shape) == (pooling, True, (6, 16))
    again, _ = train(world, work("again"), start=out, encoder=config)  # continues with its projection
    assert again["loss_last"] < np.mean(history["loss"][:8])


def test_sequential_batches_keep_the_order_of_the_collection(world, work, inline, monkeypatch):
    seen = []
    batch = examples.draw_batch
    monkeypatch.setattr("pipeline.finetune.examples.draw_batch", lambda *a: seen.extend(a[2].tolist()) or batch(*a))
    train(world, work(), batch_order="sequential")
    assert seen == [*range(24)] * 2
    seen.clear()
    train(world, work("random"))
    assert sorted(seen[:24]) == sorted(seen[24:]) == [*range(24)]
    assert seen[:24] != seen[24:]


@pytest.mark.parametrize("order", ["abs_greedy", "abs_beam"])
def test_batches_are_scheduled(world, work, inline, monkeypatch, order):
    """Each question occurs once per epoch, in batches at least as hard as random ones that differ between epochs."""
    seen = []
    batch = examples.draw_batch
    monkeypatch.setattr("pipeline.finetune.examples.draw_batch", lambda *a: seen.append(a[2].tolist()) or batch(*a))
    settings = {"batch_order": order, "epochs": 3, "negatives_per_query": 0}
    metrics, out = train(world, work(), **settings)
    epochs = [seen[first : first + 4] for first in (0, 4, 8)]
    assert all(sorted(i for one in epoch for i in one) == [*range(24)] for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert metrics["updates"] == 12
    rows = pq.read_table(out / "schedule.parquet").to_pylist()
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert all(row["scheduled"] >= row["random"] for row in rows)
    again = train(world, work("again"), **settings)[1]
    assert (out / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()


def test_a_scheduled_batch_above_the_number_of_examples_is_refused(world, work, inline):
    with pytest.raises(InputError, match=r"batch_queries: 25 .* only 24"):
        train(world, work(), batch_order="abs_greedy", batch_queries=25)


@pytest.mark.slow
def test_two_ranks_schedule_as_one(world, work):
    settings = {"batch_order": "abs_greedy", "epochs": 2}
    one = weights(train(world, work("one"), **settings)[1])
    two = weights(train(world, work("two", ranks=2), **settings)[1])
    assert_close(one, two, 2e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"negatives_per_query": 119}, "negatives_per_query: 119"),
        ({"passage_tokens": 128}, "passage_tokens: 128"),
        ({"negatives_from": "collection"}, "negatives.parquet: missing"),
    ],
)
def test_invalid_input_is_reported_in_one_line(world, work, inline, fields, message):
    with pytest.raises(InputError, match=message) as error:
        train(world, work(), **fields)
    assert "\n" not in str(error.value)


def test_zero_temperature_is_refused():
    with pytest.raises(ValueError, match="temperature"):
        FinetuneConfig(**{**CONFIG.model_dump(), "temperature": 0.0})


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [None, 4])
def test_two_ranks_equal_one(world, work, chunk):
    one = weights(train(world, work("one", gradient_cache_chunk=chunk))[1])
    two = weights(train(world, work("two", gradient_cache_chunk=chunk, ranks=2))[1])
    assert_close(one, two, 2e-5)


@pytest.mark.slow
def test_dropout_is_the_same_for_one_and_two_ranks_at_aligned_chunks(world, work):
    settings = {"batch_queries": 8, "epochs": 1, "dropout": 0.2}
    one = weights(train(world, work("one", gradient_cache_chunk=4), **settings)[1])
    two = weights(train(world, work("two", gradient_cache_chunk=4, ranks=2), **settings)[1])
    assert_close(one, two, 2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [None, 4])
def test_a_rank_may_be_without_questions(world, work, chunk):
    settings = {"batch_queries": 1, "epochs": 1, "subset": TrainSubset(queries=3, seed=0)}
    one = weights(train(world, work("one", gradient_cache_chunk=chunk), **settings)[1])
    two = weights(train(world, work("two", gradient_cache_chunk=chunk, ranks=2), **settings)[1])
    assert_close(one, two, 2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("chunk", [None, 4])
def test_a_gpu_reaches_the_same_loss_as_the_cpu(world, work, chunk):
    cpu, _ = train(world, work("cpu", gradient_cache_chunk=chunk))
    gpu, _ = train(world, work("gpu", gradient_cache_chunk=chunk, device="cuda"))
    assert gpu["loss_last"] == pytest.approx(cpu["loss_last"], rel=0.1)  # bfloat16
