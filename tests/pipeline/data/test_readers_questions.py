"""Questions generated from the user's own texts."""

import json
import re
from pathlib import Path
from string import ascii_lowercase

import pytest
from own_texts import REST, fields
from writing import put


def questions_of(result) -> dict[str, tuple[str, list[str]]]:
    """{question id: (text, ids of the passages that answer)}."""
    return {q.query_id: (q.text, list(result.qrels[q.query_id])) for q in result.queries}


def title_and_text(result) -> dict[str, tuple[str, str]]:
    return {row[0]: (row[2], row[3]) for row in result.passages}


@pytest.fixture
def guide(tmp_path) -> Path:
    first = ["# Keeping cats", "Cats like fish a lot. " + REST]
    return put(tmp_path, "set/guide.md", *first, "## Large cats", REST, "### Lions at home", REST).parent


def test_a_title_is_a_question_for_all_passages_and_is_removed_from_them(guide, ingested):
    result = ingested(**fields(guide, questions=["titles"]))
    assert questions_of(result) == {"guide.md?titles:0": ("Keeping cats", ["guide.md#0", "guide.md#1", "guide.md#2"])}
    assert [title for title, _ in title_and_text(result).values()] == ["", "Large cats", "Large cats: Lions at home"]
    assert result.counts["questions_from_titles"] == 1


def test_a_heading_is_a_question_for_its_section_and_subsections(guide, ingested):
    result = ingested(**fields(guide, questions=["headings"]))
    assert questions_of(result) == {
        "guide.md?headings:0": ("Large cats", ["guide.md#1", "guide.md#2"]),
        "guide.md?headings:1": ("Lions at home", ["guide.md#2"]),
    }
    assert {title for title, _ in title_and_text(result).values()} == {"Keeping cats"}


def test_a_first_sentence_is_a_question_for_the_rest_of_its_passage(guide, ingested):
    result = ingested(**fields(guide, questions=["first_sentences"]))
    assert questions_of(result) == {"guide.md?first_sentences:0": ("Cats like fish a lot.", ["guide.md#0"])}
    assert title_and_text(result)["guide.md#0"] == ("Keeping cats", REST)
    # The other two sections consist of the same single sentence.
    assert result.counts["repeated_left_out"] == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Two lines\nof one. Then the others.", "Two lines of one."),
        ("He said e.g. this and Dr. Smith. Next one.", "He said e.g. this and Dr. Smith."),
        ("Is version 1.2 of it out? Yes.", "Is version 1.2 of it out?"),
        ('He said "it is so." And went.', 'He said "it is so."'),
        ("A sentence alone in its paragraph.\n\nNext.", "A sentence alone in its paragraph."),
        ("Été comme hiver il dort. Éveillé il mange.", "Été comme hiver il dort."),
        ("बिल्ली मछली खाती है। कुत्ता सोता है।", "बिल्ली मछली खाती है।"),
        ("هل تأكل القطة السمك؟نعم تأكله.", "هل تأكل القطة السمك؟"),
        ("no end of a sentence here\n\nNext one.", None),
        ("Too few. Words there were before.", None),
        ("x = f(a[0], {1: 2}); y = g(b->c). Next", None),
        ("- a list begins this way. Next", None),
        ("", None),
    ],
)
def test_first_sentence(tmp_path, ingested, text, sentence):
    put(tmp_path, "set/a.txt", text, "", REST)
    put(tmp_path, "set/b.txt", "Another file asks as well. " + REST)
    result = ingested(**fields(tmp_path / "set", questions=["first_sentences"]))
    texts = {query.query_id.split("?")[0]: query.text for query in result.queries}
    assert texts.get("a.txt") == sentence
    if sentence:
        assert sentence.split()[0] not in title_and_text(result)["a.txt#0"][1].split()


