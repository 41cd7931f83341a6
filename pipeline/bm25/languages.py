"""The languages that Lucene has an analyser for, by ISO code. docs/languages.md has the table."""

from collections.abc import Mapping
from typing import Any, NamedTuple

ENGLISH, AUTO = "en", "auto"
BIGRAMS = ("ja", "ko", "zh")
"""Languages whose characters are indexed as overlapping pairs."""
CASED = ("pl", "te")
"""Languages whose analyser keeps capital letters, at least of words that it does not know."""


class Language(NamedTuple):
    analyser: str
    """Its Lucene class, below org.apache.lucene.analysis."""
    snowball: str | None
    """Snowball's algorithm, for highlights without Java; None: it has none for this language."""


# fmt: off
LANGUAGES: dict[str | None, Language] = {
    "ar": Language("ar.ArabicAnalyzer", "arabic"),
    "bg": Language("bg.BulgarianAnalyzer", None),
    "bn": Language("bn.BengaliAnalyzer", None),
    "ca": Language("ca.CatalanAnalyzer", "catalan"),
    "ckb": Language("ckb.SoraniAnalyzer", None),
    "cs": Language("cz.CzechAnalyzer", "czech"),
    "da": Language("da.DanishAnalyzer", "danish"),
    "de": Language("de.GermanAnalyzer", "german"),
    "el": Language("el.GreekAnalyzer", "greek"),
    "en": Language("en.EnglishAnalyzer", "porter"),
    "es": Language("es.SpanishAnalyzer", "spanish"),
    "et": Language("et.EstonianAnalyzer", "estonian"),
    "eu": Language("eu.BasqueAnalyzer", "basque"),
    "fa": Language("fa.PersianAnalyzer", "persian"),
    "fi": Language("fi.FinnishAnalyzer", "finnish"),
    "fr": Language("fr.FrenchAnalyzer", "french"),
    "ga": Language("ga.IrishAnalyzer", "irish"),
    "gl": Language("gl.GalicianAnalyzer", None),
    "hi": Language("hi.HindiAnalyzer", "hindi"),
    "hu": Language("hu.HungarianAnalyzer", "hungarian"),
    "hy": Language("hy.ArmenianAnalyzer", "armenian"),
    "id": Language("id.IndonesianAnalyzer", "indonesian"),
    "it": Language("it.ItalianAnalyzer", "italian"),
    "ja": Language("cjk.CJKAnalyzer", None),
    "ko": Language("cjk.CJKAnalyzer", None),
    "lt": Language("lt.LithuanianAnalyzer", "lithuanian"),
    "lv": Language("lv.LatvianAnalyzer", None),
    "ne": Language("ne.NepaliAnalyzer", "nepali"),
    "nl": Language("nl.DutchAnalyzer", "dutch"),
    "no": Language("no.NorwegianAnalyzer", "norwegian"),
    "pl": Language("morfologik.MorfologikAnalyzer", "polish"),
    "pt": Language("pt.PortugueseAnalyzer", "portuguese"),
    "ro": Language("ro.RomanianAnalyzer", "romanian"),
    "ru": Language("ru.RussianAnalyzer", "russian"),
    "sr": Language("sr.SerbianAnalyzer", "serbian"),
    "sv": Language("sv.SwedishAnalyzer", "swedish"),
    "ta": Language("ta.TamilAnalyzer", "tamil"),
    "te": Language("te.TeluguAnalyzer", None),
    "tr": Language("tr.TurkishAnalyzer", "turkish"),
    "uk": Language("uk.UkrainianMorfologikAnalyzer", None),
    "zh": Language("cjk.CJKAnalyzer", None),
    None: Language("standard.StandardAnalyzer", None),
}
# fmt: on
"""None: no language, words in lower case without stemming and stop words. English's class is Anserini's own instead
(`lucene.analyser`). Thai is missing: its analyser needs a dictionary that the packaged Java lacks."""
STANDARD = "standard"
"""Anserini's name of None."""
CODES = tuple(sorted(code for code in LANGUAGES if code))


def language_of(job: Mapping[str, Any]) -> str | None:
    """Returns the language of an artifact's settings. Settings without one are English."""
    language: str | None = job.get("language", ENGLISH)
    return language
