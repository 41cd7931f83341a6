"""An existing tokenizer is used unchanged. A trained tokenizer depends only on the text."""

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from huggingface_hub import constants
from machines import make_machine
from pydantic import ValidationError
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from trained import TRAINED, train_tokenizer
from transformers import AutoTokenizer

from pipeline.data.collection import schemas, write_table
from pipeline.errors import InputError
from pipeline.runtime.work import Work
from pipeline.tokenization import wordpiece
from pipeline.tokenization.joining import joins_words
from pipeline.tokenization.tokenizer import (
    TokenizerConfig,
    has_pair_types,
    kind,
    missing,
    read_tokenizer,
    separators,
    special_tokens,
    tokenizer,
)
from pipeline.tokenization.word_starts import word_start_table

MACHINE = make_machine()
DATA = Path(__file__).parents[4] / "shared" / "data"
HARD = [
    "camelCase HTMLParser x2Y",
    "snake_case_name __init__",
    "=== Title === ~~~~",
    "Café Ünïcode",
    "don't [MASK] <s>",
    "",
]


def docstrings() -> list[str]:
    """Real text with rare characters and source code in it."""
    texts = [
        ast.get_docstring(node)
        for node in ast.walk(ast.parse(Path(ast.__file__).read_text()))
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
    ]
    return [text for text in texts if text] + HARD


def make_collection(folder: Path, texts: list[str]) -> Path:
    folder.mkdir(parents=True)
    passages = ((f"p{i}", f"d{i // 2}", f"module.Class{i // 2}", text) for i, text in enumerate(texts))
    write_table(folder / "passages.parquet", schemas()["passages"], passages)
    return folder


def run(tmp_path: Path, collection: Path, name: str = "out", **fields) -> Path:
    out = tmp_path / name
    train_tokenizer(collection, out, **fields)
    return out


@pytest.fixture(scope="module")
def collection(tmp_path_factory) -> Path:
    return make_collection(tmp_path_factory.mktemp("tokenizer") / "collection", docstrings())


@pytest.fixture(scope="module")
def trained(tmp_path_factory, collection) -> Path:
    return run(tmp_path_factory.mktemp("trained"), collection)


def test_three_processes_train_equal_bytes(tmp_path, collection, trained):
    code = (
        "import sys; from pathlib import Path; from pipeline.tokenization.tokenizer import *\n"
        "from pipeline.runtime.work import *\n"
        "collection, out, config, machine = sys.argv[1:]; out = Path(out); out.mkdir()\n"
        "work = Work(out, out, Machine.model_validate_json(machine), silent)\n"
        "tokenizer(TokenizerConfig.model_validate_json(config), Path(collection), work)"
    )
    for number in (1, 2, 3):
        out = tmp_path / str(number)
        settings = [str(collection), str(out), json.dumps(TRAINED), MACHINE.model_dump_json()]
        environment = {**os.environ, "RAYON_NUM_THREADS": str(number), "PYTHONHASHSEED": str(number)}
        root = Path(__file__).parents[3]
        subprocess.run([sys.executable, "-c", code, *settings], check=True, env=environment, cwd=root)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            assert (out / file).read_bytes() == (trained / file).read_bytes()


def test_trained_vocabulary_is_laid_out_and_only_five_are_special(trained):
    loaded = AutoTokenizer.from_pretrained(trained)
    assert len(loaded) == 600
    assert set(loaded.all_special_tokens) == set(wordpiece.SPECIALS)
    entries = json.loads((trained / "tokenizer.json").read_text())["added_tokens"]
    assert [entry["content"] for entry in entries] == list(wordpiece.SPECIALS)
    ids = loaded.get_vocab()
    vocabulary = sorted(ids, key=ids.__getitem__)
    letters = vocabulary[5 : vocabulary.index("##" + vocabulary[5])]
    assert letters == sorted(letters)
    assert all(len(letter) == 1 for letter in letters)
    assert vocabulary[5 + len(letters) : 5 + 2 * len(letters)] == ["##" + letter for letter in letters]
    assert loaded.decode(loaded("a node").input_ids, skip_special_tokens=True) == "a node"


