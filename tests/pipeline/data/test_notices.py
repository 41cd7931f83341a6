"""Notices of what is dropped, cut or unknown: by stage, with the first examples."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.cross_encoder.lengths import Lengths, count_cut
from pipeline.data.text.text_files import check_file
from pipeline.errors import InputError
from pipeline.modeling.inputs import Form, cut_notice, to_change, unread, unread_metrics, unread_of_questions
from pipeline.notices import EXAMPLES, LONGEST, keep, notice, noticed, of_counts, read_notices
from pipeline.tokenization.token_files import Specials
from tasks.notices import with_notices
from tasks.stages import STAGES

SPECIALS = Specials(100, 0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("example", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("caf\udce9.md", "caf\\xe9.md"),
        ("tab\tzero\0", "tab\\tzero\\x00"),
        ("灯塔.md", "灯塔.md"),
        ("می\u200cخواهم.md", "می\u200cخواهم.md"),
        ("क्\u200dष.md", "क्\u200dष.md"),
        ("a\u2028b\xa0c", "a\\u2028b\\xa0c"),
        ("x" * 100, "x" * (LONGEST - 1) + "…"),
    ],
)
def test_an_example_stays_on_its_line(example, shown):
    line = notice("files left out", 1, [example], "save them")
    assert line == f"files left out: 1 (first: {shown}); save them"
    assert read_notices(noticed([line])) == [line]


def test_the_first_examples_are_kept():
    examples: dict[str, list[str]] = {}
    for i in range(10):
        keep(examples, "cut", str(i))
    assert examples == {"cut": [str(i) for i in range(EXAMPLES)]}
    descriptions = {"cut": ("passages cut", "field"), "none": ("nothing", ""), "absent": ("nothing", "")}
    assert of_counts(descriptions, {"cut": 10, "none": 0}, examples) == ["passages cut: 10 (first: 0, 1, 2); field"]


@pytest.mark.parametrize(
    ("stage", "metrics", "lines"),
    [
        (
            "finetune",
            {"questions_cut": 1, "passages_cut": 2},
            [
                "training questions cut: 1; raise encoder.question_tokens as far as the model allows",
                "positives and negatives cut: 2; raise stage1.passage_tokens as far as the model allows, or "
                "shorten the passages: ingest.passage_words",
            ],
        ),
        (
            "soft_labels",
            {"passages_cut": 7, "passages_cut_share": 0.25, "passages_unread_share": 0.001},
            [
                "passages cut for the cross-encoder, 25% of them, so that < 1% of their tokens are not read: 7; raise "
                "cross_encoder.passage_tokens as far as the model allows, or shorten the passages: ingest.passage_words"
            ],
        ),
        (
            "tokens",
            {"passages_cut": 2},
            [
                "passages cut: 2; raise tokens.max_tokens if the model reads more, or shorten the passages: "
                "ingest.passage_words"
            ],
        ),
        ("finetune", {"updates_skipped": 0, "negatives_filled": 0}, []),
        (
            "rerank",
            {"questions_cut": 1200},
            [
                "questions cut for the cross-encoder: 1,200; raise cross_encoder.question_tokens as far as the model "
                "allows"
            ],
        ),
        (
            "cocondenser",
            {"documents_too_short": 3, "notice": "its own"},
            ["its own", "documents left out, too short for two spans: 3; cocondenser.span_min"],
        ),
        ("ingest", {"empty_passages": 1}, []),
    ],
)
def test_counts_of_a_stage_become_notices(stage, metrics, lines):
    with_lines = with_notices(STAGES[stage].notices, metrics, "stage1")
    assert read_notices(with_lines) == lines
    assert {k: v for k, v in with_lines.items() if k != "notice"} == {k: v for k, v in metrics.items() if k != "notice"}


@pytest.mark.parametrize("stage", [name for name, stage in STAGES.items() if stage.notices])
def test_each_count_has_one_notice(stage):
    notices = STAGES[stage].notices
    counts = {name: 1001 + n for n, name in enumerate(notices)}
    lines = read_notices(with_notices(notices, counts, ""))
    assert len(lines) == len({line.split(":")[0] for line in lines}) == len(counts)
    assert all(sum(f": {count:,}" in line for line in lines) == 1 for count in counts.values())


def texts(*lengths: int) -> SimpleNamespace:
    return SimpleNamespace(lengths=np.array(lengths))


def test_unread_tokens_are_exactly_those_that_rows_leave_out():
    from pipeline.modeling.inputs import passage_row, question_row

    rng = np.random.default_rng(1)
    for _ in range(200):
        title, text, limit = rng.integers(0, 30), rng.integers(0, 60), rng.integers(8, 40)
        between = (SPECIALS.sep,) if rng.random() < 0.5 else ()
        form = Form(SPECIALS, 12, int(rng.integers(0, 10)), (7, 7), (8,), between)
        row = passage_row(np.full(title, 50), np.full(text, 60), form, int(limit))
        tokens = SimpleNamespace(titles=texts(title), passages=texts(text), queries=texts(text))
        title_N, text_N = unread(tokens, form, int(limit))
        assert title_N[0] == title - (row == 50).sum()
        assert text_N[0] == text - (row == 60).sum()
        question_ids = question_row(np.full(text, 60), form)
        assert unread_of_questions(tokens, [0], form)[0] == text - (question_ids == 60).sum()


def test_texts_cut_by_a_cross_encoder_are_exactly_those_that_rows_cut():
    from pipeline.cross_encoder.pairs import PairForm, pair_row

    rng = np.random.default_rng(2)
    for _ in range(200):
        question, title, text = (int(n) for n in rng.integers(0, 30, 3))
        lengths = Lengths(*(int(n) for n in rng.integers(1, 40, 3)))
        form = PairForm(SPECIALS, lengths)
        row, _ = pair_row(np.full(question, 40), np.full(title, 50), np.full(text, 60), form)
        tokens = SimpleNamespace(titles=texts(title), passages=texts(text), queries=texts(question))
        counts = count_cut(tokens, np.array([0, 0]), np.array([0, 0]), lengths)
        lost = question - int((row == 40).sum()), text - int((row == 60).sum())
        assert counts == {
            "questions_cut": int(lost[0] > 0),
            "questions_cut_share": int(lost[0] > 0),
            "questions_unread_share": lost[0] / max(1, question),
            "passages_cut": int(lost[1] > 0),
            "passages_cut_share": int(lost[1] > 0),
            "passages_unread_share": lost[1] / max(1, text),
        }


@pytest.mark.parametrize(
    ("unread_N", "lines"),
    [
        ([0] * 10, []),
        (
            [0] * 19 + [5],
            ["passages cut, 5% of them, so that 5% of their tokens are not read: 1 (first: number 19); f"],
        ),
        (
            [1] + [0] * 999,
            ["passages cut, < 1% of them, so that 1% of their tokens are not read: 1 (first: number 0); f"],
        ),
        (
            [0] * 8 + [20, 30],
            ["passages cut, 20% of them, so that 50% of their tokens are not read: 2 (first: number 8, number 9); f"],
        ),
        ([], []),
    ],
)
def test_cut_texts_are_reported_however_few(unread_N, lines):
    metrics = unread_metrics("passages", np.array(unread_N, np.int64), np.array([100]))
    metrics["passages_cut_share"] = metrics["passages_cut"] / max(1, len(unread_N))
    assert cut_notice("passages", metrics, np.array(unread_N, np.int64), "number {}".format, "f") == lines


@pytest.mark.parametrize(
    ("used", "together", "advice"),
    [
        (64, "", "raise encode.passage_tokens (the model has 80 positions), or x"),
        (64, "y of all stages", "raise encode.passage_tokens and y of all stages (the model has 80 positions), or x"),
        (80, "y of all stages", "encode.passage_tokens is the model's maximum, 80: x"),
    ],
)
def test_the_field_to_change_is_named_while_the_model_has_room(used, together, advice, tmp_path):
    from transformers import BertConfig

    BertConfig(max_position_embeddings=80).save_pretrained(tmp_path)
    assert to_change("encode.passage_tokens", used, tmp_path, "x", together) == advice


@pytest.mark.parametrize("name", ["no\nfile.trec", "no\rfile.trec", "no\u2028file.trec", "no\x1b[31mfile.trec"])
def test_an_error_is_one_line_whatever_the_path_holds(name, tmp_path):
    with pytest.raises(InputError) as caught:
        check_file(tmp_path / name)
    message = str(pickle.loads(pickle.dumps(caught.value)))
    assert message == f"{tmp_path}/{repr(name)[1:-1]}: no such file"
    assert str(InputError(message)) == message  # a message inside another one is not escaped again
    assert str(InputError("one", name)) == f"one\n{repr(name)[1:-1]}"
