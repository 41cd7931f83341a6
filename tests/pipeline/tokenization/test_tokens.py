"""Ids, word starts, sentence starts and offsets, compared with each text tokenised separately."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from machines import make_machine
from tokenizers import Tokenizer, models, pre_tokenizers

from pipeline.data.collection import Query, schemas, write_table
from pipeline.notices import read_notices
from pipeline.runtime.work import Work
from pipeline.tokenization import tokens as stage
from pipeline.tokenization import wordpiece
from pipeline.tokenization.token_files import Tokens
from pipeline.tokenization.tokens import Flat, TokensConfig, encode, sentence_tokens, tokens
from tasks.notices import with_notices
from tasks.stages import STAGES

MACHINE = make_machine()
NORMAL = wordpiece.Normal(lowercase=True, split_identifiers=True, drop_rules=True)
TEXTS = [
    "One sentence. Another one!  A third?",
    "",
    'No end here, e.g. in lower case. Said (so it is.) "Then" more.',
    "[MASK] is text. [SEP] too",
    "*** \n\n === Banner === \n\nParagraph two unseenwords",
    "\n\n",
    "A. *** B. ***",
]
DOCUMENTS = ["a", "a", "b", "c", "c", "c", "d"]
QUESTIONS = ["one sentence", "", "sentences"]


@pytest.fixture
def folders(tmp_path) -> tuple[Path, Path]:
    """A collection and its tokenizer."""
    collection, tokenizer = tmp_path / "collection", tmp_path / "tokenizer"
    collection.mkdir()
    tokenizer.mkdir()
    passages = [(f"p{i}", d, f"Title {d}", t) for i, (d, t) in enumerate(zip(DOCUMENTS, TEXTS, strict=True))]
    write_table(collection / "passages.parquet", schemas()["passages"], passages)
    queries = [
        Query(f"q{i}", split, text, [])
        for i, (split, text) in enumerate(zip(["test", "train", "dev"], QUESTIONS, strict=True))
    ]
    write_table(collection / "queries.parquet", schemas()["queries"], queries)
    words = sorted(
        {word for text in [*TEXTS, *QUESTIONS] for word in re.findall(r"\w+", text.lower())} - {"unseenwords"}
    )
    vocabulary = [*wordpiece.SPECIALS, *words, "title", "b", "d", "un", "##seen", "##words", *'.,!?()[]"']
    wordpiece.build_tokenizer(list(dict.fromkeys(vocabulary)), NORMAL).save(str(tokenizer / "tokenizer.json"))
    return collection, tokenizer


def run(folders: tuple[Path, Path], out: Path, max_tokens: int | None = None, progress=lambda *_: None) -> Tokens:
    out.mkdir()
    tokens(TokensConfig(max_tokens=max_tokens), *folders, Work(out, out, MACHINE, progress))
    return Tokens.open(out)


def words_of(folders: tuple[Path, Path], ids: np.ndarray) -> list[str]:
    tokenizer = Tokenizer.from_file(str(folders[1] / "tokenizer.json"))
    return [tokenizer.id_to_token(int(i)) for i in ids]


def test_rows_are_the_tokens_of_the_texts(folders, tmp_path):
    stored = run(folders, tmp_path / "out")
    assert (len(stored.passages), len(stored.titles), len(stored.queries)) == (7, 7, 3)
    tokenizer = Tokenizer.from_file(str(folders[1] / "tokenizer.json"))
    for i, text in enumerate(TEXTS):
        if "[" not in text:
            assert stored.passages[i].tolist() == tokenizer.encode(text, add_special_tokens=False).ids
    for i, text in enumerate(QUESTIONS):
        assert words_of(folders, stored.queries[i]) == text.split()
    assert words_of(folders, stored.titles[6]) == ["title", "d"]
    assert stored.passages.lengths.tolist() == [len(stored.passages[i]) for i in range(7)]
    assert stored.doc_offsets.tolist() == [0, 2, 3, 6, 7]
    assert stored.passages.tokens.dtype == np.uint16
    assert isinstance(stored.passages.tokens, np.memmap)


def test_passages_that_consist_only_of_rules_are_counted(folders, tmp_path):
    collection = tmp_path / "rules"
    shutil.copytree(folders[0], collection)
    texts = [4000 * ".", "One sentence.", "\n", "====="]
    passages = [(f"p{i}", f"p{i}", "Title", text) for i, text in enumerate(texts)]
    write_table(collection / "passages.parquet", schemas()["passages"], passages)
    (tmp_path / "out").mkdir()
    work = Work(tmp_path / "out", tmp_path, MACHINE, lambda *_: None)
    metrics = tokens(TokensConfig(max_tokens=None), collection, folders[1], work)
    (line,) = read_notices(with_notices(STAGES["tokens"].notices, metrics, "tokens"))
    assert line == "passages whose text has no token, so that their titles alone are read: 2"


def test_special_tokens_in_a_text_are_text(folders, tmp_path):
    stored = run(folders, tmp_path / "out")
    assert words_of(folders, stored.passages[3]) == ["[", "mask", "]", "is", "text", ".", "[", "sep", "]", "too"]
    unknown = {stored.specials.unk}
    assert not set(stored.passages.tokens.tolist()) & (set(stored.specials.ids) - unknown)


def test_word_and_sentence_starts(folders, tmp_path):
    passages = run(folders, tmp_path / "out").passages
    assert passages.sentence_starts is not None

    def sentences(i: int) -> list[str]:
        words, starts = words_of(folders, passages[i]), passages.sentence_starts[passages.span(i)]
        return [" ".join(part) for part in np.split(np.array(words, object), np.flatnonzero(starts)[1:])]

    assert sentences(0) == ["one sentence .", "another one !", "a third ?"]
    assert sentences(2) == ["no end here , e . g . in lower case .", 'said ( so it is . ) " then " more .']
    # The rule before "Banner" is dropped, so that its sentence starts with the next character that becomes a token.
    assert sentences(4) == ["banner", "paragraph two un ##seen ##words"]
    assert sentences(6) == ["a . b ."]
    assert passages.word_starts[passages.span(4)].tolist() == [True, True, True, True, False, False]
    for flat in (passages.word_starts, passages.sentence_starts):
        assert all(flat[passages.span(i)][0] for i in range(7) if len(passages[i]))


def test_passages_are_cut_to_the_maximum_length(folders, tmp_path):
    cut, whole = run(folders, tmp_path / "cut", max_tokens=4), run(folders, tmp_path / "whole")
    for i in range(7):
        assert cut.passages[i].tolist() == whole.passages[i][:4].tolist()
        starts = cut.passages.sentence_starts[cut.passages.span(i)]
        assert starts.tolist() == whole.passages.sentence_starts[whole.passages.span(i)][:4].tolist()
    assert words_of(folders, cut.titles[0]) == ["title", "a"]


def test_the_batch_size_does_not_change_the_files(folders, tmp_path, monkeypatch):
    run(folders, tmp_path / "one")
    monkeypatch.setattr(stage, "BATCH_ROWS", 2)
    run(folders, tmp_path / "many")
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 12
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "many" / file).read_bytes()


def test_progress(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "BATCH_ROWS", 3)
    seen = []
    run(folders, tmp_path / "out", progress=lambda *call: seen.append(call))
    assert [call[:3] for call in seen] == [(3, 7, "passages"), (6, 7, "passages"), (7, 7, "passages")]
    assert seen[-1][3]["passages_per_second"] > 0


def test_empty_collection(folders, tmp_path):
    for table in ("passages", "queries"):
        write_table(folders[0] / f"{table}.parquet", schemas()[table], [])
    stored = run(folders, tmp_path / "out")
    assert (len(stored.passages), len(stored.queries), stored.doc_offsets.tolist()) == (0, 0, [0])


def test_a_text_encoded_alone_has_the_ids_of_the_artifact(folders, tmp_path):
    stored = run(folders, tmp_path / "out")
    tokenizer = stage.read_tokenizer(folders[1])
    assert encode(tokenizer, QUESTIONS) == [stored.queries[i].tolist() for i in range(3)]
    assert encode(tokenizer, TEXTS, 3) == [stored.passages[i].tolist()[:3] for i in range(7)]


def test_large_vocabulary_takes_four_bytes(tmp_path):
    vocabulary = [*wordpiece.SPECIALS, *(f"w{i}" for i in range(70_000))]
    reader = wordpiece.build_tokenizer(vocabulary, NORMAL)
    with stage.RaggedWriter(tmp_path / "x", reader) as writer:
        writer.write(["w69999 w0", ""], reader.encode_batch(["w69999 w0", ""], add_special_tokens=False))
    saved = np.load(tmp_path / "x" / "tokens.npy")
    assert saved.dtype == np.uint32
    assert saved.tolist() == [70_004, 5]
    assert np.load(tmp_path / "x" / "offsets.npy").tolist() == [0, 2, 2]


def test_a_space_belongs_to_the_sentence_after_it_in_byte_level_bpe():
    vocabulary = {
        token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "Ġ", "Ġa", "Ċ"])
    }
    tokenizer = Tokenizer(models.BPE(vocabulary, [("Ġ", "a")], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = "ab. A ab"
    assert list(sentence_tokens(text, tokenizer.encode(text))) == [3]  # a, b, <unk>, then the space before A


def test_flat_file_grows(tmp_path):
    file = Flat(tmp_path / "x.npy", np.dtype(np.uint16))
    for part in (np.arange(3), np.arange(0), np.arange(70_000) % 7):
        file.write(part)
    file.close()
    loaded = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert loaded.tolist() == [*range(3), *(np.arange(70_000) % 7).tolist()]
    assert loaded.offset % 64 == 0
