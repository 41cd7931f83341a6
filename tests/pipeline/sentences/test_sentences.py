"""The stages of sentence tasks on invented tables, with the world's model of 2 layers x 16."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crossed import make_roberta
from machines import make_machine
from ready import sentence
from safetensors.numpy import load_file
from sentences import ENCODER, TRAINING, labelled, scored, triplets

from pipeline.errors import InputError
from pipeline.modeling.model_files.sentence_transformers_files import Vector, read_vector, write_vector
from pipeline.runtime.checkpoints import saved_steps
from pipeline.runtime.work import Work, silent
from pipeline.sentences.model import SentenceEncoder, SentenceModelConfig, missing, sentence_model
from pipeline.sentences.summary import SummaryConfig, Training, summary
from pipeline.sentences.tables import sentence_table
from pipeline.sentences.training import SentenceTokenizer, subset
from pipeline.sentences.tune import TuneConfig, tune
from pipeline.tokenization.tokenizer import read_tokenizer


@dataclass(frozen=True)
class Inputs:
    tables: dict[str, Path]
    start: Path


def new_work(folder: Path) -> Work:
    folder.mkdir(parents=True)
    return Work(folder, folder.parent / f"{folder.name}-checkpoints", make_machine(), silent)


def model(source: Path, folder: Path, encoder: SentenceEncoder = ENCODER, tokenizer: Path | None = None) -> Path:
    config = SentenceModelConfig(checkpoint=source, pretrained=None, revision="main", tokenizer=tokenizer)
    sentence_model(config, encoder, new_work(folder))
    return folder


@pytest.fixture(scope="module")
def inputs(pair_start: Path, tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder = tmp_path_factory.mktemp("sentences")
    tables = {}
    for name, make in (("scored", scored), ("labelled", labelled), ("triplets", triplets)):
        tables[name] = folder / name
        sentence_table(make(folder), new_work(tables[name]))
    return Inputs(tables, model(pair_start, folder / "start"))


def tune_model(
    inputs: Inputs, kind: str, work: Work, epochs: int = 3, rows: int | None = None, start: Path | None = None, **fields
):
    training = TRAINING.model_copy(update=fields)
    config = TuneConfig(epochs=epochs, max_rows=rows)
    return tune(config, training, ENCODER, inputs.tables[kind], start or inputs.start, work), work.out


def same_files(one: Path, other: Path) -> None:
    names = [path.relative_to(one) for path in sorted(one.rglob("*")) if path.is_file()]
    assert names == [path.relative_to(other) for path in sorted(other.rglob("*")) if path.is_file()]
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_a_folder_is_read_as_the_other_flows_read_it(tmp_path) -> None:
    """Its model is in a separate folder, its question prefix has a name."""
    folder = sentence(tmp_path / "given", ("Transformer", "Pooling"), prompts={"query": "query: ", "document": None})
    (folder / "0_Transformer").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).rename(folder / "0_Transformer" / name)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([{**modules[0], "path": "0_Transformer"}, *modules[1:]]))
    vector = read_vector(model(folder, tmp_path / "made"))
    assert (vector.pooling, vector.question_prefix, vector.passage_prefix) == ("mean", "query: ", "")


def test_a_table_is_written_and_counted(tmp_path) -> None:
    config = scored(tmp_path, train=3, others=2)
    test = config.test.read_text().splitlines()
    config.test.write_text("\n".join([*test, config.train.read_text().splitlines()[1]]) + "\n")
    metrics = sentence_table(config, new_work(tmp_path / "table"))
    assert metrics == {
        "kind": "scored", "train": 3, "dev": 2, "dev_in_train": 0, "test": 3, "test_in_train": 1
    }  # fmt: skip
    assert json.loads((tmp_path / "table" / "table.json").read_text()) == metrics
    rows = pq.read_table(tmp_path / "table" / "test.parquet")
    assert rows.schema.names == ["line", "sentence1", "sentence2", "score"]
    assert rows["line"].to_pylist() == [1, 2, 3]
    lines = config.test.read_text().splitlines()
    assert rows["score"].to_pylist() == [float(line.split("\t")[4]) / 5 for line in lines]


def test_a_table_that_cannot_be_measured_is_refused(tmp_path) -> None:
    config = scored(tmp_path, train=3, others=2)
    line = config.dev.read_text().splitlines()[0]
    config.dev.write_text(f"{line}\n{line}\n")
    with pytest.raises(InputError, match=r"sts-dev\.csv: all scores are equal"):
        sentence_table(config, new_work(tmp_path / "one"))
    config.dev.write_text("\n\n")
    with pytest.raises(InputError, match=r"sts-dev\.csv: no rows"):
        sentence_table(config, new_work(tmp_path / "two"))


def test_training_on_scored_pairs_improves_spearman(inputs, work, inline) -> None:
    before, untrained = tune_model(inputs, "scored", work("before"), epochs=0)
    after, out = tune_model(inputs, "scored", work("after"), epochs=5)
    assert before["updates"] == before["epoch"] == 0
    assert not (untrained / "history.parquet").exists()
    assert (after["rows"], after["updates"], after["epoch"]) == (120, 75, 5)
    assert after["test_spearman"] > before["test_spearman"] + 0.2
    assert json.loads((out / "result.json").read_text()) == after
    predicted = pq.read_table(out / "predictions.parquet").to_pandas()
    of_test = predicted[predicted.split == "test"]
    assert of_test.cosine.corr(of_test.score, method="spearman") == pytest.approx(after["test_spearman"], abs=1e-5)
    assert pq.read_table(out / "validation.parquet")["epoch"].to_pylist() == [*range(1, 6)]


def test_cosines_equal_those_of_sentence_transformers(inputs, work, inline) -> None:
    from sentence_transformers import SentenceTransformer, util

    _, out = tune_model(inputs, "scored", work(), epochs=1)
    theirs = SentenceTransformer(str(out), device="cpu")
    rows = pq.read_table(inputs.tables["scored"] / "test.parquet")
    first, second = (theirs.encode(rows[name].to_pylist()) for name in ("sentence1", "sentence2"))
    cosines = pq.read_table(out / "predictions.parquet", filters=[("split", "==", "test")])["cosine"].to_numpy()
    np.testing.assert_allclose(cosines, util.pairwise_cos_sim(first, second).numpy(), atol=1e-5)


def test_labels_are_learnt_and_the_model_continues_with_pairs(inputs, work, inline) -> None:
    quick = TRAINING.optimiser.model_copy(update={"learning_rate": 1e-2})
    metrics, out = tune_model(inputs, "labelled", work("nli"), epochs=8, optimiser=quick)
    assert metrics["dev_accuracy"] > 0.6  # a third by chance
    assert "test_accuracy" not in metrics
    assert load_file(out / "classifier.safetensors")["weight"].shape == (3, 48)
    further, _ = tune_model(inputs, "scored", work("sts"), epochs=1, start=out)
    alone, _ = tune_model(inputs, "scored", work("alone"), epochs=1)
    assert further["test_spearman"] != alone["test_spearman"]


def test_triplets_are_learnt(inputs, work, inline) -> None:
    before, _ = tune_model(inputs, "triplets", work("before"), epochs=0)
    after, out = tune_model(inputs, "triplets", work("after"), epochs=3)
    assert after["test_accuracy"] > before["test_accuracy"] + 0.2
    predicted = pq.read_table(out / "predictions.parquet", filters=[("split", "==", "test")]).to_pandas()
    assert (predicted.positive < predicted.negative).mean() == pytest.approx(after["test_accuracy"])


def test_smaller_sets_are_parts_of_larger_ones_and_too_large_ones_are_refused(inputs, work, inline) -> None:
    rows = pa.table({"line": range(100)})
    sets = [{*subset(rows, number, 1)["line"].to_pylist()} for number in (10, 40, None)]
    assert [len(one) for one in sets] == [10, 40, 100]
    assert sets[0] < sets[1] < sets[2]
    assert subset(rows, 10, 2)["line"].to_pylist() != sorted(sets[0])
    assert tune_model(inputs, "scored", work("few"), epochs=1, rows=10)[0]["rows"] == 10
    with pytest.raises(InputError, match="121 training rows requested, but the table has 120"):
        tune_model(inputs, "scored", work("many"), rows=121)


def test_the_best_epoch_is_kept(inputs, work, inline) -> None:
    metrics, out = tune_model(inputs, "scored", work(), epochs=5, keep="best")
    validated = pq.read_table(out / "validation.parquet").to_pylist()
    best = max(validated, key=lambda row: (row["spearman"], -row["epoch"]))
    assert best["epoch"] != 5  # otherwise this test shows nothing
    assert (metrics["epoch"], metrics["dev_spearman"]) == (best["epoch"], best["spearman"])


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("select", ["last", "best"])
def test_an_interrupted_training_gives_the_same_bytes(inputs, work, inline, select) -> None:
    fields = {"keep": select, "dropout": 0.1, "epochs": 2}
    whole = tune_model(inputs, "scored", work("whole"), **fields)[1]

    def cut(done, total, unit, numbers=None) -> None:
        if done == 23:  # in the second epoch
            raise Interrupted

    first = work("cut", progress=cut, checkpoint_minutes=0)
    with pytest.raises(Interrupted):
        tune_model(inputs, "scored", first, **fields)
    assert [folder.name for folder in saved_steps(first.checkpoints)] == ["step-21", "step-22"]
    again = Work(first.out, first.checkpoints, first.machine, silent)
    same_files(tune_model(inputs, "scored", again, **fields)[1], whole)


@pytest.mark.slow
def test_two_ranks_learn_as_one(inputs, work) -> None:
    one, two = (tune_model(inputs, "labelled", work(str(ranks), ranks=ranks), epochs=2) for ranks in (1, 2))
    assert one[0]["tokens"] == two[0]["tokens"]
    for name in ("model.safetensors", "classifier.safetensors"):
        mine, theirs = load_file(one[1] / name), load_file(two[1] / name)
        for key in mine:
            if not key.endswith("key.bias"):  # its gradient is zero in exact arithmetic
                np.testing.assert_allclose(mine[key], theirs[key], atol=2e-3, err_msg=key)


def test_a_model_keeps_its_pooling_by_default(pair_start, tmp_path) -> None:
    source = tmp_path / "source"
    shutil.copytree(pair_start, source)
    write_vector(source, 16, Vector("mean", normalise=True, question_prefix="w1 "))
    vector = read_vector(model(source, tmp_path / "own"))
    assert (vector.pooling, vector.normalise, vector.question_prefix) == ("mean", True, "w1 ")
    encoder = ENCODER.model_copy(update={"pooling": "cls", "prefix": ""})
    assert read_vector(model(source, tmp_path / "told", encoder)) == Vector("cls", normalise=True)
    shutil.rmtree(source / "1_Pooling")
    (source / "modules.json").unlink()
    assert read_vector(model(source, tmp_path / "plain")).pooling == "cls"


def test_a_prefix_comes_before_each_sentence(inputs, pair_start, tmp_path) -> None:
    encoder = ENCODER.model_copy(update={"prefix": "w7 ", "tokens": 6})
    sentences = SentenceTokenizer(model(pair_start, tmp_path / "model", encoder), encoder)
    assert [row.tolist() for row in sentences.rows(["w1", "w1 w2 w3 w4"])] == [[2, 12, 6, 3], [2, 12, 6, 7, 8, 3]]
    with pytest.raises(InputError, match=r"encoder\.prefix: .* no room"):
        SentenceTokenizer(tmp_path / "model", encoder.model_copy(update={"tokens": 3}))


def test_roberta_with_a_byte_level_tokenizer_is_read_too(tmp_path) -> None:
    start = model(make_roberta(tmp_path / "roberta", ["some text of a few words"]), tmp_path / "model")
    [row] = SentenceTokenizer(start, ENCODER).rows(["a few words"])
    assert (row[0], row[-1], len(row) <= 24) == (0, 2, True)


def test_a_model_without_tokenizer_uses_the_configured_one(pair_start, tmp_path) -> None:
    bare, vocabulary = tmp_path / "bare", tmp_path / "vocab.txt"
    shutil.copytree(pair_start, bare, ignore=shutil.ignore_patterns("tokenizer*", "vocab*"))
    ids = read_tokenizer(pair_start).get_vocab()
    vocabulary.write_text("\n".join(sorted(ids, key=ids.__getitem__)) + "\n", "utf-8")
    with pytest.raises(InputError, match="bare: no tokenizer: "):
        model(bare, tmp_path / "without")
    texts = ["Sorted LISTS of words", "words"]
    expected = SentenceTokenizer(model(pair_start, tmp_path / "own"), ENCODER).rows(texts)
    for name, tokenizer in (("vocabulary", vocabulary), ("folder", pair_start)):
        rows = SentenceTokenizer(model(bare, tmp_path / name, tokenizer=tokenizer), ENCODER).rows(texts)
        assert [row.tolist() for row in rows] == [row.tolist() for row in expected]
    vocabulary.write_text("no\nvocabulary\n", "utf-8")
    config = SentenceModelConfig(checkpoint=bare, pretrained=None, revision="main", tokenizer=vocabulary)
    [message] = missing(config)
    assert message.startswith(f"models: {vocabulary}: no line [PAD]"), "before anything is trained"
    rows = SentenceTokenizer(model(pair_start, tmp_path / "its own", tokenizer=vocabulary), ENCODER).rows(texts)
    assert [row.tolist() for row in rows] == [row.tolist() for row in expected], "a model's own tokenizer comes first"


def test_another_models_tokenizer_is_reported_before_the_run(pair_start, tmp_path) -> None:
    bare, vocabulary = tmp_path / "bare", tmp_path / "vocab.txt"
    shutil.copytree(pair_start, bare, ignore=shutil.ignore_patterns("tokenizer*", "vocab*"))
    ids = read_tokenizer(pair_start).get_vocab()
    entries = sorted(ids, key=ids.__getitem__)

    def problems(tokenizer: Path) -> list[str]:
        return missing(SentenceModelConfig(checkpoint=bare, pretrained=None, revision="main", tokenizer=tokenizer))

    vocabulary.write_text("\n".join(entries) + "\n", "utf-8")
    assert not problems(vocabulary)
    vocabulary.write_text("\n".join([*entries, "more"]) + "\n", "utf-8")
    both = f"{len(ids) + 1:,} entries, but the model {bare} has {len(ids):,} token embeddings"
    assert problems(vocabulary) == [f"models: tokenizer {vocabulary}: {both}"]
    [message] = problems(bare)
    assert message.startswith(f"models: {bare}: has no tokenizer"), "transformers would create one"


def test_unfit_models_are_reported(pair_start, tmp_path) -> None:
    both = tmp_path / "both"
    for name in ("query", "passage"):
        shutil.copytree(pair_start, both / name)
    config = SentenceModelConfig(checkpoint=both, pretrained=None, revision="main", tokenizer=None)
    assert missing(config) == [f"models: {both}: holds two encoders; choose both/query or both/passage"]
    with pytest.raises(InputError, match=r"encoder\.tokens: 65 tokens, but the model .* 64 positions"):
        model(pair_start, tmp_path / "long", ENCODER.model_copy(update={"tokens": 65}))
    with pytest.raises(ValueError, match="set one of checkpoint and pretrained"):
        SentenceModelConfig(checkpoint=both, pretrained="bert-base-uncased", revision="main", tokenizer=None)


def test_dev_chooses_the_epochs_and_repeats_are_averaged(inputs, work, inline) -> None:
    trained: dict[str, tuple] = {}
    trainings = [Training(run="zero", model="A", size=0, epochs=0, repeat=1)]
    trained["zero"] = tune_model(inputs, "scored", work("zero"), epochs=0)
    for epochs in (1, 4):
        for repeat in (1, 2):
            name = f"{epochs}-{repeat}"
            trained[name] = tune_model(inputs, "scored", work(name), epochs=epochs, rows=32, seed=repeat)
            trainings.append(Training(run=name, model="A", size=32, epochs=epochs, repeat=repeat))
    config, summary_work = SummaryConfig(trainings=trainings, bootstrap_samples=200, seed=1), work("summary")
    summary(config, summary_work, **{name: out for name, (_, out) in trained.items()})
    zero, few = json.loads((summary_work.out / "summary.json").read_text())["rows"]
    assert (zero["rows"], zero["epochs"], zero["test"]["mean"]) == (0, 0, trained["zero"][0]["test_spearman"])
    dev = {epochs: np.mean([trained[f"{epochs}-{n}"][0]["dev_spearman"] for n in (1, 2)]) for epochs in (1, 4)}
    assert few["candidates"] == {"1": pytest.approx(dev[1]), "4": pytest.approx(dev[4])}
    assert (few["rows"], few["epochs"]) == (32, max(dev, key=dev.get))
    of_test = [trained[f"{few['epochs']}-{n}"][0]["test_spearman"] for n in (1, 2)]
    assert few["repeats"] == of_test
    assert few["test"]["mean"] == pytest.approx(np.mean(of_test), abs=1e-5)
    assert few["test"]["low"] < few["test"]["mean"] < few["test"]["high"]
