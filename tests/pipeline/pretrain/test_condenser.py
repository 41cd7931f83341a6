import json
import shutil
from pathlib import Path

import pandas
import pytest
import small
import torch
from machines import make_machine
from pretrained import MACHINE, pretrain, weights
from pydantic import ValidationError
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForMaskedLM

from pipeline.errors import InputError
from pipeline.pretrain.condenser import CondenserConfig, condenser, missing
from pipeline.runtime.work import Work, silent


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return small.make(tmp_path_factory.mktemp("small"))


def run(inputs, out: Path, start: Path | None = None, machine: dict | None = None, **fields):
    """The training in this process; returns its metrics."""
    return pretrain(CondenserConfig(**{**small.CONDENSER, **fields}), inputs, out, start, machine)


def test_a_trained_model_loads_as_a_plain_model(inputs, tmp_path):
    metrics = run(inputs, tmp_path / "out", budget="60 steps")
    history = pandas.read_parquet(tmp_path / "out" / "history.parquet")
    assert len(history) == metrics["updates"] == 60
    for name in ("head_mlm", "late_mlm"):
        assert history[name][-6:].mean() < history[name][:6].mean() - 0.1
        assert metrics[f"{name}_last"] == pytest.approx(history[name][-6:].mean())
    assert metrics["documents"] == 60
    lm = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    AutoModel.from_pretrained(tmp_path / "out", add_pooling_layer=False)
    before = load_file(inputs[1] / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    assert not torch.equal(lm.bert.embeddings.word_embeddings.weight, before)
    # The files have the default mode.
    (tmp_path / "plain").touch()
    for path in (tmp_path / "out").rglob("*.*"):
        assert path.is_dir() or path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_equal_inputs_give_equal_bytes(inputs, tmp_path):
    for name in "ab":
        run(inputs, tmp_path / name)
    for path in (tmp_path / "a").rglob("*"):
        assert path.is_dir() or path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_chunks_change_nothing_without_dropout(tmp_path):
    inputs = small.make(tmp_path / "given", dropout=0.0)
    for chunk in (None, 1, 5):
        run(inputs, tmp_path / f"{chunk}", machine={"gradient_cache_chunk": chunk})
    whole = weights(tmp_path / "None")
    for chunk in (1, 5):
        for name, x in weights(tmp_path / f"{chunk}").items():
            torch.testing.assert_close(x, whole[name], rtol=1e-4, atol=2e-5)


def test_without_steps_the_start_is_copied_and_gets_a_random_head(inputs, tmp_path):
    metrics = run(inputs, tmp_path / "out", budget=None)
    assert metrics["updates"] == 0
    before, after = load_file(inputs[1] / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    head = load_file(tmp_path / "out" / "head.safetensors")
    assert {name.split(".")[0] for name in head} == {"0", "1"}
    assert float(head["0.attention.self.query.weight"].std()) == pytest.approx(0.02, rel=0.1)


def test_a_continued_training_starts_with_the_head_of_the_start(inputs, tmp_path):
    with pytest.raises(InputError, match=r"head\.safetensors: missing"):
        run(inputs, tmp_path / "out", continued=True)
    run(inputs, tmp_path / "first", budget="2 steps")
    run(inputs, tmp_path / "second", start=tmp_path / "first", budget=None, continued=True)
    assert (tmp_path / "first" / "head.safetensors").read_bytes() == (
        tmp_path / "second" / "head.safetensors"
    ).read_bytes()


def test_a_finished_checkpoint_is_copied_by_the_stage(inputs, tmp_path):
    """The stage itself, in its child process."""
    run(inputs, tmp_path / "finished", budget="2 steps")
    config = CondenserConfig(**{**small.CONDENSER, "checkpoint": tmp_path / "finished"})
    (tmp_path / "out").mkdir()
    work = Work(tmp_path / "out", tmp_path / "checkpoints", make_machine(**MACHINE), silent)
    assert condenser(config, *inputs, work)["updates"] == 0
    for name in ("model.safetensors", "head.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "finished" / name).read_bytes()
    (tmp_path / "finished" / "head.safetensors").unlink()
    with pytest.raises(InputError, match=r"head\.safetensors: missing"):
        run(inputs, tmp_path / "none", checkpoint=tmp_path / "finished")


def test_a_head_of_another_size_is_refused(inputs, tmp_path):
    run(inputs, tmp_path / "finished", budget=None)
    shutil.copytree(inputs[1], tmp_path / "other")
    head = load_file(tmp_path / "finished" / "head.safetensors")
    from safetensors.torch import save_file

    save_file({name: x[..., :-1].contiguous() for name, x in head.items()}, tmp_path / "other" / "head.safetensors")
    with pytest.raises(InputError, match=r"other/head\.safetensors: not a head for"):
        run(inputs, tmp_path / "out", start=tmp_path / "other", continued=True)


def test_a_head_of_other_layers_is_refused(inputs, tmp_path):
    run(inputs, tmp_path / "finished", budget=None)
    message = r"finished/head\.safetensors: a head of 2 layers, but condenser\.head_layers is 1$"
    with pytest.raises(InputError, match=message):
        run(inputs, tmp_path / "out", start=tmp_path / "finished", continued=True, head_layers=1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"skip_from": 2}, r"^condenser\.skip_from: 2 is outside the early layers of a model of 2"),
        ({"length": 33}, r"^condenser: inputs of 33 tokens, but the model has 32 positions"),
    ],
)
def test_an_unfit_configuration_is_refused_before_any_work(inputs, tmp_path, fields, message):
    work = Work(tmp_path / "out", tmp_path / "checkpoints", make_machine(**MACHINE), silent)
    with pytest.raises(InputError, match=message):
        condenser(CondenserConfig(**{**small.CONDENSER, **fields}), *inputs, work)