def test_transformers_gives_the_same_ids(trained):
    direct, by_transformers = read_tokenizer(trained), AutoTokenizer.from_pretrained(trained)
    for text in docstrings():
        if "[MASK]" not in text:
            assert by_transformers(text).input_ids == direct.encode(text).ids


@pytest.mark.parametrize(
    ("fields", "text", "words"),
    [
        ({}, "fooBar HTMLParser", "foo bar html parser"),
        ({"split_identifiers": False}, "fooBar", "foobar"),
        ({"lowercase": False}, "fooBar HTMLParser Café", "foo Bar HTML Parser Café"),
        ({}, "snake_case", "snake case"),
        ({"split_identifiers": False}, "snake_case", "snake _ case"),
        ({}, "==== Title ==== , a.b >>> c", "title , a . b c"),
        ({"drop_rules": False}, "=== a", "= = = a"),
        ({}, "Café", "cafe"),
    ],
)
def test_text_is_split_into_words(fields, text, words):
    settings = {"lowercase": True, "split_identifiers": True, "drop_rules": True, **fields}
    tokenizer = wordpiece.build_tokenizer([*wordpiece.SPECIALS, *words.split()], wordpiece.Normal(**settings))
    assert tokenizer.encode(text, add_special_tokens=False).tokens == words.split()


def test_rare_characters_do_not_fill_the_vocabulary():
    from collections import Counter

    normal = wordpiece.Normal(lowercase=True, split_identifiers=False, drop_rules=False)
    counts = Counter({"e": 9, "E": 4, "a": 12, " ": 99, "z": 1, "y": 1, "é": 1})
    assert wordpiece.alphabet(counts, normal, 3) == ["a", "e", "y"]


def test_vocab_file(tmp_path, collection):
    words = sorted({word.lower() for text in docstrings() for word in text.split() if word.isalpha()})
    vocabulary = [*wordpiece.SPECIALS, *words, *"().,`=:'\"-*>", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    out = run(tmp_path, collection, path=tmp_path / "vocab.txt")
    loaded = AutoTokenizer.from_pretrained(out)
    assert len(loaded) == len(vocabulary)
    assert loaded("Return the node.").input_ids == [
        vocabulary.index(t) for t in ["[CLS]", "return", "the", "node", ".", "[SEP]"]
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[PAD]\n[UNK]\nfoo\n", r"vocab.txt: no line \[CLS\] \[SEP\] \[MASK\]"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfoo\nfoo\n", r"vocab.txt:7: 'foo' is in line 6 too"),
        (b"[PAD]\n\xff\n", r"vocab.txt: not UTF-8 at byte 6"),
        (b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nzzz\n", r"% of the collection's characters are unknown to it"),
    ],
)
def test_a_bad_vocab_file_is_refused(tmp_path, collection, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(InputError, match=message):
        run(tmp_path, collection, path=tmp_path / "vocab.txt")
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")
def test_the_vocabulary_of_bert(tmp_path, collection):
    path = DATA / "bert_vocab" / "vocab.txt"
    out = run(tmp_path, collection, path=path, split_identifiers=False, drop_rules=False)
    loaded = AutoTokenizer.from_pretrained(out)
    assert len(loaded) == 30522
    assert loaded("Hello world!").input_ids == [101, 7592, 2088, 999, 102]


def roberta_folder(folder: Path, texts: list[str]) -> Path:
    """A byte-level BPE tokenizer like that of RoBERTa, with the same special tokens."""
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = [*names, AddedToken("<mask>", lstrip=True, special=True)]
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=500, special_tokens=specials, initial_alphabet=alphabet, show_progress=False),
    )
    bpe.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    bpe.enable_truncation(8)
    folder.mkdir()
    bpe.save(str(folder / "tokenizer.json"))
    return folder


