"""Queries that are generated from passages."""

from collections import Counter
from pathlib import Path

import pytest
from adapted import CONFIG, Corpus
from searched import write_collection

from pipeline.adapt.queries import Source, generate_queries, keywords_of, lead_of, span_of
from pipeline.data.collection import passage_batches
from pipeline.data.text.words import count

TEXT = "The quick brown fox jumps over the lazy dog. It sleeps (soundly) until noon, and then it eats."


def test_queries_are_half_leads_half_keywords_and_all_differ(corpus: Corpus) -> None:
    training, guard = generate_queries(corpus.collection, CONFIG)
    assert (len(training), len(guard)) == (40, 20)
    texts = [query.text.lower() for query in (*training, *guard)]
    assert len({*texts}) == len(texts)
    batches = passage_batches(corpus.collection, ["title", "text"])
    passages = [texts for batch in batches for texts in zip(*batch.values(), strict=True)]
    for query in training[:20]:
        title, text = passages[query.passage]
        assert title.startswith(query.text) or text.startswith(query.text)
    for query in training[20:]:
        words = query.text.split()
        assert 2 <= len(words) <= 4
        assert {*words} <= {*" ".join(passages[query.passage]).replace(".", "").split()}
    assert all(query.text in passages[query.passage][1] and 3 <= count(query.text) <= 5 for query in guard)
    assert generate_queries(corpus.collection, CONFIG) == (training, guard)
    assert generate_queries(corpus.collection, CONFIG.model_copy(update={"seed": 5})) != (training, guard)


def test_a_lead_is_the_title_or_the_first_sentence_and_is_cut() -> None:
    source = Source(0, "A long title of very many words", TEXT)
    leads = {lead_of(source, CONFIG, 0), lead_of(source, CONFIG, 1)}
    assert leads == {"A long title of very many", "The quick brown fox jumps over"}
    assert lead_of(source, CONFIG, 2) == ""
    assert lead_of(Source(0, "", TEXT), CONFIG, 0) == "The quick brown fox jumps over"
    assert lead_of(Source(0, " ", ""), CONFIG, 0) == ""


def test_keywords_are_rare_words_in_text_order() -> None:
    source = Source(3, "Foxes", TEXT)
    frequency = Counter(dict.fromkeys(source.first_of, 10)) + Counter({"fox": -9, "noon": -9, "sleeps": -9, "dog": -9})
    chosen = {keywords_of(source, CONFIG.model_copy(update={"seed": s}), 0, frequency, 10) for s in range(20)}
    assert len(chosen) > 1
    for text in chosen:
        words = text.split()
        assert len(words) >= 2
        assert words == sorted(words, key=["fox", "dog", "sleeps", "noon"].index)
    assert keywords_of(source, CONFIG, 0, Counter(dict.fromkeys(source.first_of, 10)), 10) == ""


@pytest.mark.parametrize("seed", range(8))
def test_a_span_keeps_the_punctuation_between_its_words(seed: int) -> None:
    config = CONFIG.model_copy(update={"seed": seed})
    span = span_of(Source(0, "", TEXT), config, 0)
    assert span in TEXT
    assert 3 <= count(span) <= 5
    assert span_of(Source(0, "", "one two"), config, 0) == ""
    assert span_of(Source(0, "", "one two  three"), config, 0) == "one two three"


def test_a_small_collection_gives_fewer_queries(tmp_path: Path) -> None:
    long = ["one red fox jumps over nine lazy dogs", "two blue cats sleep below seven old trees", "the end"]
    rows = [(str(n), str(n), "", text) for n, text in enumerate(long)]
    collection = write_collection(tmp_path / "c", rows, [("q", "test", "x")], [("test", "q", "a", 1)])
    training, guard = generate_queries(collection, CONFIG)
    assert 0 < len(training) < 40
    assert {query.passage for query in guard} == {0, 1}