def test_crops_are_spans_of_their_passage_and_are_removed_from_it(tmp_path, ingested):
    words = [f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(300)]
    path = put(tmp_path, "set/a.txt", " ".join(words)).parent
    put(tmp_path, "set/b.txt", "too few words for any crop")
    result = ingested(**fields(path, questions=["crops"], passage_words=50))
    whole = ingested(**fields(path, passage_words=50))
    assert result.counts["questions_from_crops"] == 6
    assert result.counts["without_rest_left_out"] == 1
    lengths = []
    for query in result.queries:
        (passage,) = result.qrels[query.query_id]
        left, before = title_and_text(result)[passage][1].split(), title_and_text(whole)[passage][1].split()
        assert query.text in " ".join(before)
        assert sorted(left + query.text.split()) == sorted(before)
        lengths.append(len(query.text.split()) / len(before))
    assert 0.2 - 0.02 <= min(lengths) < max(lengths) <= 0.5 + 0.02
    again = ingested(**fields(path, questions=["crops"], passage_words=50, seed=2))
    assert [q.text for q in again.queries] != [q.text for q in result.queries]


def test_equal_passages_yield_no_crops(tmp_path, ingested):
    for name, text in (("a", REST), ("b", REST), ("c", "Another text of some words entirely, and more of it.")):
        put(tmp_path, f"set/{name}.txt", text)
    result = ingested(**fields(tmp_path / "set", questions=["crops"]))
    assert [query.query_id for query in result.queries] == ["c.txt?crops:0"]
    assert result.counts["repeated_left_out"] == 2
    # A passage that yields no question stays whole.
    assert [text for _, text in title_and_text(result).values()][:2] == [REST, REST]


def test_headings_without_information_are_left_out(tmp_path, ingested):
    uninformative = ["Introduction", "1.2 Usage", "Getting started", "2. What's new?", "2021", "A b", "Said in both"]
    sections = [line for heading in uninformative for line in (f"## {heading}", REST)]
    put(tmp_path, "set/a.md", "# T", *sections, "## Something said", REST, "## Nothing left", "few words")
    put(tmp_path, "set/b.md", "# T", "## 3. Said, in both!", REST, "## Only a parent", "### Child", REST)
    result = ingested(**fields(tmp_path / "set", questions=["headings"]))
    assert {text for text, _ in questions_of(result).values()} == {"Something said", "Only a parent"}
    assert result.counts["saying_nothing_left_out"] == 7
    assert result.counts["repeated_left_out"] == 2
    assert result.counts["without_rest_left_out"] == 1


@pytest.mark.parametrize(
    ("one", "other", "distinct"),
    [
        ("Windows Server 2000", "Windows Server 2001", True),
        ("2000 in film", "2001 in film", True),
        ("Release 1.2 of it", "Release 1.3 of it", True),
        ("ويندوز سيرفر ٢٠٠٠", "ويندوز سيرفر ٢٠٠١", True),
        ("Iron(II) H²O", "Iron(II) H³O", True),
        ("3. Big Cats", "(12) big cats!", False),
        ("1.2 Big cats", "2.10.1. Big: cats", False),
        ("Big cats 2", "Big cats, 2", False),
    ],
)
def test_numbers_distinguish_questions_but_list_numbers_do_not(tmp_path, ingested, one, other, distinct):
    for name, title in (("a", one), ("b", other), ("c", "Something said")):
        put(tmp_path, f"set/{name}.md", f"# {title}", f"It is number {ord(name)} of them. {REST}")
    result = ingested(**fields(tmp_path / "set", questions=["titles", "first_sentences"]))
    assert result.counts["repeated_left_out"] == (0 if distinct else 2)
    assert result.counts["questions_from_titles"] == (3 if distinct else 1)


def test_a_folder_without_any_heading_is_reported(tmp_path, ingested):
    put(tmp_path, "set/a.txt", REST)
    result = ingested(**fields(tmp_path / "set", questions=["headings"]))
    assert result.notices == [
        "no questions from ingest.questions [headings], of 1 document (0 saying nothing, 0 repeated, 0 without rest); "
        "other kinds in ingest.questions may find more (titles, first_sentences, crops)"
    ]
    assert (len(result.passages), result.queries) == (1, [])


