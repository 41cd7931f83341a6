"""Word starts of WordPiece, byte-level BPE and Unigram; in scripts without spaces each character is a word."""

from collections.abc import Callable

import numpy as np
import pytest
from encoders import SPECIALS
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from pipeline.pretrain.masking import mask
from pipeline.tokenization import wordpiece
from pipeline.tokenization.word_starts import unspaced_tokens, word_start_table

ENGLISH = "The naïve café's e-mails, “quoted” 🙂 (2024): don't split\nа слово हिन्दी, 한국어 문장!"
JAPANESE = "東京タワーは、昭和三十三年に完成した。がっこうへいく。"
CHINESE = "我们在北京大学学习计算机科学，然后去上海工作。"
THAI = "ประเทศไทยเป็นประเทศที่ตั้งอยู่ในเอเชียตะวันออกเฉียงใต้"
TEXTS = [ENGLISH, JAPANESE, CHINESE, THAI, "abc東京abc 北京 2024年 xyz 学校"] * 20


def wordpiece_of(texts: list[str], **normal: bool) -> Tokenizer:
    letters = sorted({letter for text in texts for letter in text.lower() if not letter.isspace()})
    longer = ["##ワー", "東京", "##いく", "คือ", "##ประ"]
    vocabulary = [*wordpiece.SPECIALS, *letters, *(f"##{letter}" for letter in letters), *longer, "naive", "##lit"]
    tokenizer = Tokenizer(models.WordPiece({text: i for i, text in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False, **normal)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def bpe_of(texts: list[str], add_prefix_space: bool, vocab_size: int = 330) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=names, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def unigram_of(texts: list[str], **options) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(**options)
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "BERT": lambda: wordpiece_of(TEXTS),
    "multilingual": lambda: wordpiece_of(TEXTS, handle_chinese_chars=False, lowercase=False),
    "RoBERTa": lambda: bpe_of(TEXTS, add_prefix_space=False),
    "bytes": lambda: bpe_of(TEXTS, add_prefix_space=True, vocab_size=261),
    "long entries": lambda: bpe_of(TEXTS, add_prefix_space=True, vocab_size=600),
    "XLM-R": lambda: unigram_of(TEXTS),
    "never": lambda: unigram_of(TEXTS, prepend_scheme="never"),
}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request) -> Tokenizer:
    return KINDS[request.param]()


def starts_of(tokenizer: Tokenizer, text: str) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a text, and which of its tokens start a word."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    ids = np.array(encoding.ids)
    starts = word_start_table(tokenizer)[ids]
    starts[[0, *unspaced_tokens(text, encoding)]] = True
    return ids, starts


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The text of each word: from the first character of its first token up to the next word."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    _, starts = starts_of(tokenizer, text)
    at = [encoding.offsets[i][0] for i in np.flatnonzero(starts)]
    return [text[a:b].strip() for a, b in zip(at, [*at[1:], len(text)], strict=True)]


def longest_token(tokenizer: Tokenizer, text: str) -> int:
    return max(end - start for start, end in tokenizer.encode(text, add_special_tokens=False).offsets)


@pytest.mark.parametrize("text", [JAPANESE, CHINESE, THAI])
def test_without_spaces_a_word_is_no_longer_than_a_token_and_its_marks(tokenizer, text):
    found = words(tokenizer, text)
    assert "".join(found) == text
    marks = 3  # Thai: a vowel before, one above and a tone
    assert max(map(len, found)) <= longest_token(tokenizer, text) + marks


@pytest.mark.parametrize("name", ["bytes", "XLM-R", "multilingual"])
def test_words_of_characters_and_words_of_spaces_in_one_text(name):
    found = words(KINDS[name](), "xyz学校xyz 学校 xx")
    whole = [word for word in found if word]
    assert whole == ["xyz", "学", "校", "xyz", "学", "校", "xx"]


def test_thai_marks_and_leading_vowels_stay_with_their_consonant():
    found = words(bpe_of(TEXTS, add_prefix_space=False, vocab_size=261), "เที่ยวไทย")
    assert found == ["เที่", "ย", "ว", "ไท", "ย"]


def test_a_mask_of_a_sentence_without_spaces_hides_a_part_of_it(tokenizer):
    for text in (JAPANESE, CHINESE, THAI):
        ids, starts = starts_of(tokenizer, text)
        length, row = np.array([len(ids)]), np.array([0])
        specials = SPECIALS.__class__(tokenizer.get_vocab_size(), pad=1, unk=3, cls=0, sep=2, mask=4)
        _, masked = mask(ids, starts, length, row, 0.15, 1, 1, specials)
        assert 0 < masked.mean() < 0.3


def test_with_spaces_words_are_as_the_tokenizer_marks_them(tokenizer):
    """The rule by the entries' texts alone, which English, Cyrillic, Indic and Korean texts keep."""
    entries = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])]
    ids, starts = starts_of(tokenizer, ENGLISH)
    if "##lit" in entries:
        by_mark = [not entries[i].startswith("##") for i in ids]
    else:
        by_mark = [entries[i].startswith(("Ġ", "Ċ", "▁")) for i in ids]
    by_mark[0] = True
    assert starts.tolist() == by_mark


def test_a_caron_starts_a_word_of_bytes_alone():
    """Byte-level BPE writes a line end as č, which other tokenizers have in the middle of words."""
    tokenizer = unigram_of(["ona rječ ne zna", "riječi"] * 20)
    assert words(tokenizer, "riječi ona") == ["riječi", "ona"]


def test_all_wordpieces_except_continuations_start_a_word():
    normal = wordpiece.Normal(lowercase=True, split_identifiers=True, drop_rules=True)
    tokenizer = wordpiece.build_tokenizer([*wordpiece.SPECIALS, "a", "##a"], normal)
    assert word_start_table(tokenizer).tolist() == [True] * 6 + [False]


def test_byte_level_bpe_words_start_at_white_space():
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "Ġ", "Ġa", "Ċ"]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(names)}, [("Ġ", "a")], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    starts = word_start_table(tokenizer)
    assert [token for token, start in zip(names, starts, strict=True) if start] == ["Ġ", "Ġa", "Ċ"]
    assert tokenizer.encode("ab ab").tokens == ["a", "b", "Ġa", "b"]
