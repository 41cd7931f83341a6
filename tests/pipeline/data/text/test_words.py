"""Length of a text and positions of its cuts, in scripts with and without spaces."""

import random
from itertools import pairwise

import pytest

from pipeline.data.readers.cut import MOST, cut_text
from pipeline.data.text.sentences import ends_sentence, sentences
from pipeline.data.text.words import PIECE, PLAIN, PLAIN_PIECE, PLAIN_WORD, WORD, blank, count, pieces, run_share, spans


def parts(text: str) -> list[str]:
    return [text[start:end] for start, end in pieces(text)]


@pytest.mark.parametrize(
    ("text", "words", "further"),
    [
        ("plain words, here.", "plain words here", "plain words , here ."),
        ("'it isn't 3.5, e.g. U.S.", "it isn't 3.5 e.g U.S", "' it isn't 3.5 , e.g . U.S ."),
        ("apt-get /etc/apt", "apt get etc apt", "apt - get / etc / apt"),
        ("internationalisation", "internationalisation", "internat ionalisa tion"),
        ("한국어 문장입니다.", "한국어 문장입니다", "한국 어 문장 입니 다 ."),
        (
            "BERT模型是2018年发布的，它（很）好。",
            "BERT 模型 是 2018 年发 布的 它 很 好",
            "BERT 模 型 是 2018 年 发 布 的 ， 它 （ 很 ） 好 。",
        ),
        ("これはテストです。", "これ は テスト です", "こ れ は テスト で す 。"),
        ("か\u3099か\u3099か\u3099", "か\u3099か\u3099 か\u3099", "か\u3099 か\u3099 か\u3099"),
        ("สวัสดี ฉันกำลัง", "สวัสดี ฉันกำ ลัง", "สวัสดี ฉันกำ ลัง"),
        ("ภาษาไทยที่", "ภาษา ไทยที่", "ภาษา ไทยที่"),
        ("ភាសាខ្មែរ។", "ភាសាខ្មែរ", "ភាសាខ្មែរ ។"),
        ("ကြောင်သည်ငါးကို", "ကြောင်သည် ငါးကို", "ကြောင်သည် ငါးကို"),
        ("बिल्ली मछली खाती है।", "बिल्ली मछली खाती है", "बिल्ली मछली खाती है ।"),
        ("e\u0301te\u0301", "e\u0301te\u0301", "e\u0301te\u0301"),
        ("🙂。", "", "🙂 。"),
        ("", "", ""),
        (" \n", "", ""),
    ],
)
def test_words_and_pieces(text, words, further):
    assert [text[start:end] for start, end in spans(text)] == words.split()
    assert count(text) == len(words.split())
    assert parts(text) == further.split()


@pytest.mark.parametrize("kind", ["ACGT", "abcXYZ019+/", "https://example.org/a?b=%20", "-"])
def test_a_run_without_spaces_has_many_pieces(kind):
    assert max(map(len, parts(kind * 200))) <= 8