def test_unigram_from_a_folder(tmp_path, collection):
    """As XLM-RoBERTa has it: SentencePiece's words begin with a sign for the space before them."""
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=names, unk_token="<unk>", show_progress=False)
    unigram.train_from_iterator(docstrings(), trainer)
    unigram.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    (tmp_path / "xlmr").mkdir()
    unigram.save(str(tmp_path / "xlmr" / "tokenizer.json"))
    out = run(tmp_path, collection, path=tmp_path / "xlmr")
    direct, by_transformers = read_tokenizer(out), AutoTokenizer.from_pretrained(out)
    assert (kind(direct), joins_words(direct)) == ("unigram", True)
    assert (separators(direct), has_pair_types(direct)) == (2, False)
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    assert not joins_words(unigram)
    text = "Return the length of the list."
    assert direct.encode(text).ids == by_transformers(text).input_ids
    first, second = (
        direct.encode(part, add_special_tokens=False).ids for part in ("Return the length", "of the list.")
    )
    assert first + second == direct.encode(text, add_special_tokens=False).ids
    starts = word_start_table(direct)[direct.encode(text, add_special_tokens=False).ids]
    assert starts.sum() == len(text.split())


def test_mpnets_special_tokens(tmp_path, collection):
    """Those of RoBERTa, but for BERT's [UNK]; the vocabulary also has all of BERT's, and RoBERTa's <unk>."""
    names = ["<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>"]
    letters = sorted({letter for text in docstrings() for letter in text.lower() if not letter.isspace()})
    entries = [*names, "[PAD]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    wordpiece = Tokenizer(models.WordPiece({entry: i for i, entry in enumerate(entries)}, unk_token="[UNK]"))
    wordpiece.normalizer = normalizers.BertNormalizer()
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wordpiece.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    (tmp_path / "mpnet").mkdir()
    wordpiece.save(str(tmp_path / "mpnet" / "tokenizer.json"))
    specials, texts = special_tokens(read_tokenizer(tmp_path / "mpnet"))
    assert (specials.cls, specials.pad, specials.sep, specials.unk, specials.mask) == (0, 1, 2, 4, 5)
    assert texts["unk_token"] == "[UNK]"


def test_byte_level_bpe_from_a_folder(tmp_path, collection):
    source = roberta_folder(tmp_path / "roberta", docstrings())
    out = run(tmp_path, collection, path=source)
    direct, by_transformers = read_tokenizer(out), AutoTokenizer.from_pretrained(out)
    assert kind(direct) == "byte-level bpe"
    assert special_tokens(direct)[0].ids == (0, 1, 2, 3, 4)
    assert by_transformers.mask_token_id == 4
    text = max(docstrings(), key=len)
    assert len(by_transformers(text).input_ids) > 8  # the truncation that the file sets is removed
    for text in docstrings():
        if "<s>" not in text:
            assert by_transformers(text).input_ids == direct.encode(text).ids
    assert (
        by_transformers("a <mask>").input_ids
        == Tokenizer.from_file(str(source / "tokenizer.json")).encode("a <mask>").ids
    )


def test_a_folder_with_only_a_vocab_file(tmp_path, collection, trained):
    """transformers 5 reads the vocab.txt of a BERT folder completely. Otherwise the stage refuses the result."""
    ids = read_tokenizer(trained).get_vocab()
    source = tmp_path / "bert"
    source.mkdir()
    (source / "vocab.txt").write_text("\n".join(sorted(ids, key=ids.__getitem__)))
    (source / "config.json").write_text('{"model_type": "bert"}')
    assert read_tokenizer(run(tmp_path, collection, path=source)).get_vocab() == ids


def test_a_folder_with_an_incomplete_vocab_file_is_refused(tmp_path, collection):
    """transformers adds the special tokens, but not to the vocabulary that WordPiece uses."""
    source = tmp_path / "bert"
    source.mkdir()
    (source / "vocab.txt").write_text("[PAD]\nfoo\n")
    (source / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match=r"vocab\.txt: no line \[UNK\] \[CLS\] \[SEP\] \[MASK\]"):
        run(tmp_path, collection, path=source)


def test_other_kinds_are_refused(tmp_path, collection):
    source = tmp_path / "words"
    source.mkdir()
    Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, "<unk>")).save(str(source / "tokenizer.json"))
    with pytest.raises(InputError, match="WordLevel is neither WordPiece nor byte-level BPE nor Unigram"):
        run(tmp_path, collection, path=source)
    bare = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    bare.save(str(source / "tokenizer.json"))
    with pytest.raises(InputError, match=r"has neither \[PAD\]"):
        run(tmp_path, collection, "other", path=source)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path, collection):
    with pytest.raises(InputError, match="nowhere: has no tokenizer"):
        run(tmp_path, collection, path=tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"model": ', b"\xff\x00", b'{"version": "1.0", "model": {"type": "?"}}']
)
def test_a_tokenizer_that_cannot_be_read_is_reported(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"^{tmp_path}: no tokenizer could be read: [^\n]+$"):
        read_tokenizer(tmp_path)


