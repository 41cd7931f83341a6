"""The tokenizer: a ready one, or WordPiece trained on the collection."""

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
from pipeline.data.collection import at_rows, passage_batches, passage_count, sample
from pipeline.errors import InputError
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
BATCH_ROWS = 512
MOST_UNKNOWN = 0.5
"""Share of the collection's characters; a tokenizer that does not know more is of no use."""
UNKNOWN_NOTICED = 0.01
"""Share from which the user is warned."""


class TokenizerConfig(Config):
    """A ready tokenizer from `pretrained` or `path`; with neither, WordPiece is trained on the collection."""

    pretrained: str | None = Field(pattern=hub.HUB_NAME)
    """Name of a Hugging Face model whose tokenizer is taken, such as `bert-base-uncased`."""
    revision: str
    """Branch, tag or commit of `pretrained`. Only a commit pins the content."""
    path: Path | None
    """A local folder that holds a tokenizer (WordPiece or byte-level BPE), or a WordPiece `vocab.txt`."""
    vocab_size: int = Field(ge=256)
    """Entries of a trained vocabulary, special tokens included. A small collection may give fewer."""
    lowercase: bool
    """Lower case, accents stripped (as BERT's uncased models). For a trained vocabulary and a `vocab.txt`."""
    split_identifiers: bool
    """Split words at `_` and at camelCase. For a trained vocabulary and a `vocab.txt`."""
    drop_rules: bool
    """Drop runs of three or more ASCII punctuation marks (banner lines). For a trained vocabulary and a `vocab.txt`."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.pretrained is not None and self.path is not None:
            raise ValueError("pretrained and path are both set: set one of them, or neither to train a tokenizer")
        return self


def missing(config: TokenizerConfig) -> list[str]:
    """Lines that say how to bring what the stage would download and cannot; empty where nothing is missing."""
    return hub.missing(config.pretrained, config.revision, FILES, "tokenizer.path")


def tokenizer(config: TokenizerConfig, collection: Path, work: Work) -> Metrics:
    """Write `tokenizer.json` and `tokenizer_config.json`, which `AutoTokenizer` loads.

    Raises InputError where there is no tokenizer, where it is neither WordPiece nor byte-level BPE with BERT's or
    RoBERTa's special tokens, and where it knows next to nothing of the collection's text.
    """
    if config.pretrained is not None:
        source = config.pretrained
        made = read_tokenizer(hub.fetch(config.pretrained, config.revision, HUB_FILES, FILES))
    elif config.path is not None:
        source = str(config.path)
        made = read_tokenizer_or_vocabulary(config.path, _normal(config))
    else:
        source = "trained"
        made = _trained(config, collection, work)
    specials, names = special_tokens(made)
    lost = unknown(made, specials.unk, collection)
    if lost.share > MOST_UNKNOWN:
        first = ", ".join(one_line(word) for word in lost.words)
        raise InputError(
            f"tokenizer {source}: {lost.share:.0%} of the collection's characters are unknown to it (first: {first}); "
            "take another one, or train one: tokenizer.pretrained and tokenizer.path null"
        )
    (work.out / "tokenizer_config.json").write_text(json.dumps(_description(names), indent=2) + "\n", "utf-8")
    # Not save(): that one follows no umask on every platform, and ends without a newline.
    (work.out / "tokenizer.json").write_text(made.to_str(pretty=True) + "\n", "utf-8")
    figures: Metrics = {"vocab_size": specials.vocab_size, "unknown_share": lost.share, "model": kind(made)}
    return {**figures, **noticed(_warnings(lost, source))}


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder, without truncation, padding, or belief in special tokens that stand in a text.

    WordPiece splits the words that are too long for it instead of giving [UNK] for each.
    Takes tokenizer.json as it is: transformers 5 rebuilds it where the class is named BertTokenizer, and loses its
    normaliser. Raises InputError.
    """
    path = folder / "tokenizer.json"
    if not has_tokenizer(folder):  # transformers would make one up, of special tokens alone
        raise InputError(f"{folder}: no tokenizer there: {', '.join(FILES)} are all missing")
    try:
        loaded = Tokenizer.from_file(str(path)) if path.is_file() else _converted(folder)
    except Exception as error:  # tokenizers raises plain Exception, transformers whatever it meets
        raise InputError(f"{folder}: no tokenizer could be read: {str(error).strip().splitlines()[0]}") from error
    loaded.no_truncation()
    loaded.no_padding()
    loaded.encode_special_tokens = True
    if kind(loaded) == "wordpiece":
        wordpiece.split_long_words(loaded)
    special_tokens(loaded)
    return loaded


