"""Each language's analyser in a real Lucene: inflected words, pairs of characters, stop words."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from searched import CONFIG, build, hits_of, rows, write_collection

from pipeline.bm25.highlights import open_highlighter
from pipeline.bm25.languages import AUTO, CODES
from pipeline.bm25.lucene import BETWEEN, analyser, as_list, stop_words, terms_of_each
from pipeline.bm25.matches import word_spans
from pipeline.bm25.searcher import Searcher
from pipeline.bm25.settings import read_settings, read_stop_words
from pipeline.bm25.texts import clean_question
from pipeline.notices import read_notices

PAIRS = {
    "ar": ("كتاب", "الكتاب"),
    "bg": ("книга", "книгите"),
    "bn": ("বই", "বইগুলো"),
    "ca": ("gat", "gats"),
    "ckb": ("پیاو", "پیاوەکە"),
    "cs": ("hrad", "hradu"),
    "da": ("hus", "huset"),
    "de": ("Haus", "Häuser"),
    "el": ("σπίτι", "σπίτια"),
    "en": ("house", "houses"),
    "es": ("biblioteca", "bibliotecas"),
    "et": ("maja", "majas"),
    "eu": ("etxe", "etxeak"),
    "fa": ("کتاب", "کتاب‌ها"),
    "fi": ("talo", "talossa"),
    "fr": ("cheval", "chevaux"),
    "ga": ("bád", "bhád"),
    "gl": ("casa", "casas"),
    "hi": ("किताब", "किताबें"),
    "hu": ("ház", "házban"),
    "hy": ("քաղաք", "քաղաքի"),
    "id": ("buku", "bukunya"),
    "it": ("biblioteca", "biblioteche"),
    "ja": ("検索", "全文検索エンジン"),
    "ko": ("검색", "전문검색엔진"),
    "lt": ("namas", "namai"),
    "lv": ("māja", "mājas"),
    "ne": ("किताब", "किताबको"),
    "nl": ("boek", "boeken"),
    "no": ("bil", "bilene"),
    "pl": ("dom", "domów"),
    "pt": ("casa", "casas"),
    "ro": ("casă", "casele"),
    "ru": ("книга", "книгами"),
    "sr": ("knjiga", "књига"),
    "sv": ("bil", "bilarna"),
    "ta": ("புத்தகம்", "புத்தகங்கள்"),
    "te": ("పాట", "పాటలు"),
    "tr": ("kitap", "kitaplar"),
    "uk": ("книга", "книгами"),
    "zh": ("检索", "全文检索引擎"),
}
"""{code: (word of a question, inflected word or longer text of a passage)}."""
WITHOUT_STOP_WORDS = ("pl",)


def settings(language: str | None) -> dict[str, Any]:
    return {"language": language, "scores": "bm25", "stemmer": "porter", "split_identifiers": False}


@pytest.fixture(scope="module")
def terms(autoclass):
    """terms(language, texts): the terms of each text."""
    utils = autoclass("io.anserini.analysis.AnalyzerUtils")

    def of(language: str | None, texts: list[str]) -> list[list[str]]:
        own = analyser(autoclass, settings(language))
        cleaned = [clean_question(text, settings(language)) for text in texts]
        return terms_of_each(lambda text: as_list(utils.analyze(own, text)), cleaned)

    return of


def test_the_examples_are_of_all_languages():
    assert tuple(sorted(PAIRS)) == CODES


@pytest.mark.parametrize("language", CODES)
def test_a_word_finds_its_inflected_form(terms, language):
    asked, passage = terms(language, [*PAIRS[language]])
    assert {*asked} & {*passage}


@pytest.mark.parametrize("language", [*CODES, None])
def test_capital_letters_are_ignored_and_numbers_stay(terms, language):
    lower, upper, number, empty = terms(language, ["kovalskyx", "KOVALSKYX", BETWEEN[::-1], " "])
    assert lower == upper
    assert lower
    assert number == [BETWEEN[::-1]]
    assert empty == []


def test_without_a_language_words_are_neither_stemmed_nor_left_out(terms):
    assert terms(None, ["The Houses are 検索"]) == [["the", "houses", "are", "検", "索"]]


@pytest.mark.parametrize(
    "text",
    [
        "it's e.g. numpy.linalg.norm read_line 3.14 1,000;5 'quoted' a.b.1 x:y 7z. _a C++ a-b l\u2019eau",
        "हिन्दी की किताबें مرحبا بالعالم می\u200cخواهم новая книга Ünïcode",
        "全文検索 カタカナ データ です BM25 한국어 검색",
    ],
)
@pytest.mark.parametrize("language", [None, "ja"])
def test_words_are_cut_where_lucene_cuts_them(terms, text, language):
    words = [text[start:end] for start, end in word_spans(text, settings(language))]
    cut = [term for each in terms(language, words) for term in each]
    assert cut == terms(language, [text])[0]


def test_stop_words_are_those_of_the_language(autoclass):
    words = {code: stop_words(analyser(autoclass, settings(code))) for code in CODES}
    assert sorted(code for code in CODES if not words[code]) == [*WITHOUT_STOP_WORDS]
    for code, word in {"de": "und", "fr": "les", "nl": "het", "ru": "более", "ja": "the", "uk": "або"}.items():
        assert word in words[code]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"language": "xx"}, "no analyser for this language: use auto, null or one of ar, bg, "),
        ({"language": "de", "stemmer": "krovetz"}, "stemmer: krovetz is for English, but language is de"),
        ({"language": "ja", "stemmer": "none"}, "stemmer: none is for English, but language is ja"),
        ({"language": None, "stemmer": "krovetz"}, "stemmer: krovetz is for English, but language is null"),
    ],
)
def test_unknown_languages_and_stemmers_of_others_are_refused(fields, message):
    with pytest.raises(ValidationError, match=message):
        CONFIG.__class__.model_validate({**CONFIG.model_dump(), **fields})


def test_auto_allows_every_stemmer():
    for language, stemmer in ((AUTO, "krovetz"), (None, "none"), ("en", "none")):
        CONFIG.__class__.model_validate({**CONFIG.model_dump(), "language": language, "stemmer": stemmer})


GERMAN = [
    "Das alte Haus steht an der Straße, und die Nachbarn sehen es gern.",
    "Die Katze schläft auf dem Dach und wartet auf den Abend.",
    "Ein Paket wird mit dem Werkzeug der Verwaltung installiert.",
]
JAPANESE = [
    "全文検索エンジンは、文書の中から言葉を探し出すためのソフトウェアです。",
    "猫が屋根の上で寝ています。夕方を待っているのでしょう。",
    "パッケージは管理ツールでインストールします。",
]


def collection_of(folder: Path, texts: list[str], question: str) -> Path:
    passages = [(f"p{n}", f"p{n}", "", text) for n, text in enumerate(texts)]
    return write_collection(folder, passages, [("q", "test", question)], [])


@pytest.mark.parametrize(
    ("texts", "question", "language", "highlighted"),
    [(GERMAN, "Häuser", "de", ["Haus"]), (JAPANESE, "全文検索", "ja", ["全文検索"])],
    ids=["de", "ja"],
)
def test_auto_finds_the_language_and_searches_and_highlights_by_it(tmp_path, texts, question, language, highlighted):
    collection, out = collection_of(tmp_path / "collection", texts, question), tmp_path / "out"
    metrics = build(collection, out, CONFIG.model_copy(update={"language": AUTO, "stemmer": "krovetz"}))
    assert metrics["language"] == read_settings(out)["language"] == language
    found, stemmer = read_notices(metrics)
    assert found.startswith(f"language found by auto: {language} (")
    assert stemmer == "bm25.stemmer: krovetz is for English: unused"
    assert [row["passage_id"] for row in rows(out)] == ["p0"]
    assert ("und" if language == "de" else "the") in read_stop_words(out)
    with Searcher(out) as searcher:
        assert [passage for passage, _ in hits_of(searcher, question, 3)] == ["p0"]
        assert searcher.terms([]) == []
    with open_highlighter(out) as highlighter:
        assert highlighter.analyse is not None
        [matcher] = highlighter([(question, texts)])
        assert [texts[0][a:b] for a, b in matcher.spans(texts[0])] == highlighted
