"""WordPiece: how a tokenizer is built from a vocabulary, and how a vocabulary is trained."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MOST_CHARACTERS = 1000
RULES = r"[!-/:-@\[-`{-~]{3,}"
IDENTIFIER_BREAKS = r"_|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"


@dataclass(frozen=True)
class Normal:
    """How a text is made uniform before it is cut into words; see the fields of `TokenizerConfig`."""

    lowercase: bool
    split_identifiers: bool
    drop_rules: bool


def build(vocabulary: Sequence[str], normal: Normal) -> Tokenizer:
    """A BERT tokenizer with entry i = vocabulary[i]; `SPECIALS` must be among them.

    All of `normal` lies in the tokenizer's own normaliser, so that every tool that reads tokenizer.json gets equal ids.
    """
    ids = {token: i for i, token in enumerate(vocabulary)}
    tokenizer = _bare(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100), normal)
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, ids[name]) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def alphabet(characters: Counter[str], normal: Normal, most: int) -> list[str]:
    """The `most` frequent characters after normalisation, sorted by code point.

    `characters` counts the characters of the texts as they stand. Ties are broken by code point.
    """
    normalizer = _normalizer(normal)
    counts: Counter[str] = Counter()
    for character, count in characters.items():
        for normalised in normalizer.normalize_str(character):
            if not normalised.isspace():
                counts[normalised] += count
    frequent = sorted(counts, key=lambda c: (-counts[c], c))[:most]
    return sorted(frequent)


def train(texts: Iterable[list[str]], letters: Sequence[str], vocab_size: int, normal: Normal) -> list[str]:
    """A WordPiece vocabulary of at most `vocab_size` entries: `SPECIALS`, the letters, their `##` forms, merges.

    The trainer takes continuation letters in the order of a hash table, another one in each process, and with it
    breaks ties between merges. Given as special tokens, letters have fixed ids and equal texts an equal vocabulary.
    """
    tokenizer = _bare(models.WordPiece(unk_token="[UNK]"), normal)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[*SPECIALS, *letters, *("##" + letter for letter in letters)],
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
    return tokenizer


def _normalizer(normal: Normal) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = []
    if normal.drop_rules:
        steps.append(normalizers.Replace(Regex(RULES), " "))
    if normal.split_identifiers:
        steps.append(normalizers.Replace(Regex(IDENTIFIER_BREAKS), " "))
    steps.append(normalizers.BertNormalizer(lowercase=normal.lowercase))
    return normalizers.Sequence(steps)