@pytest.fixture
def many(tmp_path) -> Path:
    for a in "abcdefghij":
        for b in ascii_lowercase:
            put(tmp_path, f"set/{a}{b}.md", f"# About {a}{b}xy", f"The word is {a}{b}xy here. {REST}")
    return tmp_path / "set"


HELD_OUT = {"questions": ["titles", "first_sentences"], "dev_share": 0.1, "test_share": 0.2}


def test_whole_documents_are_held_out_and_keep_their_split(many, ingested):
    before = ingested(**fields(many, **HELD_OUT))
    splits = {query.query_id: query.split for query in before.queries}
    assert len(splits) == 520
    assert all(splits[f"{i[:5]}?titles:0"] == split for i, split in splits.items())
    shares = {split: sum(s == split for s in splits.values()) / 520 for split in ("train", "dev", "test")}
    assert shares["dev"] == pytest.approx(0.1, abs=0.06)
    assert shares["test"] == pytest.approx(0.2, abs=0.08)

    put(many, "aa.md", "# About aaxy", "New first sentence of it.", REST, "## More of aaxy", REST)
    put(many, "0.md", "# About something new", REST)
    after = ingested(**fields(many, **HELD_OUT))
    kept = {q.query_id: q.split for q in after.queries if q.query_id in splits}
    assert kept == splits
    changed = ("aa.md", "0.md")
    assert [row for row in after.passages if row[1] not in changed] == [
        row for row in before.passages if row[1] not in changed
    ]
    other = ingested(**fields(many, **HELD_OUT, seed=2))
    assert {q.query_id: q.split for q in other.queries} != {q.query_id: q.split for q in after.queries}


def test_a_share_of_the_training_questions_stays_in_the_passages(many, ingested):
    result = ingested(**fields(many, **HELD_OUT, kept_share=0.4))
    kept: dict[str, list[bool]] = {"train": [], "dev": [], "test": []}
    for query in result.queries:
        (passage,) = result.qrels[query.query_id]
        title, text = title_and_text(result)[passage]
        kept[query.split].append(query.text in (title, text[: len(query.text)]))
    assert not any(kept["dev"] + kept["test"])
    assert sum(kept["train"]) / len(kept["train"]) == pytest.approx(0.4, abs=0.1)


@pytest.mark.parametrize(
    "shares", [{"dev_share": 0.00001, "test_share": 0.0}, {"dev_share": 0.0, "test_share": 0.99999}]
)
def test_a_split_without_questions_is_reported_with_advice_that_works(many, ingested, shares):
    counts = (
        "leave (1 question|[0-9]+ questions) to train on and [0-9]+ to evaluate with, of 260 documents; change them"
    )
    (line,) = ingested(**fields(many, questions=["titles"], **shares)).notices
    assert re.match(rf"ingest\.dev_share, test_share and seed {counts}", line)
    enough = ingested(**fields(many, questions=["titles"], dev_share=0.1, test_share=0.1))
    assert enough.queries
    assert not enough.notices
    assert not ingested(**fields(many, **shares)).queries


@pytest.mark.parametrize("share", [0.01, 0.5, 0.98])
@pytest.mark.parametrize(
    ("further", "questions", "advice"),
    [
        (1, ["titles"], "other kinds in ingest.questions may find more (headings, first_sentences, crops)"),
        (0, ["titles"], "add documents for more"),
        (1, ["titles", "headings", "first_sentences", "crops"], "add documents for more"),
    ],
)
def test_one_document_with_questions_cannot_be_split_by_any_shares(
    tmp_path, ingested, share, further, questions, advice
):
    put(tmp_path, "set/a.md", "# Something said", f"one. {REST}")
    for i in range(further):
        put(tmp_path, f"set/{i}.md", "few")
    settings = {"questions": questions, "dev_share": share, "test_share": 0.01, "sentence_words": [40, 60]}
    line = ingested(**fields(tmp_path / "set", **settings)).notices[-1]
    documents = "2 documents" if further else "1 document"
    assert line.startswith(f"only 1 of {documents} has questions (1 question), so that")
    assert line.endswith(f"; {advice}")


