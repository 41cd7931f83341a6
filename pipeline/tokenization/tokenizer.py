"""The tokenizer: an existing one, or WordPiece trained on the collection."""

import json
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator
from tokenizers import Tokenizer

from pipeline.config import Config
from pipeline.data.collection import at_rows, passage_batches, passage_count, sample_rows
from pipeline.errors import InputError, reason
from pipeline.notices import EXAMPLES, notice, noticed, one_line
from pipeline.runtime import hub
from pipeline.runtime.work import Metrics, Work
from pipeline.tokenization import wordpiece
from pipeline.tokenization.token_files import Specials

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILES = ("tokenizer.json", "vocab.txt", "vocab.json")
HUB_FILES = (*FILES, "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "config.json")
BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
MPNET = {**ROBERTA, "unk": "[UNK]"}
Kind = Literal["wordpiece", "byte-level bpe", "unigram"]
BATCH_ROWS = 512
MOST_UNKNOWN = 0.5
"""Largest share of unknown characters in the collection; a tokenizer that knows fewer is useless."""
UNKNOWN_NOTICED = 0.01
"""Share of unknown characters above which the user gets a notice."""


class TokenizerConfig(Config):
    """An existing tokenizer from `pretrained` or `path`; with neither, WordPiece is trained on the collection."""

    pretrained: str | None = Field(pattern=hub.HUB_NAME)
    """Name of a Hugging Face model whose tokenizer is used, such as `bert-base-uncased`."""
    revision: str
    """Branch, tag or commit of `pretrained`. Only a commit pins the content."""
    path: Path | None
    """A local folder that holds a tokenizer (WordPiece, byte-level BPE or Unigram), or a WordPiece `vocab.txt`."""
    vocab_size: int = Field(ge=256)
    """Entries of a trained vocabulary, with special tokens. A small collection may give fewer."""
    lowercase: bool
    """Lower case without accents, as in BERT's uncased models. For a trained vocabulary and a `vocab.txt`."""
    split_identifiers: bool
    """Split words at `_` and at camelCase. For a trained vocabulary and a `vocab.txt`."""
    drop_rules: bool
    """Drop runs of three or more ASCII punctuation marks (drawn lines). For a trained vocabulary and a `vocab.txt`."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.pretrained is not None and self.path is not None:
            raise ValueError("pretrained and path are both set: set one of them, or neither to train a tokenizer")
        return self


def missing(config: TokenizerConfig) -> list[str]:
    """Returns a line for each file that the stage needs and that is missing, with a command for a download."""
    if config.path is not None and config.path.is_dir() and not has_tokenizer(config.path):
        return [f"tokenizer.path: {_no_tokenizer(config.path)}"]
    return hub.missing(config.pretrained, config.revision, FILES, "tokenizer.path")


def tokenizer(config: TokenizerConfig, collection: Path, work: Work) -> Metrics:
    """Writes `tokenizer.json` and `tokenizer_config.json`, which `AutoTokenizer` loads.

    Raises InputError if there is no tokenizer, if it has another type (`Kind`) or other special tokens than BERT,
    RoBERTa or MPNet, and if it does not know most of the collection's characters.
    """
    if config.pretrained is not None:
        source = config.pretrained
        result = read_tokenizer(hub.fetch(config.pretrained, config.revision, HUB_FILES, FILES))
    elif config.path is not None:
        source = str(config.path)
        result = read_tokenizer_or_vocabulary(config.path, _normal(config))
    else:
        source = "trained"
        result = _trained(config, collection, work)
    specials, names = special_tokens(result)
    lost = unknown(result, specials.unk, collection)
    if lost.share > MOST_UNKNOWN:
        first = ", ".join(one_line(word) for word in lost.words)
        raise InputError(
            f"tokenizer {source}: {lost.share:.0%} of the collection's characters are unknown to it (first: {first}); "
            "use another one, or train one: tokenizer.pretrained and tokenizer.path null"
        )
    (work.out / "tokenizer_config.json").write_text(json.dumps(_description(names), indent=2) + "\n", "utf-8")
    # Not save(): it ignores the umask on some platforms, and writes no final newline.
    (work.out / "tokenizer.json").write_text(result.to_str(pretty=True) + "\n", "utf-8")
    figures: Metrics = {"vocab_size": specials.vocab_size, "unknown_share": lost.share, "model": kind(result)}
    return {**figures, **noticed(_warnings(lost, source))}


def read_tokenizer(folder: Path) -> Tokenizer:
    """Reads the tokenizer of a folder, without truncation and padding. Special tokens in a text are ordinary text.

    WordPiece splits words that are too long for it; otherwise each would be [UNK].
    tokenizer.json is read without transformers: version 5 rebuilds it if the class is BertTokenizer, and loses its
    normaliser. Raises InputError.
    """
    path = folder / "tokenizer.json"
    _check_own_code(folder / "tokenizer_config.json")
    if not has_tokenizer(folder):  # transformers would create one with only special tokens
        raise InputError(_no_tokenizer(folder))
    try:
        loaded = Tokenizer.from_file(str(path)) if path.is_file() else _converted(folder)
    except Exception as error:  # tokenizers raises plain Exception, transformers any error
        raise InputError(f"{folder}: no tokenizer could be read: {reason(error)}") from error
    loaded.no_truncation()
    loaded.no_padding()
    loaded.encode_special_tokens = True
    if kind(loaded) == "wordpiece":
        wordpiece.split_long_words(loaded)
    special_tokens(loaded)
    return loaded


def _check_own_code(path: Path) -> None:
    """Raises InputError if the file names a tokenizer of code in the folder, which is never run."""
    try:
        settings = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except ValueError:  # tokenizer.json alone says how texts are read
        return
    if isinstance(settings, dict) and settings.get("auto_map"):
        raise InputError(f"{path}: auto_map names code of the tokenizer's own, which is never run")


def _no_tokenizer(folder: Path) -> str:
    return f"{folder}: has no tokenizer: {', '.join(FILES)} are all missing; copy those of the model that it began with"


def has_tokenizer(folder: Path) -> bool:
    """Returns whether the folder has one of FILES."""
    return any((folder / name).is_file() for name in FILES)


def read_tokenizer_or_vocabulary(path: Path, normal: wordpiece.Normal) -> Tokenizer:
    """Reads a folder as `read_tokenizer` does; a file `vocab.txt` gives WordPiece with its entries and `normal`."""
    return _from_vocab_file(path, normal) if path.is_file() else read_tokenizer(path)


def special_tokens(tokenizer: Tokenizer) -> tuple[Specials, dict[str, str]]:
    """Returns the special tokens' ids, and their texts by transformers' names (`cls_token`, ...). Raises InputError."""
    vocabulary = tokenizer.get_vocab()
    known = [names for names in (BERT, MPNET, ROBERTA) if vocabulary.keys() >= set(names.values())]
    if not known:
        raise InputError(f"tokenizer: has neither {' '.join(BERT.values())} nor {' '.join(ROBERTA.values())}")
    # MPNet's vocabulary has BERT's special tokens too, as ordinary entries.
    around = tokenizer.encode("").ids
    used = [names for names in known if around == [vocabulary[names["cls"]], vocabulary[names["sep"]]]]
    names = (used or known)[0]
    ids = {role: vocabulary[text] for role, text in names.items()}
    return Specials(len(vocabulary), **ids), {f"{role}_token": text for role, text in names.items()}


def kind(tokenizer: Tokenizer) -> Kind:
    """Returns the tokenizer's type, from its own description. Raises InputError for another type."""
    description = json.loads(tokenizer.to_str())
    model, splitter = description["model"]["type"], json.dumps(description["pre_tokenizer"])
    if model == "WordPiece":
        return "wordpiece"
    if model == "BPE" and '"ByteLevel"' in splitter:
        return "byte-level bpe"
    if model == "Unigram" and '"Metaspace"' in splitter:
        return "unigram"
    raise InputError(f"tokenizer: {model} is neither WordPiece nor byte-level BPE nor Unigram (SentencePiece)")


def separators(tokenizer: Tokenizer) -> int:
    """Returns the number of special tokens between the texts of a pair: one, or two as RoBERTa has them."""
    return max(1, len(tokenizer.encode("", "").ids) - 2)


def has_pair_types(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer gives a pair's second text another token type."""
    empty = tokenizer.encode("", "")
    return not empty.ids or any(empty.type_ids)


def _converted(folder: Path) -> Tokenizer:
    from transformers import AutoTokenizer

    path = folder / "vocab.txt"
    vocabulary = _lines(path) if path.is_file() else None
    if vocabulary is not None:
        _check_specials(path, vocabulary)
    converted = AutoTokenizer.from_pretrained(folder, local_files_only=True).backend_tokenizer
    # transformers 5 sometimes reads only five tokens of a vocabulary, without an error.
    if vocabulary is not None and converted.get_vocab_size() < len(vocabulary):
        raise InputError(f"transformers read {converted.get_vocab_size()} of {len(vocabulary)} entries")
    return converted


def _check_specials(path: Path, tokens: Container[str]) -> None:
    """Raises InputError if a file's tokens lack a special token of BERT."""
    lacking = [name for name in wordpiece.SPECIALS if name not in tokens]
    if lacking:
        raise InputError(f"{path}: no line {' '.join(lacking)}; a WordPiece vocabulary has one token per line")


def _from_vocab_file(path: Path, normal: wordpiece.Normal) -> Tokenizer:
    vocabulary = _lines(path)
    first_line: dict[str, int] = {}
    for number, token in enumerate(vocabulary, start=1):
        if first_line.setdefault(token, number) != number:
            raise InputError(f"{path}:{number}: '{one_line(token)}' is in line {first_line[token]} too")
    _check_specials(path, first_line)
    return wordpiece.build_tokenizer(vocabulary, normal)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from error


def _trained(config: TokenizerConfig, collection: Path, work: Work) -> Tokenizer:
    characters: Counter[str] = Counter()
    for texts in _texts(collection, work, 0):
        for text in texts:
            characters.update(text)
    normal = _normal(config)
    most = min(wordpiece.MOST_CHARACTERS, (config.vocab_size - len(wordpiece.SPECIALS)) // 4)
    letters = wordpiece.alphabet(characters, normal, most)
    if not letters:
        raise InputError(f"{collection / 'passages.parquet'}: no text to train a tokenizer on")
    further = wordpiece.ideographs(characters, normal, letters, config.vocab_size // 2)
    vocabulary = wordpiece.train_vocabulary(_texts(collection, work, 1), letters, config.vocab_size, normal, further)
    return wordpiece.build_tokenizer(vocabulary, normal)


def _texts(collection: Path, work: Work, round_: int) -> Iterator[list[str]]:
    """Yields lists of titles (once for consecutive equal ones) and texts of all passages, and reports progress."""
    total, done, before = passage_count(collection), 0, None
    for batch in passage_batches(collection, ["title", "text"], BATCH_ROWS):
        titles, texts = batch["title"], batch["text"]
        yield [title for last, title in zip([before, *titles[:-1]], titles, strict=True) if title != last] + texts
        before = titles[-1]
        done += len(texts)
        work.progress(round_ * total + done, 2 * total, "passages")


@dataclass(frozen=True)
class Unknown:
    passages: int
    """Passages in the sample."""
    characters: int
    """Characters of their titles and texts that became [UNK], without white space."""
    share: float
    """These characters as a share of all, without white space."""
    words: list[str]
    """The first unknown words."""


def _warnings(lost: Unknown, source: str) -> list[str]:
    if lost.share <= UNKNOWN_NOTICED:
        return []
    what = f"characters that become [UNK], {lost.share:.1%} of a sample of {lost.passages:,} passages"
    advice = "raise tokenizer.vocab_size" if source == "trained" else "use another tokenizer or model"
    return [notice(what, lost.characters, lost.words, advice)]


def _normal(config: TokenizerConfig) -> wordpiece.Normal:
    return wordpiece.Normal(config.lowercase, config.split_identifiers, config.drop_rules)


def _description(names: dict[str, str]) -> dict[str, object]:
    """Returns tokenizer_config.json. With this class, transformers 4 and 5 read tokenizer.json unchanged."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **names,
    }


def unknown(tokenizer: "Tokenizer", unk: int, collection: Path) -> Unknown:
    """Counts unknown characters in a sample. Tokens are not counted: one [UNK] may be a word of any length."""
    rows = sample_rows(passage_count(collection))
    columns = at_rows(collection / "passages.parquet", rows, ["title", "text"]).to_pydict()
    texts = [*columns["title"], *columns["text"]]
    total = lost = 0
    words: dict[str, None] = {}
    for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True):
        total += _length(text)
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token == unk:
                lost += _length(text[start:end])
                words[text[start:end]] = None
    return Unknown(len(rows), lost, lost / max(1, total), [*islice(words, EXAMPLES)])


def _length(text: str) -> int:
    return sum(map(len, text.split()))
