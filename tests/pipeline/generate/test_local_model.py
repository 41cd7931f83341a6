"""Tiny random models as writers: seq2seq, and causal with and without a chat template."""

from pathlib import Path

import pytest
import torch
from language_models import TEMPLATE, WITHOUT_SYSTEM, config, write_causal, write_t5
from ready import plain

from pipeline.errors import InputError
from pipeline.generate.answer_store import AnswerStore
from pipeline.generate.generate import missing
from pipeline.generate.local_model import Writer, load, write, write_prompts
from pipeline.generate.prompts import Example, messages

FIELDS = {"prompt", "questions", "answer_tokens", "temperature", "seed", "batch"}
TEXTS = ["the red ledger", "harbour", "orchard of the glacier", "red harbour of the orchard what is one", "ledger"]


def settings(**fields) -> dict:
    return config(answer_tokens=6, batch=2, **fields).model_dump(mode="json", include=FIELDS)


def asked(**fields) -> list:
    return [messages(config(**fields), "question", "", text, []) for text in TEXTS]


def answers(folder: Path, tmp_path: Path, name: str, texts: list[int], **fields) -> tuple[list, dict]:
    """The answers to some of the prompts, and the counts."""
    prompts = asked(prompt=fields.get("prompt", "instructions"), temperature=fields.get("temperature", 0.0))
    number = write_prompts(tmp_path / name, ((f"{i:064x}", prompts[i]) for i in texts))
    seen: list[tuple] = []

    def progress(*given) -> None:
        seen.append(given)

    arguments = {"folder": str(folder), "prompts": str(tmp_path / name), "answers": str(tmp_path / f"{name}-answers")}
    counts = write(progress=progress, device="cpu", total=number, config=settings(**fields), **arguments)
    assert seen[-1][:3] == (number, number, "requests")
    with AnswerStore(tmp_path / f"{name}-answers") as store:
        return [store.get(f"{i:064x}") for i in texts], counts


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["t5", "causal", "template"])
def test_each_prompt_gets_the_answer_that_it_gets_alone(tmp_path: Path, kind: str, temperature: float) -> None:
    folder = tmp_path / kind
    {"t5": write_t5, "causal": lambda f: write_causal(f, None), "template": write_causal}[kind](folder)
    every, counts = answers(folder, tmp_path, "every", [0, 1, 2, 3, 4], temperature=temperature)
    assert all(answer is not None and 0 < answer.output_tokens <= 7 for answer in every)
    assert counts["output_tokens"] == sum(answer.output_tokens for answer in every)
    assert answers(folder, tmp_path, "again", [0, 1, 2, 3, 4], temperature=temperature)[0] == every
    alone = [answers(folder, tmp_path, f"alone{i}", [i], temperature=temperature)[0][0] for i in range(5)]
    assert alone == every


def test_t5_keeps_the_weights_in_float32_that_float16_is_too_narrow_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("pipeline.generate.local_model.low_precision", lambda _: torch.float16)
    weights = Writer(write_t5(tmp_path / "t5"), "cpu", settings()).model.state_dict()
    types = {(name.endswith("wo.weight"), weight.dtype) for name, weight in weights.items()}
    assert types == {(True, torch.float32), (False, torch.float16)}


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
def test_without_low_precision_all_weights_are_float32(tmp_path: Path, stored: torch.dtype) -> None:
    folder = write_causal(tmp_path / "m")
    load(folder, stored)[0].save_pretrained(folder)
    assert {x.dtype for x in Writer(folder, "cpu", settings()).model.state_dict().values()} == {torch.float32}


def test_a_passage_alone_gets_several_sampled_questions(tmp_path: Path) -> None:
    folder = write_t5(tmp_path / "t5")
    fields = {"prompt": "passage", "questions": 3, "temperature": 1.0}
    found, _ = answers(folder, tmp_path, "first", [0, 1, 2], **fields)
    assert all(answer.text.count("\n") == 2 for answer in found)
    assert answers(folder, tmp_path, "again", [0, 1, 2], **fields)[0] == found
    assert answers(folder, tmp_path, "other", [0, 1, 2], **fields, seed=5)[0] != found


def test_a_chat_template_is_used_and_one_may_know_no_system_message(tmp_path: Path) -> None:
    prompt = asked()[0]
    for name, template in (("with", TEMPLATE), ("without", WITHOUT_SYSTEM)):
        writer = Writer(write_causal(tmp_path / name, template), "cpu", settings())
        text = writer.tokenizer.decode(writer.ids(prompt))
        assert "red ledger" in text
        assert text.count("<unk> ") > 3
    with pytest.raises(InputError, match="chat template fails"):
        Writer(write_causal(tmp_path / "broken", "{{ raise_exception('broken') }}"), "cpu", settings()).ids(prompt)


def test_prompts_longer_than_the_input_lose_examples_then_words(tmp_path: Path) -> None:
    writer = Writer(write_causal(tmp_path / "m", None), "cpu", settings())
    examples = [Example("the red harbour", "what is red", "question")] * 3
    prompt = messages(config(), "question", "", " ".join(["ledger orchard"] * 20), examples)
    whole, without = (len(writer.ids(one)) for one in (prompt, [prompt[0], prompt[-1]]))
    writer.longest = whole
    assert writer.fitting(prompt) == writer.ids(prompt)
    writer.longest = whole - 1
    assert writer.fitting(prompt) == writer.ids([*prompt[:5], prompt[-1]])
    writer.longest = without - 10
    cut = writer.tokenizer.decode(writer.fitting(prompt))
    assert cut.count("ledger") == 13
    assert "what is red" not in cut
    alone = [{"role": "user", "content": "ledger orchard harbour"}]
    writer.longest = 2
    assert writer.tokenizer.decode(writer.fitting(alone)) == "ledger orchard"


def test_instructions_longer_than_the_input_get_no_answer(tmp_path: Path) -> None:
    found, counts = answers(write_causal(tmp_path / "short", positions=40), tmp_path, "long", [0, 1])
    assert found == [None, None]
    assert counts["too_long"] == 2


@pytest.mark.parametrize(("prompts", "message"), [(2, r"generate\.batch: 2 prompts"), (1, "a single prompt")])
def test_too_little_memory_is_one_line(tmp_path: Path, monkeypatch, prompts: int, message: str) -> None:
    def full(**_: object) -> None:
        raise torch.OutOfMemoryError

    writer = Writer(write_causal(tmp_path / "m"), "cpu", settings())
    monkeypatch.setattr(writer.model, "generate", full)
    with pytest.raises(InputError, match=message):
        writer.answer([(f"{n:064x}", [3, 4]) for n in range(prompts)])


def test_folders_without_a_model_that_writes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="writes no text") as refused:
        load(plain(tmp_path / "bert"), torch.float32)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"config\.json does not exist") as raised:
        load(tmp_path / "empty", torch.float32)
    for text in ("[]", "{", '{"architectures": 3}'):
        (tmp_path / "empty" / "config.json").write_text(text)
        assert missing(config(checkpoint=tmp_path / "empty")) != []
    assert missing(config(checkpoint=tmp_path / "bert")) == [str(refused.value)]
    assert "\n" not in str(raised.value)
    folder = write_t5(tmp_path / "t5")
    assert missing(config(checkpoint=folder)) == []
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="no model that writes text"):
        load(folder, torch.float32)
