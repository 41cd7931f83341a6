"""Which words of a text match a question, without Java."""

import pytest

from pipeline.bm25.highlights import highlighter
from pipeline.bm25.matches import kept, matchers, plain_analyser, word_spans
from pipeline.bm25.settings import write_settings, write_stop_words
from pipeline.errors import JavaFailed


def job(language: str | None = "en", **fields) -> dict:
    return {"language": language, "stemmer": "porter", "split_identifiers": False, **fields}


def marked(question: str, text: str, settings: dict, stop_words: frozenset[str] = frozenset()) -> list[str]:
    """The highlighted parts of the text."""
    [matcher] = matchers(plain_analyser(settings, stop_words), settings, [(question, [text])])
    return [text[start:end] for start, end in matcher.spans(text)]


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        ("it isn't 3.14, e.g. a_b: l'eau", "en", ["it", "isn't", "3.14", "e.g", "a_b", "l'eau"]),
        ("io.TextWrapper", "en", ["io.TextWrapper"]),
        ("हिन्दी की किताबें", "hi", ["हिन्दी", "की", "किताबें"]),  # vowel signs belong to their words
        ("می\u200cخواهم برو", "fa", ["می\u200cخواهم", "برو"]),
        ("全文検索 BM25です。検", "ja", ["全文", "文検", "検索", "BM25", "です", "検"]),
        ("全文 カナ です", "en", ["全", "文", "カナ", "で", "す"]),  # as Lucene's standard tokenizer
        ("한국어 검색", "ko", ["한국", "국어", "검색"]),
        ("... — !", "en", []),
    ],
)
def test_words_are_those_of_the_analyser(text, language, words):
    assert [text[start:end] for start, end in word_spans(text, job(language))] == words


def test_words_of_ascii_are_the_same_next_to_other_letters():
    text = "it's e.g. numpy.linalg.norm read_line 3.14 1,000;5 'quoted' a.b.1 x:y 7z. _a"
    spans = word_spans(text, job())
    assert [span for span in word_spans(text + " é", job()) if span[1] <= len(text)] == spans
    assert len(spans) == 12


def test_identifiers_are_split_if_the_index_splits_them():
    settings = job(split_identifiers=True)
    text = "numpy.linalg.solveTriangular read_line"
    pieces = [text[a:b] for a, b in word_spans(text, settings)]
    assert pieces == ["numpy", "linalg", "solve", "Triangular", "read", "line"]


@pytest.mark.parametrize(
    ("language", "question", "text", "highlights"),
    [
        (
            "en",
            "How to merge a résumé, sort",
            "Merged by merges, SORTING a résumé",
            ["Merged", "merges", "SORTING", "résumé"],
        ),
        ("de", "alte Häuser", "Das alte Haus und ein Hausmeister", ["alte", "Haus"]),
        ("fr", "vieux chevaux", "un cheval vieux", ["cheval", "vieux"]),
        ("ru", "новые книги", "Она читала новую книгу", ["новую", "книгу"]),
        ("ja", "全文検索", "日本語の全文検索エンジン、検索", ["全文検索", "検索"]),
        (None, "Häuser", "das Haus, die häuser", ["häuser"]),
    ],
)
def test_inflected_words_match_and_pairs_of_characters_are_joined(language, question, text, highlights):
    assert marked(question, text, job(language)) == highlights


def test_stop_words_and_single_letters_are_not_marked():
    assert marked("what is the sort of C", "what the C sort is", job()) == ["sort"]
    assert marked("die Häuser", "die Häuser", job("de"), frozenset({"die"})) == ["Häuser"]
    assert marked("", "anything", job()) == []


def test_a_match_has_the_number_of_the_questions_term():
    settings = job()
    [matcher] = matchers(plain_analyser(settings, frozenset()), settings, [("sorted lists", ["a list, sort, lists"])])
    assert [match.term for match in matcher.matches("a list, sort, lists")] == [1, 0, 1]


def test_all_questions_and_texts_are_analysed_in_one_call():
    calls = []

    def analyse(words):
        calls.append(list(words))
        return [[word.lower()] for word in words]

    found = matchers(analyse, job(), [("one two", ["Two three"]), ("four", ["one four", "x"])])
    assert [m.spans("two Two four") for m in found] == [[(4, 7)], [(8, 12)]]  # words of other texts are unknown
    assert calls == [["Two", "four", "one", "three", "two", "x"]]


def test_a_word_is_analysed_once(monkeypatch):
    calls = []

    def analyse(words):
        calls.append(list(words))
        return [[word.lower()] for word in words]

    analyser = kept(analyse)
    assert [analyser(words) for words in (["A", "b"], ["b", "C"], ["A"])] == [[["a"], ["b"]], [["b"], ["c"]], [["a"]]]
    assert calls == [["A", "b"], ["C"]]
    monkeypatch.setattr("pipeline.bm25.matches.KNOWN", 2)
    assert (analyser(["D"]), analyser(["A", "D"])) == ([["d"]], [["a"], ["d"]])
    assert calls[2:] == [["D"], ["A"]]


def test_an_artifact_without_an_index_is_read_by_its_language(tmp_path):
    write_settings(tmp_path, {"scores": "bm25", "language": "de", "stemmer": "porter", "split_identifiers": False})
    write_stop_words(tmp_path, ["das", "ein"])
    text = "Das Haus"
    assert highlighter(tmp_path)([("das alte Häuser", [text])])[0].spans(text) == [(4, 8)]
    assert highlighter(None)([("merging", ["merged"])])[0].spans("merged") == [(0, 6)]
    (tmp_path / "bm25.json").write_text("{")  # whoever searches reports the damage
    assert highlighter(tmp_path)([("merging", ["merged"])])[0].spans("merged") == [(0, 6)]


def test_words_are_marked_without_java_if_its_process_ends(tmp_path):
    write_settings(tmp_path, {"scores": "bm25", "stemmer": "porter", "split_identifiers": False})

    def ended(words):
        raise JavaFailed("killed")

    assert highlighter(tmp_path, ended)([("merging", ["merged"])])[0].spans("merged") == [(0, 6)]
    assert highlighter(tmp_path, lambda words: [["same"]] * len(words))([("alpha", ["other"])])[0].spans("other") == [
        (0, 5)
    ]


def test_terms_of_another_system_are_no_terms_of_the_passages(tmp_path):
    write_settings(tmp_path, {"scores": "weights", "stemmer": "porter", "split_identifiers": False})
    assert highlighter(tmp_path, lambda words: [["same"]] * len(words)).analyse is None