def test_equal_folders_give_equal_bytes(many, ingested):
    everything = HELD_OUT | {"questions": ["titles", "headings", "first_sentences", "crops"], "kept_share": 0.5}
    one, two = (ingested(**fields(many, **everything)).folder for _ in range(2))
    for name in ("passages.parquet", "queries.parquet", "qrels.parquet", "ingest.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert json.loads((one / "ingest.json").read_text())["questions_from_crops"] > 0


@pytest.mark.parametrize(
    ("reason", "files", "first"),
    [
        ("saying_nothing", {"a.md": ["# See also", REST], "b.md": ["# Big cats and dogs", REST]}, "a.md?titles:0"),
        (
            "repeated",
            {"a.md": ["# One two", REST], "b.md": ["# One two", REST], "c.md": ["# Three four", REST]},
            "a.md?",
        ),
        ("without_rest", {"a.md": ["# One two", "short"], "b.md": ["# Big cats and dogs", REST]}, "a.md?titles:0"),
    ],
)
def test_texts_that_are_not_used_as_questions_are_reported(tmp_path, ingested, reason, files, first):
    for name, lines in files.items():
        put(tmp_path, f"set/{name}", *lines)
    result = ingested(**fields(tmp_path / "set", questions=["titles"]))
    (line,) = result.notices
    assert line.startswith("texts not used as questions: ")
    assert f": {result.counts[f'{reason}_left_out']} (first: {first}" in line


SCRIPTS = {
    "chinese": ("灯塔的看守日记", "傍晚浮标旁边的人修理了罗盘，然后修理锚链。"),
    "japanese": ("灯台守の航海日誌", "夕方にブイのそばの人が羅針盤を修理した。"),
    "thai": ("บันทึกของคนเฝ้าประภาคาร", "ตอนเย็นคนข้างทุ่นซ่อมเข็มทิศแล้วซ่อมโซ่สมอ "),
    "khmer": ("កំណត់ហេតុអ្នកយាមបង្គោលភ្លើង", "ពេលល្ងាចមនុស្សក្បែរពោងជួសជុលត្រីវិស័យ។"),
    "korean": ("등대 지기의 일기", "저녁에 부표 옆에서 사람이 나침반을 고쳤다. "),
}


@pytest.mark.parametrize("kind", ["titles", "headings", "crops"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_questions_in_any_script(tmp_path, ingested, script, kind):
    title, sentence = SCRIPTS[script]
    for i in range(3):
        text = "".join(f"{sentence[(7 * i + k * k) % (len(sentence) // 2) :]}{40 * i + k} " for k in range(40))
        put(tmp_path, f"set/{i}.md", f"# {title}{title[0] * (2 * i + 1)}", f"## {title}{title[0] * 2 * i}", text)
    result = ingested(**fields(tmp_path / "set", passage_words=80, questions=[kind], remaining_words=20))
    assert result.counts[f"questions_from_{kind}"] >= 3
    assert result.counts["passages"] >= 6


@pytest.mark.parametrize("script", ["chinese", "japanese", "khmer"])
def test_first_sentences_without_spaces(tmp_path, ingested, script):
    sentence = SCRIPTS[script][1]
    put(tmp_path, "set/a.txt", sentence + "x" + 9 * sentence)
    result = ingested(**fields(tmp_path / "set", questions=["first_sentences"]))
    assert [query.text for query in result.queries] == [sentence]


@pytest.mark.parametrize("title", ["介绍", "概要", "ไทย"])
def test_short_titles_are_not_used_as_questions(tmp_path, ingested, title):
    put(tmp_path, "set/a.md", f"# {title}", REST)
    put(tmp_path, "set/b.md", "# Big cats", REST)
    result = ingested(**fields(tmp_path / "set", questions=["titles"]))
    assert [query.text for query in result.queries] == ["Big cats"]
