"""The language of a collection, detected from its passages."""

import pytest

from pipeline.bm25.detection import of_texts

TEXTS = {
    "en": "The package manager installs programs and the libraries that they need.",
    "de": "Der Verwalter der Pakete installiert Programme und die Bibliotheken, die sie brauchen.",
    "no": "Pakkebehandleren installerer programmer og bibliotekene som de trenger.",
    "ja": "パッケージ管理ツールは、プログラムと必要なライブラリをインストールします。",
    "zh": "軟件包管理器會安裝程序及其所需的庫。",
    "vi": "Trình quản lý gói cài đặt các chương trình và các thư viện mà chúng cần.",
}


@pytest.mark.parametrize("language", ["en", "de", "no", "ja", "zh"])
def test_one_language_is_found(language):
    detected = of_texts([TEXTS[language]] * 3)
    assert detected.language == language
    assert detected.notice == f"language found by auto: {language} ({language} 100% in the words of 3 passages)"


def test_texts_count_by_their_words_and_texts_without_words_do_not():
    detected = of_texts([TEXTS["de"] * 5, TEXTS["en"], TEXTS["en"], "", " ", "0 1 2 3 4 5 6 7 8 9"])
    assert detected.language == "de"
    assert list(detected.shares) == ["de", "en"]


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ([TEXTS["vi"]], "vi, the language found by auto, has no analyser (vi 100% in the words of 1 passage)"),
        ([TEXTS["en"], TEXTS["de"], TEXTS["no"]], "none has half of the words"),
        ([""], "(nothing in the words of 1 passage), none has half of the words"),
    ],
)
def test_an_unsure_result_gives_its_reason(texts, reason):
    detected = of_texts(texts)
    assert detected.language is None
    assert f"{reason}: neither stems nor stop words" in detected.notice
