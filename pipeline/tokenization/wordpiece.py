"""WordPiece: builds a tokenizer from a vocabulary, and trains a vocabulary."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MOST_CHARACTERS = 1000
LONGEST_WORD = 100
"""Characters; WordPiece maps longer words to [UNK]."""
COVERAGE = 0.9995
"""Share of the texts' characters that the vocabulary covers, as far as ideographs can reach it."""
IDEOGRAPHS = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f]"
)
"""Characters that BERT's normaliser turns into separate words."""
RULES = r"[!-/:-@\[-`{-~]{3,}"
IDENTIFIER_BREAKS = r"_|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"


@dataclass(frozen=True)
class Normal:
    """Normalisation of a text before it is split into words; see the fields of `TokenizerConfig`."""

    lowercase: bool
    split_identifiers: bool
    drop_rules: bool


def build_tokenizer(vocabulary: Sequence[str], normal: Normal) -> Tokenizer:
    """Returns a BERT tokenizer with entry i = vocabulary[i]; `SPECIALS` must be among them.

    The tokenizer's own normaliser does all of `normal`, so that every tool that reads tokenizer.json gets equal ids.
    """
    ids = {token: i for i, token in enumerate(vocabulary)}
    tokenizer = _bare(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD), normal)
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, ids[name]) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def alphabet(characters: Counter[str], normal: Normal, most: int) -> list[str]:
    """Returns the `most` most frequent characters after normalisation, sorted by code point.

    `characters`: counts in the original texts. Ties are broken by code point.
    """
    return sorted(_by_frequency(_normalised(characters, normal))[:most])


def ideographs(characters: Counter[str], normal: Normal, letters: Sequence[str], most: int) -> list[str]:
    """Returns the most frequent ideographs besides the `letters`, up to `COVERAGE` of the text, sorted by code point.

    Each needs one entry, because an ideograph is never inside a longer word. `most`: entries for special tokens,
    letters and ideographs together.
    """
    counts = _normalised(characters, normal)
    missing = counts.total() - sum(counts[letter] for letter in letters)
    chosen: list[str] = []
    for character in _by_frequency(counts)[len(letters) :]:
        if missing <= (1 - COVERAGE) * counts.total() or len(chosen) >= most - 2 * len(letters) - len(SPECIALS):
            break
        if IDEOGRAPHS.match(character):
            chosen.append(character)
            missing -= counts[character]
    return sorted(chosen)


def _normalised(characters: Counter[str], normal: Normal) -> Counter[str]:
    """Returns the counts of the characters after normalisation, without white space."""
    normalizer = _normalizer(normal)
    counts: Counter[str] = Counter()
    for character, count in characters.items():
        for normalised in normalizer.normalize_str(character):
            if not normalised.isspace():
                counts[normalised] += count
    return counts


def _by_frequency(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda c: (-counts[c], c))


def train_vocabulary(
    texts: Iterable[list[str]], letters: Sequence[str], vocab_size: int, normal: Normal, ideographs: Sequence[str] = ()
) -> list[str]:
    """Returns a WordPiece vocabulary of at most `vocab_size` entries: `SPECIALS`, the letters, their `##` forms, the
    `ideographs`, merges.

    The trainer numbers continuation letters in the order of a hash table, which differs between processes, and breaks
    ties between merges by it. As special tokens the letters have fixed ids; so equal texts give equal vocabularies.
    """
    tokenizer = _bare(models.WordPiece(unk_token="[UNK]"), normal)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*SPECIALS, *letters, *("##" + letter for letter in letters), *ideographs],
        initial_alphabet=list(letters),
        limit_alphabet=len(letters),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    ids = tokenizer.get_vocab(with_added_tokens=True)
    return sorted(ids, key=ids.__getitem__)


def _bare(model: models.WordPiece, normal: Normal) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = _normalizer(normal)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    split_long_words(tokenizer)
    return tokenizer


def split_long_words(tokenizer: Tokenizer) -> None:
    """Changes the tokenizer so that it splits words that are too long for the model, unless it already does.

    Text without spaces has such words (Thai, DNA, base64), and each would be one [UNK]. Shorter words are unchanged.
    """
    description = json.loads(tokenizer.to_str())
    words = description["pre_tokenizer"]
    longest = description["model"]["max_input_chars_per_word"]
    pattern = rf"[\s\S]{{{longest}}}"
    if words is None or json.dumps(pattern) in json.dumps(words):
        return
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([tokenizer.pre_tokenizer, split])


def _normalizer(normal: Normal) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if normal.drop_rules:
        steps.append(normalizers.Replace(Regex(RULES), " "))
    if normal.split_identifiers:
        steps.append(normalizers.Replace(Regex(IDENTIFIER_BREAKS), " "))
    steps.append(normalizers.BertNormalizer(lowercase=normal.lowercase))
    return normalizers.Sequence(steps)