def test_a_collection_without_text_is_refused(tmp_path):
    empty = make_collection(tmp_path / "empty", [])
    with pytest.raises(InputError, match=r"passages\.parquet: no text to train a tokenizer on"):
        run(tmp_path, empty)


def test_two_sources_are_refused():
    with pytest.raises(ValidationError, match="pretrained and path are both set"):
        TokenizerConfig(**{**TRAINED, "pretrained": "bert-base-uncased", "path": Path("x")})
    with pytest.raises(ValidationError, match="pretrained"):
        TokenizerConfig(**{**TRAINED, "pretrained": "../a folder"})


def test_progress_reaches_its_end(tmp_path, collection):
    seen = []
    out = tmp_path / "out"
    out.mkdir()
    work = Work(out, out, MACHINE, lambda done, total, unit, numbers=None: seen.append((done, total, unit)))
    metrics = tokenizer(TokenizerConfig(**TRAINED), collection, work)
    count = len(docstrings())
    assert seen[-1] == (2 * count, 2 * count, "passages")
    assert metrics == {"vocab_size": 600, "unknown_share": pytest.approx(0, abs=0.05), "model": "wordpiece"}


def test_a_model_neither_cached_nor_reachable_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    config = TokenizerConfig(**{**TRAINED, "pretrained": "someone/some-model"})
    assert missing(config) == [
        "model someone/some-model is not on this machine: `hf download someone/some-model`, "
        "or set tokenizer.path to a local folder"
    ]
    assert missing(TokenizerConfig(**TRAINED)) == []


def test_missing_is_fast_and_imports_no_large_library(tmp_path):
    """At most half a second, also if the hub's name cannot be resolved. Only the hub's constants are imported."""
    code = (
        "import sys, time, json; from pipeline.tokenization.tokenizer import *\n"
        "config = TokenizerConfig.model_validate_json(sys.argv[1]); started = time.monotonic()\n"
        "lines = missing(config); print(time.monotonic() - started, len(lines))\n"
        "assert not {'torch', 'transformers', 'pyarrow'} & set(sys.modules)"
    )
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    environment = {name: value for name, value in environment.items() if name.lower() != "https_proxy"}
    config = json.dumps({**TRAINED, "pretrained": "someone/some-model"})
    root = Path(__file__).parents[3]
    process = subprocess.run(
        [sys.executable, "-c", code, config], check=True, env=environment, cwd=root, capture_output=True, text=True
    )
    seconds, lines = process.stdout.split()
    assert float(seconds) < 0.5
    assert lines == "1"


def test_a_cached_model_needs_no_network(tmp_path, monkeypatch, collection, trained):
    repository = tmp_path / "hub" / "models--someone--some-model"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    (snapshot / "tokenizer.json").write_bytes((trained / "tokenizer.json").read_bytes())
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert missing(TokenizerConfig(**{**TRAINED, "pretrained": "someone/some-model"})) == []
    started = time.monotonic()
    out = run(tmp_path, collection, pretrained="someone/some-model")
    assert (out / "tokenizer.json").read_bytes() == (trained / "tokenizer.json").read_bytes()
    assert time.monotonic() - started < 5


def test_normaliser_is_saved_in_the_file(trained):
    saved = Tokenizer.from_file(str(trained / "tokenizer.json"))
    assert isinstance(saved.normalizer, normalizers.Sequence)
    assert saved.normalizer.normalize_str("fooBar_baz ===").split() == ["foo", "bar", "baz"]