def test_a_vocabulary_beyond_the_model_is_refused(inputs, tmp_path):
    shutil.copytree(inputs[0], tmp_path / "tokens")
    specials = json.loads((inputs[0] / "specials.json").read_text())
    (tmp_path / "tokens" / "specials.json").write_text(json.dumps({**specials, "vocab_size": 201}))
    work = Work(tmp_path / "out", tmp_path / "checkpoints", make_machine(**MACHINE), silent)
    with pytest.raises(InputError, match="200 tokens, but the tokenizer has 201"):
        condenser(CondenserConfig(**small.CONDENSER), tmp_path / "tokens", inputs[1], work)


def test_fields_that_exclude_each_other_are_refused():
    for fields in ({"batch_tokens": 100}, {"batch_blocks": None}):
        with pytest.raises(ValidationError, match="set one of"):
            CondenserConfig(**{**small.CONDENSER, **fields})
    with pytest.raises(ValidationError, match="continued needs a head, but the objective mlm has none"):
        CondenserConfig(**{**small.CONDENSER, "objective": "mlm", "head_layers": 0, "continued": True})
    with pytest.raises(ValidationError, match="below length"):
        CondenserConfig(**{**small.CONDENSER, "batch_blocks": None, "batch_tokens": 20})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{half", "not the configuration of a Hugging Face model"),
        (
            '{"model_type": "gpt2"}',
            r"model_type 'gpt2' is a decoder; only encoders are supported \(docs/encoders.md\)",
        ),
        ('{"model_type": "bert", "vocab_size": 200}', "lacks num_hidden_layers"),
        (
            '{"model_type": "bert", "vocab_size": 200, "num_hidden_layers": "two", "max_position_embeddings": 32}',
            "num_hidden_layers must be a positive integer: 'two'",
        ),
        (
            '{"model_type": "roberta", "vocab_size": 200, "num_hidden_layers": 2, "max_position_embeddings": 32, '
            '"hidden_size": 8, "pad_token_id": null}',
            "pad_token_id must be an integer from 0 to 31: None",
        ),
    ],
)
def test_a_finished_checkpoint_of_another_kind_is_refused_in_one_line(inputs, tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    work = Work(tmp_path / "out", tmp_path / "checkpoints", make_machine(**MACHINE), silent)
    with pytest.raises(InputError, match=rf"config\.json: {message}$"):
        condenser(CondenserConfig(**{**small.CONDENSER, "checkpoint": tmp_path}), *inputs, work)


def test_a_finished_checkpoint_is_checked_before_a_run(inputs, tmp_path):
    run(inputs, tmp_path / "finished", budget=None)
    config = CondenserConfig(**{**small.CONDENSER, "checkpoint": tmp_path / "finished"})
    assert missing(config) == []
    assert missing(config.model_copy(update={"checkpoint": None})) == []
    assert missing(config.model_copy(update={"checkpoint": tmp_path / "gone"})) == []  # reported like any missing path
    (line,) = missing(config.model_copy(update={"skip_from": 2}))
    assert line == "condenser.checkpoint: condenser.skip_from: 2 is outside the early layers of a model of 2"
    (tmp_path / "finished" / "head.safetensors").unlink()
    assert missing(config) == [f"condenser.checkpoint: {tmp_path / 'finished' / 'head.safetensors'}: missing"]
    assert missing(config.model_copy(update={"head_layers": 0, "objective": "mlm"})) == []
    path = tmp_path / "finished" / "config.json"
    own = path.read_text()
    path.write_text(json.dumps({**json.loads(own), "vocab_size": 7}))
    (line,) = missing(config)
    assert line.startswith(f"condenser.checkpoint: {path}: vocab_size is 7, but the weights have ")
    path.write_text(own)
    (tmp_path / "finished" / "model.safetensors").unlink()
    assert missing(config) == [f"condenser.checkpoint: {tmp_path / 'finished'}: no model.safetensors"]
