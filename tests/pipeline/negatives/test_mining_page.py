"""The page of mined negatives: complete, escaped, self-contained, with marks on possible false negatives."""

import re

import numpy as np
import pytest
from lxml import etree

from pipeline.data.collection import schemas, write_table
from pipeline.data.runs import writer
from pipeline.negatives import page as mining_page
from pipeline.negatives.mine import MineConfig, mine
from pipeline.negatives.page import cut_passage, match_pattern, overlap, suspicions, text_pieces

SCRIPT = "<script>alert('x')</script>"
LONG = " ".join(f"word{i}" for i in range(2000))
CONFIG = MineConfig(depth=8, number=8, margin_absolute=None, margin_relative=None, seed=0, page_questions=50)
COPY = "the quick brown fox jumps over the lazy dog near the river"
PASSAGES = [
    ("p0", "d0", SCRIPT, f"{COPY} {SCRIPT}"),  # q0's positive
    ("p1", "d1", "", f"So {COPY} today"),  # almost the same text as p0
    ("p2", "d2", "Foxes", f"{SCRIPT} foxes live in Old York."),
    ("p3", "d0", "", "another paragraph of the positive's document"),
    ("p4", "d4", "", LONG),
    *[(f"p{i}", f"d{i}", "", f"nothing to see, number {i}") for i in range(5, 9)],
]


@pytest.fixture
def page(tmp_path, work) -> str:
    tables = schemas()
    write_table(tmp_path / "passages.parquet", tables["passages"], PASSAGES)
    queries = [("q0", "train", f"Where do foxes live {SCRIPT}", ["Old York", "<b>"])]
    queries += [(f"q{i}", "train", f"asked {i}", []) for i in range(1, 4)]
    write_table(tmp_path / "queries.parquet", tables["queries"], queries)
    judged = [("train", "q0", "p0", 1), ("train", "q1", "p8", 1), ("train", "q2", "p2", 1)]
    write_table(tmp_path / "qrels.parquet", tables["qrels"], judged)
    with writer(tmp_path) as write:
        write("train", ["q0"] * 8, ["p5", "p0", "p1", "p3", "p4", "p6", "p7", "p2"], 20.0 - np.arange(8))
        write("train", ["q1", "q3"], ["p5", "p6"], np.array([0.5, 0.25]))
    done = work()
    mine(CONFIG, tmp_path, tmp_path, done)
    return (done.out / "negatives.html").read_text()


def elements(page: str) -> list[str]:
    return [element.tag for element in etree.HTML(page).iter()]


def articles(page: str) -> list[str]:
    return re.findall(r"<article>.*?</article>", page, re.DOTALL)


def plain(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", "", html).split())


def test_text_of_the_collection_is_escaped(page):
    assert "script" not in elements(page)
    assert page.count("&lt;") >= 5
    assert "<script" not in page.lower()


def test_the_page_is_self_contained_and_supports_dark_mode_phones_and_print(page):
    assert not {"link", "img", "iframe", "script"} & set(elements(page))
    assert not re.search(r"""(src|href)=["']?(?!#)[a-z/]|@import|url\((?!#)""", page)
    for part in ("prefers-color-scheme: dark", 'name="viewport"', "@media print"):
        assert part in page


def test_questions_with_positives_show_ranks_scores_and_margins(page):
    first, second = articles(page)  # q2 is not in the run, q3 has no judgement
    assert "positive rank 2 score 19" in plain(first)
    assert "rank 1 score 20 +1" in plain(first)
    assert "−6" in first  # p2, 13 against 19
    assert "above the positive" in first
    assert "positive not retrieved" in plain(second)
    assert "above the positive" not in second


def test_possible_false_negatives_are_marked(page):
    first = articles(page)[0]
    assert "holds the answer “Old York”" in first
    assert "a positive's document" in first.replace("&#39;", "'")
    assert re.search(r"\d+% a positive.{1,5}s words", first)
    assert "1</b> hold an answer" in page
    assert first.index("Old", first.index("holds the answer")) < first.index("more without")


def test_unmarked_negatives_are_folded_and_long_texts_are_cut(page):
    first = articles(page)[0]
    assert "1 more without an orange mark" in first  # p7; p2 after it has one
    assert re.search(r'<details class="text">.*word0 .*word600', first, re.DOTALL)
    assert "more characters" in first
    assert "word1999" not in first


def test_the_counts_are_at_the_top(page):
    top = plain(page[: page.index("<h2>Questions</h2>")])
    for part in ("2 of 2 training questions", "dropped judged1", "questions absent1", "questions short2"):
        assert part in top


def test_suspicions_of_a_copy_a_neighbour_and_an_answer():
    positive = {"text": COPY, "doc_id": "d"}
    assert suspicions({"text": COPY.upper() + " x", "doc_id": "e"}, [positive], []) == (["100% a positive's words"], [])
    assert suspicions({"text": "else", "doc_id": "d"}, [positive], []) == ([], ["a positive's document"])
    assert suspicions({"text": "in 19734 or so", "doc_id": "e"}, [positive], ["1973", "?"]) == ([], [])
    assert suspicions({"text": "in 1973.", "doc_id": "e"}, [], ["1973"]) == (["holds the answer “1973”"], [])


def test_overlap_is_a_share_of_the_shorter_text():
    assert overlap("a b c d", "x a b c d y z") == 1
    assert overlap("a b c d", "a b c x") == 0.5
    assert overlap("a b", "a b") == 0


def test_pieces_join_to_the_text_and_mark_whole_words():
    pattern = match_pattern({"fox", "foxes"}, ["red fox"])
    text = "A red fox, FOXES, foxy fox"
    pieces = text_pieces(text, pattern, ["red fox"])
    assert "".join(piece for piece, _ in pieces) == text
    assert [piece for piece in pieces if piece[1]] == [("red fox", "a"), ("FOXES", "q"), ("fox", "q")]
    assert text_pieces("anything", match_pattern((), ()), []) == [("anything", "")]


@pytest.mark.parametrize("text", ["x" * 900, "a " * 700, "", "tail " + "y" * 300, f"{LONG[:3000]} needle {LONG}"])
def test_a_cut_passage_shows_a_head_and_unfolds_to_the_stored_text(text):
    cut = cut_passage(text, match_pattern((), ["needle"]), ["needle"])
    head = "".join(piece for piece, _ in cut["head"])
    whole = "".join(piece for piece, _ in cut["whole"])
    assert len(head) <= mining_page.HEAD + 2
    assert whole == ("" if len(text) <= mining_page.HEAD else text[: mining_page.LONGEST])
    assert cut["omitted"] == max(0, len(text) - mining_page.LONGEST)
    assert ("needle" in head) == ("needle" in text)