def has_tokenizer(folder: Path) -> bool:
    """Whether one of FILES is there."""
    return any((folder / name).is_file() for name in FILES)


def read_tokenizer_or_vocabulary(path: Path, normal: wordpiece.Normal) -> Tokenizer:
    """As `read_tokenizer`, of a folder; of a file `vocab.txt`, which says no `normal`, WordPiece with its entries."""
    return _from_vocab_file(path, normal) if path.is_file() else read_tokenizer(path)


def special_tokens(tokenizer: Tokenizer) -> tuple[Specials, dict[str, str]]:
    """Ids of the special tokens, and their texts by transformers' name (`cls_token`, ...). Raises InputError."""
    vocabulary = tokenizer.get_vocab()
    for names in (BERT, ROBERTA):
        if vocabulary.keys() >= set(names.values()):
            ids = {role: vocabulary[text] for role, text in names.items()}
            return Specials(len(vocabulary), **ids), {f"{role}_token": text for role, text in names.items()}
    raise InputError(f"tokenizer: has neither {' '.join(BERT.values())} nor {' '.join(ROBERTA.values())}")


def kind(tokenizer: Tokenizer) -> Literal["wordpiece", "byte-level bpe"]:
    """The tokenizer's type, from its own description. Raises InputError for any other."""
    description = json.loads(tokenizer.to_str())
    if description["model"]["type"] == "WordPiece":
        return "wordpiece"
    if description["model"]["type"] == "BPE" and '"ByteLevel"' in json.dumps(description["pre_tokenizer"]):
        return "byte-level bpe"
    raise InputError(f"tokenizer: {description['model']['type']} is neither WordPiece nor byte-level BPE")


def _converted(folder: Path) -> Tokenizer:
    from transformers import AutoTokenizer

    path = folder / "vocab.txt"
    vocabulary = _lines(path) if path.is_file() else None
    if vocabulary is not None:
        _check_specials(path, vocabulary)
    converted = AutoTokenizer.from_pretrained(folder, local_files_only=True).backend_tokenizer
    # transformers 5 has been seen to read five tokens of a vocabulary without a word about it.
    if vocabulary is not None and converted.get_vocab_size() < len(vocabulary):
        raise InputError(f"transformers read {converted.get_vocab_size()} of {len(vocabulary)} entries")
    return converted


def _check_specials(path: Path, tokens: Container[str]) -> None:
    """Raises InputError where a file's tokens lack one that BERT needs."""
    lacking = [name for name in wordpiece.SPECIALS if name not in tokens]
    if lacking:
        raise InputError(f"{path}: no line {' '.join(lacking)}; a WordPiece vocabulary has one token a line")


def _from_vocab_file(path: Path, normal: wordpiece.Normal) -> Tokenizer:
    vocabulary = _lines(path)
    first_line: dict[str, int] = {}
    for number, token in enumerate(vocabulary, start=1):
        if first_line.setdefault(token, number) != number:
            raise InputError(f"{path}:{number}: '{one_line(token)}' is in line {first_line[token]} too")
    _check_specials(path, first_line)
    return wordpiece.build(vocabulary, normal)


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
    vocabulary = wordpiece.train(_texts(collection, work, 1), letters, config.vocab_size, normal, further)
    return wordpiece.build(vocabulary, normal)


def _texts(collection: Path, work: Work, round_: int) -> Iterator[list[str]]:
    """Titles (once where neighbours share one) and texts of all passages, in lists; reading is the progress."""
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
    """In the sample."""
    characters: int
    """Of their titles and texts, without white space, that became [UNK]."""
    share: float
    """Of all their characters without white space."""
    words: list[str]
    """The first unknown words."""


def _warnings(lost: Unknown, source: str) -> list[str]:
    if lost.share <= UNKNOWN_NOTICED:
        return []
    what = f"characters that become [UNK], {lost.share:.1%} of a sample of {lost.passages:,} passages"
    advice = "raise tokenizer.vocab_size" if source == "trained" else "take another tokenizer (tokenizer.pretrained)"
    return [notice(what, lost.characters, lost.words, advice)]


def _normal(config: TokenizerConfig) -> wordpiece.Normal:
    return wordpiece.Normal(config.lowercase, config.split_identifiers, config.drop_rules)


def _description(names: dict[str, str]) -> dict[str, object]:
    """tokenizer_config.json. The class is the one that takes tokenizer.json as it is, in transformers 4 and 5."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **names,
    }


def unknown(tokenizer: "Tokenizer", unk: int, collection: Path) -> Unknown:
    """Counts characters, because one token [UNK] may stand for a word of any length."""
    rows = sample(passage_count(collection))
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