LETTERS = {
    "chinese": ("灯塔的看守日记傍晚浮标旁边", "，。", 1.0),
    "japanese": ("これはテストで漢字カナ", "、。", 1.2),
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
    passages = cut_text(text, 80)
    assert len(passages) > 4
    assert all(80 * scale * 0.3 <= len(passage) <= 80 * scale * MOST * 1.2 for passage in passages)
    assert "".join("".join(passages).split()) == "".join(text.split())
    if script in ("chinese", "japanese"):
        assert sum(passage.endswith(end) for passage in passages) >= 0.9 * len(passages)


@pytest.mark.parametrize("run", ["ACGT" * 1000, "QUJD+/" * 600, "https://example.org/" + "a/b" * 900])
def test_a_long_run_is_cut(run):
    passages = cut_text(f"Before it. {run} And after it.", 80)
    assert len(passages) > 5
    assert max(map(len, passages)) <= 8 * 80 * MOST
    assert "".join("".join(passages).split()) == f"Beforeit.{run}Andafterit."


@pytest.mark.parametrize("words", [1, 2, 3, 7, 80])
def test_no_passage_is_longer_than_allowed(words):
    rng = random.Random(3)
    for _ in range(30):
        text = "".join(rng.choice(("word ", "end. ", "a,b ", "字。", "\n", "\n\n")) for _ in range(rng.randint(1, 400)))
        passages = cut_text(text, words)
        assert "".join("".join(passages).split()) == "".join(text.split())
        assert all(0 < len(pieces(passage)) <= max(1, MOST * words) for passage in passages)


def test_passages_begin_at_spaces_and_never_with_a_sign_that_ends_the_text_before():
    text = " ".join(f'path/to/file-{i}, (see "it")' for i in range(300))
    assert all(passage.startswith(("path", "(see", '"it')) for passage in cut_text(text, 40))
    text = "灯塔的看守，傍晚浮标旁边「日记」" * 100
    assert not [passage for passage in cut_text(text, 20) if passage[0] in "，」" or passage[-1] == "「"]


def test_pieces_cover_the_text_in_order():
    rng = random.Random(2)
    kinds = "ab .,-!1 中文字。「」かな กา ่ែាខ្ \n\x1c\u200d\u0301한국👩é_'" + "x" * 5
    for _ in range(300):
        text = "".join(rng.choice(kinds) for _ in range(rng.randint(0, 60)))
        found = pieces(text)
        assert "".join(parts(text)) == "".join(text.split())
        assert all(a < b for a, b in found)
        assert all(not text[b:c].strip() for (_, b), (c, _) in pairwise(found))
        assert count(text) == len(spans(text))


def test_plain_text_has_the_same_words_by_both_modules():
    plain = [chr(code) for code in range(0x2100) if PLAIN.match(chr(code))]
    rng = random.Random(4)
    texts = [f"a{c}b 1{c}2 a{c}1 {c}'{c} _{c} {c}.{c}" for c in plain]
    texts += ["".join(rng.choice([*plain, *"':.,;a1b_ " * 40]) for _ in range(40)) for _ in range(2000)]
    for text in texts:
        assert PLAIN_WORD.findall(text) == WORD.findall(text)
        assert PLAIN_PIECE.findall(text) == PIECE.findall(text)


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
    "Khmer": ("ឆ្មាស៊ីត្រីរាល់ថ្ងៃនៅផ្ទះ។", "ឆ្កែដេកនៅក្នុងផ្ទះជារៀងរាល់ថ្ងៃ។"),
    "Tibetan": ("ཞི་མིས་ཉ་ཟ་གི་རེད།", "ཁྱི་ནང་ལ་ཉལ་གི་རེད།"),
    "Burmese": ("ကြောင်သည်ငါးကိုစားသည်\u104b", "ခွေးသည်အိမ်တွင်အိပ်သည်\u104b"),
    "full width": ("猫は毎日家で魚を食べる．", "犬は家でいつも寝ていますか？"),
    "full width, Latin": ("Cats like fish a lot！", "They sleep at home ３．５ hours．"),
}


@pytest.mark.parametrize("between", ["", " ", "\n", "\n \n"])
@pytest.mark.parametrize("script", SENTENCES)
def test_sentences_end_in_every_script(script, between):
    one, two = SENTENCES[script]
    text = between.join((one, two, one))
    found = [text[start:end] for start, end in sentences(text)]
    assert found == [one, two, one]
    assert all(map(ends_sentence, found))


@pytest.mark.parametrize(
    "text",
    ["１．はじめに", "約３．５キロ", "v1.2 of it", "Ա՞, և", "a; b، c؛ d፣ f፤", "as Dr. Smith said, e.g. Rome", "No end"],
)
def test_punctuation_that_does_not_end_a_sentence(text):
    assert [text[start:end] for start, end in sentences(text)] == [text]
    assert not ends_sentence(text)


def test_sentences_have_no_white_space_around_them():
    text = "  One (yes!) there. “Two?”\r\n\r\n \tThree "
    assert [text[a:b] for a, b in sentences(text)] == ["One (yes!) there.", "“Two?”", "Three"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", True), (" \u200b\u2060\n", True), ("\x01\x7f\ufeff", True), ("\u200b.", False), ("ก", False), ("🙂", False)],
)
def test_blank(text, expected):
    assert blank(text) is expected


@pytest.mark.parametrize(("text", "share"), [("", 0.0), ("plain ü", 0.0), ("ไทย", 1.0), ("ab กข", 0.5), ("中文", 0.0)])
def test_share_of_alphabets_without_spaces(text, share):
    assert run_share(text) == share
