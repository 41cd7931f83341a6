"""The user's examples, and what a language model reads."""

import json
from pathlib import Path

import pytest
from language_models import config
from searched import write_collection

from pipeline.errors import InputError
from pipeline.generate.prompts import Example, flat, messages, of_kind, read_examples
from pipeline.generate.requests import read_requests

ROWS = [{"passage": f"Text {n}", "question": f"What is {n}?", "kind": "claim" if n == 1 else ""} for n in range(3)]


@pytest.mark.parametrize("heading", [True, False])
def test_examples_are_read_of_both_forms(tmp_path: Path, heading: bool) -> None:
    lines = [f"{row['passage']}\t{row['question']}\t{row['kind']}" for row in ROWS]
    (tmp_path / "e.tsv").write_text("\n".join([*(["passage\tquestion\tkind"] if heading else []), *lines]))
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    examples = read_examples(tmp_path / "e.tsv")
    assert examples == read_examples(tmp_path / "e.jsonl")
    assert [one.kind for one in examples] == ["question", "claim", "question"]
    assert of_kind(examples, "question", 1) == [Example("Text 0", "What is 0?", "question")]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("e.jsonl", '{"passage": "a"}', "question"),
        ("e.jsonl", '{"passage": "a", "question": " "}', "needs a passage and a question"),
        ("e.jsonl", '{"passage": "a", "question": "b", "kind": "poem"}', "kind 'poem' is none of question, keywords"),
        ("e.jsonl", "not json", "e.jsonl:1"),
        ("e.jsonl", '{"passage": "a", "question": "\\ud800"}', "holds half of a surrogate pair"),
        ("e.tsv", "only one column", "1 columns"),
        ("e.tsv", "", "e.tsv"),
    ],
)
def test_what_is_no_example_is_refused_in_one_line(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=problem) as raised:
        read_examples(tmp_path / name)
    assert str(raised.value).count("\n") == 0


def test_a_prompt_has_the_examples_as_turns_and_cut_passages() -> None:
    settings = config(passage_words=3)
    asked = messages(
        settings, "keywords", "A title", "one two three four", [Example("p q r s", "an example", "keywords")]
    )
    assert [message["role"] for message in asked] == ["system", "user", "assistant", "user"]
    assert "search query" in asked[0]["content"]
    assert "p q r\n" in asked[1]["content"]
    assert asked[2]["content"] == "an example"
    assert "A title\none two three\n" in asked[3]["content"]
    text = flat(asked)
    assert text.endswith("Answer:")
    assert "Answer: an example" in text


def test_a_prompt_of_the_passage_alone() -> None:
    settings = config(prompt="passage", questions=1)
    assert flat(messages(settings, "question", "", "one two", [])) == "one two"


def test_requests_depend_on_passage_prompt_and_model_alone(tmp_path: Path) -> None:
    passages = [(f"p{n}", f"d{n}", "", f"text number {n % 5}") for n in range(8)]
    first = write_collection(tmp_path / "first", passages, [], [])
    more = write_collection(tmp_path / "more", [("new", "new", "", "a new text"), *passages], [], [])
    server = {"endpoint": "http://localhost/v1", "model": "m", "kinds": ("question", "title")}

    def keys(collection: Path, **fields) -> set[str]:
        return {one.key for one in read_requests(config(**server | fields), collection, None)}

    assert len(keys(first)) == 2 * 5  # one for a text that occurs twice
    assert keys(first) < keys(more)
    assert len(keys(more) - keys(first)) == 2
    assert keys(first) == keys(
        first, concurrent=1, timeout_seconds=9, price_per_million_tokens={"input": 1, "output": 1}
    )
    for change in ({"model": "n"}, {"questions": 3}, {"temperature": 0.5}, {"endpoint": "http://other/v1"}):
        assert not keys(first) & keys(first, **change)
    chosen = keys(first, passages=2)
    assert len(chosen) == 4
    assert chosen < keys(first)
