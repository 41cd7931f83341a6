"""Length of a text and positions of its cuts, in scripts with and without spaces."""

import random
from itertools import pairwise

import pytest

from pipeline.data.readers import questions
from pipeline.data.readers.cut import cut_text
from pipeline.data.words import LONGEST, blank, count, ends_sentence, run_share, spans
from pipeline.tokenization import tokens


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words, here.", ["plain", "words,", "here."]),
        ("한국어 문장입니다.", ["한국어", "문장입니다."]),
        (
            "BERT模型是2018年发布的，它（很）好。",
            ["BERT", "模型", "是", "2018", "年发", "布", "的，", "它", "（很）", "好。"],
        ),
        ("これはテストです。", ["これ", "は", "テス", "ト", "です。"]),
        ("「你好」他说。", ["「你好」", "他说。"]),
        ("か\u3099か\u3099か\u3099", ["か\u3099", "か\u3099", "か\u3099"]),
        ("สวัสดี ฉันกำลัง", ["สวัสดี", "ฉันกำ", "ลัง"]),
        ("ภาษาไทยที่", ["ภาษาไท", "ยที่"]),
        ("ភាសាខ្មែរ។", ["ភាសាខ្មែ", "រ។"]),
        ("。。。", ["。。。"]),
        ("", []),
        (" \n", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected
    assert count(text) == len(expected)


@pytest.mark.parametrize("kind", ["ACGT", "abcXYZ019+/", "https://example.org/a?b=%20"])
def test_a_run_without_spaces_is_a_word_up_to_a_length(kind):
    run = (kind * LONGEST)[: LONGEST + 1]
    assert count(f"a {run[:-1]} b") == 3
    assert count(f"a {run} b") == 2 + (LONGEST + 1 + 4) // 5
    assert count(f"{'-' * 1000} b") == 2


LETTERS = {
    "chinese": ("灯塔的看守日记傍晚浮标旁边", "，。", 1.0),
    "japanese": ("これはテストで漢字カナ", "、。", 1.0),
    "thai": ("กขคงจชซดตถทนบปผพฟมยรลวสหอ", "  ", 4.0),
    "khmer": ("កខគឃងចឆជឈញដឋឌណត", " ។", 4.0),
}


@pytest.mark.parametrize("script", LETTERS)
def test_passages_hold_about_as_much_text_in_every_script(script):
    letters, (comma, end), scale = LETTERS[script]
    rng = random.Random(1)

    def clause() -> str:
        return "".join(rng.choice(letters) for _ in range(rng.randint(6, 15)))

    text = "".join(f"{clause()}{comma}{clause()}{end}" for _ in range(100))
    pieces = cut_text(text, 80)
    assert len(pieces) > 4
    assert all(100 * scale * 0.65 <= len(piece) <= 150 * scale * 1.35 for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    if script in ("chinese", "japanese"):
        assert sum(piece.endswith(end) for piece in pieces) >= 0.9 * len(pieces)


@pytest.mark.parametrize("run", ["ACGT" * 1000, "QUJD+/" * 600, "https://example.org/" + "a/b" * 900])
def test_a_long_run_is_cut(run):
    pieces = cut_text(f"Before it. {run} And after it.", 80)
    assert len(pieces) > 5
    assert max(map(len, pieces)) <= 5 * 80 * 1.5
    assert "".join("".join(pieces).split()) == f"Beforeit.{run}Andafterit."


def test_words_cover_the_text_in_order():
    rng = random.Random(2)
    kinds = "ab .,-!1 中文字。「」かな กา ่ែាខ្ \n" + "x" * 5
    for _ in range(300):
        text = "".join(rng.choice(kinds) for _ in range(rng.randint(0, 60)))
        word_spans = spans(text)
        assert "".join(text[a:b] for a, b in word_spans) == "".join(text.split())
        assert all(a < b for a, b in word_spans)
        assert all(not text[b:c].strip() for (_, b), (c, _) in pairwise(word_spans))
        assert count(text) == len(word_spans)


def test_ends_of_sentences():
    text = "好。」他说 ไทย ไทย"
    assert [ends_sentence(text, *span) for span in spans(text)] == [True, False, True, False]


SENTENCES = {
    "Hindi": ("बिल्ली मछली खाती है।", "कुत्ता घर में सोता है।"),
    "Hindi with a space before": ("बिल्ली मछली खाती है ।", "कुत्ता घर में सोता है ।"),
    "Sanskrit": ("धर्मक्षेत्रे कुरुक्षेत्रे समवेता युयुत्सवः॥", "मामकाः पाण्डवाश्चैव किमकुर्वत सञ्जय॥"),
    "Bengali": ("বিড়াল মাছ খেতে ভালোবাসে।", "কুকুর ঘরে ঘুমায়।"),
    "Urdu": ("بلی مچھلی کھاتی ہے۔", "کتا گھر میں سوتا ہے۔"),
    "Arabic": ("هل تأكل القطة السمك؟", "نعم تأكله كل يوم؟!"),
    "Arabic, quoted": ("قالت «هل تأكل القطة السمك؟»", "نعم تأكله كل يوم؟"),
    "Ethiopic": ("ድመት ዓሣ ትበላለች ሁልጊዜ።", "ውሻ የት ነው ያለው፧"),
    "Armenian": ("Կատուն ձուկ է ուտում։", "Շունը տանը քնած է։"),
    "Tibetan": ("ཞི་མིས་ཉ་ཟ་གི་རེད།", "ཁྱི་ནང་ལ་ཉལ་གི་རེད།"),
    "Khmer": ("ឆ្មាស៊ីត្រីរាល់ថ្ងៃនៅផ្ទះ។", "ឆ្កែដេកនៅក្នុងផ្ទះជារៀងរាល់ថ្ងៃ។"),
    "Burmese": ("ကြောင်သည်ငါးကိုစားသည်\u104b", "ခွေးသည်အိမ်တွင်အိပ်သည်\u104b"),
    "full width": ("猫は毎日家で魚を食べる．", "犬は家でいつも寝ていますか？"),
    "full width, Latin": ("Cats like fish a lot！", "they sleep at home ３．５ hours．"),
}


@pytest.mark.parametrize("between", ["", " ", "\n"])
@pytest.mark.parametrize("script", SENTENCES)
def test_sentences_end_in_every_script(script, between):
    one, two = SENTENCES[script]
    text = between.join((one, two, one))
    for pattern in (questions.SENTENCE_END, tokens.SENTENCE_END):
        ends = [end.end() for end in pattern.finditer(text)]
        assert ends == [len(one), len(one + between + two), len(text)]
    if between:  # cuts lie at the start of a word
        word_ends = [end for start, end in spans(text) if ends_sentence(text, start, end)]
        assert {len(one), len(one + between + two)} <= set(word_ends)


@pytest.mark.parametrize("text", ["１．はじめに", "約３．５キロ", "v1.2 of it", "Ա՞, և", "a; b، c؛ d၊ e፣ f፤"])
def test_punctuation_that_does_not_end_a_sentence(text):
    assert not [*questions.SENTENCE_END.finditer(text), *tokens.SENTENCE_END.finditer(text)]
    assert not any(ends_sentence(text, *span) for span in spans(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", True), (" \u200b\u2060\n", True), ("\x01\x7f\ufeff", True), ("\u200b.", False), ("ก", False), ("🙂", False)],
)
def test_blank(text, expected):
    assert blank(text) is expected


@pytest.mark.parametrize(("text", "share"), [("", 0.0), ("plain ü", 0.0), ("ไทย", 1.0), ("ab กข", 0.5), ("中文", 0.0)])
def test_share_of_alphabets_without_spaces(text, share):
    assert run_share(text) == share
