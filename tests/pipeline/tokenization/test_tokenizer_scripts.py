"""Text without spaces: long words are read in pieces, and unknown characters are counted where they occur."""

import json
import random
import string
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from trained import train_tokenizer
from transformers import AutoTokenizer

from pipeline.data.collection import NEIGHBOURS, PLACES, sample_rows, schemas, write_table
from pipeline.errors import InputError
from pipeline.notices import read_notices
from pipeline.tokenization import wordpiece
from pipeline.tokenization.tokenizer import read_tokenizer

LETTERS = {
    "thai": "".join(map(chr, range(0xE01, 0xE2F))) + "ะาเแโไ",
    "dna": "ACGT",
    "base64": string.ascii_letters + string.digits,
    "georgian": "".join(map(chr, range(0x10D0, 0x10F1))),
}


def collection(folder: Path, texts: list[str]) -> Path:
    folder.mkdir()
    rows = ((f"p{i}", f"p{i}", "", text) for i, text in enumerate(texts))
    write_table(folder / "passages.parquet", schemas()["passages"], rows)
    return folder


def stage(tmp_path: Path, texts: list[str], **fields) -> tuple[Path, dict]:
    out = tmp_path / "out"
    return out, train_tokenizer(collection(tmp_path / "collection", texts), out, **fields)


def runs(letters: str, length: int, number: int = 50) -> list[str]:
    rng = random.Random(1)
    return ["".join(rng.choice(letters) for _ in range(length)) for _ in range(number)]


@pytest.mark.parametrize("script", LETTERS)
def test_long_words_are_split(tmp_path, script):
    texts = runs(LETTERS[script], 350)
    out, metrics = stage(tmp_path, texts, split_identifiers=False)
    assert metrics["unknown_share"] == 0
    assert not read_notices(metrics)
    direct, by_transformers = read_tokenizer(out), AutoTokenizer.from_pretrained(out)
    for text in texts[:5]:
        encoding = direct.encode(text)
        assert "[UNK]" not in encoding.tokens
        assert by_transformers(text).input_ids == encoding.ids
        assert "".join(encoding.tokens[1:-1]).replace("##", "") == text.lower()


def bert_folder(folder: Path, vocabulary: list[str]) -> Path:
    """A tokenizer like those of other projects, which do not split long words."""
    ids = {token: i for i, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_loaded_tokenizer_splits_long_words_too(tmp_path):
    letters = [*string.ascii_lowercase]
    folder = bert_folder(tmp_path / "bert", [*wordpiece.SPECIALS, *letters, *("##" + c for c in letters), "abcabc"])
    long = "abc" * 100
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).encode(long).tokens == ["[UNK]"]
    out, metrics = stage(tmp_path, [long], path=folder)
    assert metrics["unknown_share"] == 0
    assert "[UNK]" not in AutoTokenizer.from_pretrained(out).tokenize(long)
    reloaded = read_tokenizer(out)
    assert (
        json.loads(reloaded.to_str())["pre_tokenizer"]
        == json.loads((out / "tokenizer.json").read_text())["pre_tokenizer"]
    )


def test_words_up_to_the_limit_are_read_as_without_the_split(tmp_path):
    letters = [*string.ascii_lowercase, "é"]
    vocabulary = [*wordpiece.SPECIALS, *letters, *("##" + c for c in letters), "a" * 60, "##" + "a" * 40]
    plain = Tokenizer.from_file(str(bert_folder(tmp_path / "bert", vocabulary) / "tokenizer.json"))
    split = read_tokenizer(tmp_path / "bert")
    for text in ("a" * 100, "x" * 99 + " y-z", "é" * 100 + ".b", "a\n" * 150, "a,b." * 80, "ü no", ""):
        assert split.encode(text).ids == plain.encode(text).ids
    assert split.encode("a" * 101).tokens != plain.encode("a" * 101).tokens


def test_the_sample_is_spread_over_the_collection():
    assert sample_rows(0) == []
    assert sample_rows(10) == [*range(10)]
    for passages in (PLACES * NEIGHBOURS + 1, 5000, 8_841_823):
        rows = sample_rows(passages)
        assert len(rows) == len(set(rows)) == PLACES * NEIGHBOURS
        assert rows == sorted(rows)
        assert (rows[0], rows[-1]) == (0, passages - 1)


@pytest.mark.parametrize(("foreign", "word"), [("ᚠᚢᚦ", "ᚠᚢᚦ"), ("Ωμέγα", "ωμεγα"), ("한국어", "한국어")])
def test_unknown_characters_are_counted_where_they_occur(tmp_path, foreign, word):
    letters = [*string.ascii_lowercase]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*wordpiece.SPECIALS, *letters, *("##" + c for c in letters)]))
    texts = ["known words"] * 1500 + [f"some {foreign * 3}"] * 500
    _, metrics = stage(tmp_path, texts, path=path)
    expected = 500 * 3 * len(foreign) / (1500 * 10 + 500 * (4 + 3 * len(foreign)))
    assert metrics["unknown_share"] == pytest.approx(expected, rel=0.1)
    (line,) = read_notices(metrics)
    assert line.startswith(
        f"characters that become [UNK], {metrics['unknown_share']:.1%} of a sample of 1,024 passages:"
    )
    assert f"(first: {foreign * 3}); use another tokenizer" in line


def test_a_mostly_unknown_collection_is_refused_with_examples(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*wordpiece.SPECIALS, "a"]))
    texts = ["a a a"] * 200 + ["ไทย"] * 1000
    with pytest.raises(InputError, match=r"83% of the collection's characters are unknown to it \(first: ไทย\)"):
        stage(tmp_path, texts, path=path)


@pytest.mark.parametrize("first", [0x4E00, 0x3400, 0x20000])
def test_a_trained_vocabulary_holds_the_ideographs(tmp_path, first):
    known = [chr(first + i) for i in range(2000)]
    texts = ["".join(random.Random(i).sample(known, 400)) for i in range(40)]
    _, metrics = stage(tmp_path, texts, vocab_size=6000)
    assert metrics["unknown_share"] < 0.001


def test_a_few_ideographs_do_not_fill_the_vocabulary():
    normal = wordpiece.Normal(lowercase=True, split_identifiers=False, drop_rules=False)
    english = Counter(dict.fromkeys(string.ascii_lowercase, 100000))
    foreign = Counter({chr(0x4E00 + i): 1 for i in range(1200)})
    letters = wordpiece.alphabet(english + foreign, normal, 100)
    assert wordpiece.ideographs(english + foreign, normal, letters, 10_000) == []
    many = wordpiece.ideographs(foreign, normal, letters, 10_000)
    assert len(many) > 1000
    assert len(wordpiece.ideographs(foreign, normal, letters, 500)) == 500 - 2 * len(letters) - 5
