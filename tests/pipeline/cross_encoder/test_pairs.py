"""Rows and scores of pairs equal those of transformers and sentence-transformers."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from crossed import CONFIG, make_cross_encoder, make_roberta
from searched import write_collection
from sentence_transformers import CrossEncoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast

from pipeline.cross_encoder.cross_encoder import lengths
from pipeline.cross_encoder.lengths import Lengths, check_cross_encoder, read_lengths
from pipeline.cross_encoder.pairs import PairForm, PairRows, pair_row, pair_rows, read_pair_form, score_rows
from pipeline.errors import InputError
from pipeline.modeling.architectures.registry import architecture
from pipeline.modeling.checkpoint import load_classifier, save_classifier
from pipeline.tokenization.token_files import Specials, Tokens
from pipeline.tokenization.tokenizer import read_tokenizer, special_tokens
from pipeline.tokenization.tokens import TokensConfig, tokens
from pipeline.tokenization.wordpiece import SPECIALS as SPECIAL_NAMES
from pipeline.tokenization.wordpiece import Normal, build_tokenizer

SPECIALS = Specials(vocab_size=305, pad=0, unk=1, cls=2, sep=3, mask=4)
TEXTS = ["Where is the Eiffel tower?", "The tower is in Paris.", "Bread", "is baked, not boiled", "42 things"]


def texts(world):
    """(question, title + " " + text) of every question with every 13th passage, and their rows."""
    questions = pq.read_table(world.collection / "queries.parquet")["text"].to_pylist()
    passages = pq.read_table(world.collection / "passages.parquet").to_pylist()
    pairs = [(q, p) for q in range(len(questions)) for p in range(q % 13, len(passages), 13)]
    pair_texts = [(questions[q], f"{passages[p]['title']} {passages[p]['text']}".strip()) for q, p in pairs]
    return pairs, pair_texts


def rows_of(world, teacher, pairs):
    form = read_pair_form(teacher, read_lengths(teacher), SPECIALS)
    return pair_rows(Tokens.open(world.tokens), *zip(*pairs, strict=True), form)


def plain_scores(folder, pair_texts):
    """Inputs and scores by transformers, in one padded batch."""
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer([q for q, _ in pair_texts], [p for _, p in pair_texts], padding=True, return_tensors="pt")
    with torch.inference_mode():
        return inputs, model.eval()(**inputs).logits[:, 0].numpy()


def test_rows_and_scores_equal_those_of_transformers(world, teacher):
    pairs, pair_texts = texts(world)
    rows = rows_of(world, teacher, pairs)
    inputs, expected = plain_scores(teacher, pair_texts)
    for i, ids in enumerate(rows.ids):
        attended = inputs["attention_mask"][i].bool()
        assert ids.tolist() == inputs["input_ids"][i][attended].tolist()
        types = (np.arange(len(ids)) >= rows.second_N[i]).astype(int)
        assert types.tolist() == inputs["token_type_ids"][i][attended].tolist()
    for budget in (1, 700, 10**6):
        np.testing.assert_allclose(score_rows(load_classifier(teacher), rows, budget), expected, atol=2e-5)
    assert np.ptp(expected) > 0.1


def test_rows_of_the_tokens_stage_equal_those_of_transformers(tmp_path, work):
    """Real sentences from the tokens stage: the ids of title and text together are those of "title text"."""
    characters = sorted(set("abcdefghijklmnopqrstuvwxyz0123456789.,'()-?é"))
    (tmp_path / "tokenizer").mkdir()
    normal = Normal(lowercase=True, split_identifiers=False, drop_rules=False)
    build_tokenizer([*SPECIAL_NAMES, *characters, *(f"##{c}" for c in characters)], normal).save(
        str(tmp_path / "tokenizer" / "tokenizer.json")
    )
    passages = [
        ("p0", "", "Café (Paris)", "It's a place, isn't it?  Open 24-7."),
        ("p1", "", "", "No title; an unknown % sign."),
        ("p2", "", "A-B", "-C (d)"),
    ]
    questions = [("q0", "dev", "Where's the CAFÉ?"), ("q1", "dev", "%"), ("q2", "dev", " d  e ")]
    collection = write_collection(tmp_path / "collection", passages, questions, [])
    done = work()
    tokens(TokensConfig(max_tokens=None), collection, tmp_path / "tokenizer", done)
    data = Tokens.open(done.out)
    form = read_pair_form(tmp_path / "tokenizer", Lengths(64, 64, 128), data.specials)
    reader = PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer" / "tokenizer.json"),
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    for q, (_, _, question) in enumerate(questions):
        rows = pair_rows(data, [q] * 3, range(3), form)
        for (_, _, title, text), ids, second in zip(passages, *rows, strict=True):
            expected = reader(question, f"{title} {text}")
            assert ids.tolist() == expected["input_ids"]
            assert (np.arange(len(ids)) >= second).astype(int).tolist() == expected["token_type_ids"]
    of_one_type = pair_rows(data, [0], [1], replace(form, has_types=False))
    assert of_one_type.second_N[0] == len(of_one_type.ids[0])


def test_token_types_matter(world, teacher):
    pairs, _ = texts(world)
    rows = rows_of(world, teacher, pairs)
    untyped = PairRows(rows.ids, np.full(len(rows.ids), 10**6))
    model = load_classifier(teacher)
    assert np.abs(score_rows(model, rows, 700) - score_rows(model, untyped, 700)).max() > 1e-3


def test_sentence_transformers_gives_the_same_scores(world, teacher):
    pairs, pair_texts = texts(world)
    scores = CrossEncoder(str(teacher), device="cpu").predict(pair_texts, show_progress_bar=False)
    np.testing.assert_allclose(
        score_rows(load_classifier(teacher), rows_of(world, teacher, pairs), 700), scores, atol=2e-5
    )


def test_roberta_pairs(tmp_path):
    start = make_roberta(tmp_path, TEXTS)
    wide = CONFIG.model_copy(update={"question_tokens": 60, "passage_tokens": 62})
    folder = make_cross_encoder(start, tmp_path / "cross", config=wide)
    tokenizer = read_tokenizer(folder)
    specials, _ = special_tokens(tokenizer)
    form = read_pair_form(folder, lengths(wide), specials)
    pair_texts = [(q, p) for q in TEXTS for p in TEXTS]
    ids = {text: np.array(tokenizer.encode(text, add_special_tokens=False).ids) for text in TEXTS}
    rows = [pair_row(ids[q], np.array([], int), ids[p], form) for q, p in pair_texts]
    inputs, expected = plain_scores(folder, pair_texts)
    for i, (row, _) in enumerate(rows):
        assert row.tolist() == inputs["input_ids"][i][inputs["attention_mask"][i].bool()].tolist()
    actual = score_rows(load_classifier(folder), PairRows([row for row, _ in rows], np.zeros(len(rows), int)), 100)
    np.testing.assert_allclose(actual, expected, atol=2e-5)
    scores = CrossEncoder(str(folder), device="cpu").predict(pair_texts, show_progress_bar=False)
    np.testing.assert_allclose(actual, scores, atol=2e-5)
    model = load_classifier(folder)
    torch.nn.init.constant_(architecture(model).last_bias(model), 3.0)
    shifted = score_rows(model, PairRows([row for row, _ in rows], np.zeros(len(rows), int)), 100)
    np.testing.assert_allclose(shifted, actual + 3, atol=2e-5)
    # With a title the row has other ids, but decodes to the same text.
    title, text = (np.array(tokenizer.encode(t, add_special_tokens=False).ids[:4]) for t in TEXTS[1:3])
    row, second = pair_row(ids[TEXTS[0]], title, text, form)
    decoded = [tokenizer.decode(part.tolist()) for part in (title, text, row[second:-1])]
    assert decoded[2] == f"{decoded[0]} {decoded[1]}"


def test_long_texts_are_cut():
    form = PairForm(SPECIALS, Lengths(question_tokens=3, title_tokens=4, passage_tokens=6))
    question, title, text = np.arange(10, 15), np.arange(20, 26), np.arange(30, 40)
    row, second = pair_row(question, title, text, form)
    assert row.tolist() == [2, 10, 11, 12, 3, 20, 21, 22, 30, 31, 32, 3]  # at least half of the passage is its text
    assert second == 5
    row, _ = pair_row(question[:0], title[:0], text, form)
    assert row.tolist() == [2, 3, 30, 31, 32, 33, 34, 35, 3]
    untitled = PairForm(SPECIALS, Lengths(question_tokens=3, title_tokens=0, passage_tokens=6))
    assert pair_row(question, title, text[:2], untitled)[0].tolist() == [2, 10, 11, 12, 3, 30, 31, 3]


def test_a_folder_of_another_kind_is_reported_in_one_line(world, pair_start, tmp_path):
    with pytest.raises(InputError, match=r"pairs\.json: cannot be read"):
        check_cross_encoder(world.checkpoint, world.tokens)
    with pytest.raises(InputError, match=r"lacks weight .* and \d more"):
        load_classifier(world.checkpoint)
    small = make_cross_encoder(pair_start, tmp_path / "long", config=CONFIG.model_copy(update={"passage_tokens": 62}))
    with pytest.raises(InputError, match=r"cross_encoder: pairs of 71 tokens, but the model in .* has 64 positions"):
        check_cross_encoder(small, world.tokens)


def test_a_score_that_is_not_finite_is_an_error(world, teacher, tmp_path):
    model = load_classifier(teacher)
    torch.nn.init.constant_(model.classifier.bias, float("nan"))
    with pytest.raises(InputError, match="diverged"):
        score_rows(model, rows_of(world, teacher, [(0, 0)]), 100)
    save_classifier(tmp_path / "given", model, teacher)  # nothing has diverged: the file is damaged
    with pytest.raises(InputError, match=r"given: the model is damaged: weight classifier\.bias has NaN or infinite"):
        load_classifier(tmp_path / "given")
