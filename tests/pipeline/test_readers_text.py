"""Anyone's own texts: which files are read and how, and the questions made from them."""

import gzip
import json
import os
from pathlib import Path
from string import ascii_lowercase

import pytest
from pydantic import TypeAdapter, ValidationError
from writing import put

from pipeline.errors import InputError
from pipeline.ingest import IngestConfig, missing

CONFIG = TypeAdapter(IngestConfig)
NO_QUESTIONS = {
    "questions": [],
    "heading_words": 2,
    "sentence_words": [4, 40],
    "crop_share": [0.2, 0.5],
    "remaining_words": 5,
    "kept_share": 0.0,
    "dev_share": 0.0,
    "test_share": 0.0,
    "seed": 1,
}
REST = "Then more is said of it, in many words that stay."


def fields(path: Path, **changed) -> dict:
    plain = {"reader": "text", "path": path, "pattern": "**/*", "endings": [], "documents": "files", "id_key": ""}
    return plain | {"title_key": "", "text_key": "text", "metadata": [], "passage_words": 0} | NO_QUESTIONS | changed


def test_a_folder(tmp_path, ingested):
    put(tmp_path, "set/b.txt", "one two.", "", "three four.")
    put(tmp_path, "set/a name/c.txt.v2.text", "five")
    put(tmp_path, "set/empty.txt")
    made = ingested(**fields(tmp_path / "set", passage_words=2))
    assert made.passages == [
        ("a%20name/c.txt.v2.text#0", "a%20name/c.txt.v2.text", "c.txt.v2", "five"),
        ("b.txt#0", "b.txt", "b", "one two."),
        ("b.txt#1", "b.txt", "b", "three four."),
    ]
    assert (made.counts["documents"], made.counts["files"], made.counts["empty_files"]) == (2, 2, 1)
    assert made.queries == []
    with pytest.raises(InputError, match=r"set: no file matches ingest.pattern '\*.html'"):
        ingested(**fields(tmp_path / "set", pattern="*.html"))


@pytest.mark.parametrize(
    ("name", "document"), [("a\x1b[31mb", "a%1B[31mb"), ("a\nb", "a%0Ab"), ("a\x85b", "a%C2%85b"), ("a\tb", "a%09b")]
)
def test_a_file_whose_name_no_id_can_hold(tmp_path, ingested, name, document):
    put(tmp_path, f"set/{name}.txt", "one")
    put(tmp_path, "set/plain.txt", "two")
    assert [row[1] for row in ingested(**fields(tmp_path / "set")).passages] == [f"{document}.txt", "plain.txt"]


def test_metadata_of_files_lines_and_front_matter(tmp_path, ingested):
    front = ("---", "title: Cats", "lang: no", "year: 2020", "zip: 01234", "at: 12:30", "day: 2024-01-02", "---")
    put(tmp_path, "set/a b/cats.MD", *front, "purr purr purr", "## Big ones", "roar")
    put(tmp_path, "set/a b/deep/dogs.jsonl", '{"text": "bark", "year": 2021}', '{"text": "yap", "file": "its own"}')
    put(tmp_path, "set/birds.txt.v2", "sing")
    put(tmp_path, "set/README", "read")
    names = ["file", "folder", "ending", "lang", "year", "zip", "at", "day"]
    made = ingested(**fields(tmp_path / "set", passage_words=2, metadata=names))
    told = {row[0]: tuple(found.values()) for row, found in zip(made.passages, made.metadata, strict=True)}
    cats = ("a b/cats.MD", "a b", "md", "no", 2020, "01234", "12:30", "2024-01-02")
    nothing = (None,) * 5
    assert told == {
        "README#0": ("README", "", "", *nothing),
        "a%20b/cats.MD#0": cats,
        "a%20b/cats.MD#1": cats,
        "a%20b/cats.MD#2": cats,
        "a%20b/deep/dogs.jsonl:1#0": ("a b/deep/dogs.jsonl", "a b/deep", "jsonl", None, 2021, None, None, None),
        "a%20b/deep/dogs.jsonl:2#0": ("its own", "a b/deep", "jsonl", *nothing),
        "birds.txt.v2#0": ("birds.txt.v2", "", "v2", *nothing),
    }
    with pytest.raises(
        InputError, match=r"no column 'language' among at, day, ending, file, folder, lang, text, title"
    ):
        ingested(**fields(tmp_path / "set", metadata=["language"]))
    alone = ingested(**fields(tmp_path / "set/birds.txt.v2", metadata=["file", "folder"]))
    assert alone.metadata == [{"file": "birds.txt.v2", "folder": ""}]


def test_metadata_of_texts_that_ask(tmp_path, ingested):
    for i in range(3):
        put(tmp_path, f"set/{i}.md", "---", f"number: {i}", "---", f"# What {'abc'[i]} is about", REST, "## More", REST)
    asking = {"questions": ["titles"], "dev_share": 0.0, "test_share": 0.0}
    made = ingested(**fields(tmp_path / "set", metadata=["number"], **asking))
    assert [found["number"] for found in made.metadata] == [0, 0, 1, 1, 2, 2]
    assert len(made.queries) == 3


def test_front_matter_that_cannot_be_read_tells_nothing(tmp_path, ingested):
    put(tmp_path, "set/a.md", "---", "lang: {{ broken", "---", "purr")
    put(tmp_path, "set/b.md", "---", "lang: en", "1: one", "---", "bark")
    put(tmp_path, "set/c.md", "---", "- lang", "---", "sing")
    assert ingested(**fields(tmp_path / "set", metadata=["lang"])).metadata[:2] == [{"lang": None}, {"lang": "en"}]


def test_each_ending_is_read_in_its_way(tmp_path, ingested):
    put(tmp_path, "set/a.md", "# Cats", "purr", "## Big ones", "roar")
    put(tmp_path, "set/b.HTML", "<title>Dogs</title><p>bark<h2>Small ones</h2>yap")
    put(tmp_path, "set/c.jsonl", '{"text": "# no heading", "name": "Birds"}', '{"text": "sing"}')
    put(tmp_path, "set/d.txt", "# plain", "- text")
    (tmp_path / "set" / "e.markdown.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfFish\r\n===\r\n\r\nswim\r\n"))
    made = ingested(**fields(tmp_path / "set", title_key="name"))
    assert made.passages == [
        ("a.md#0", "a.md", "Cats", "purr"),
        ("a.md#1", "a.md", "Cats: Big ones", "roar"),
        ("b.HTML#0", "b.HTML", "Dogs", "bark"),
        ("b.HTML#1", "b.HTML", "Dogs: Small ones", "yap"),
        ("c.jsonl:1#0", "c.jsonl:1", "Birds", "# no heading"),
        ("c.jsonl:2#0", "c.jsonl:2", "", "sing"),
        ("d.txt#0", "d.txt", "d", "# plain\n- text"),
        ("e.markdown.gz#0", "e.markdown.gz", "Fish", "swim"),
    ]


def test_what_is_no_text_is_counted(tmp_path, ingested):
    folder = tmp_path / "set"
    put(folder, "good.md", "text")
    put(folder, "script.py", "print()")
    put(folder, ".git/hidden.md", "hidden")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "cut.txt").write_bytes("é".encode()[:1])
    (folder / "image.txt").write_bytes(b"GIF\0")
    (folder / "empty.html.gz").write_bytes(gzip.compress(b""))
    (folder / "empty.jsonl.gz").write_bytes(gzip.compress(b""))
    made = ingested(**fields(folder, endings=["md", "txt", "html", "jsonl"]))
    assert [row[0] for row in made.passages] == ["good.md#0"]
    assert {name: n for name, n in made.counts.items() if name.endswith("files")} == {
        "files": 1,
        "hidden_files": 1,
        "other_files": 1,
        "empty_files": 2,
        "undecodable_files": 2,
        "binary_files": 1,
        "unmatched_files": 0,
        "link_files": 0,
        "special_files": 0,
    }
    assert ingested(**fields(folder, pattern=".git/*")).passages[0][3] == "hidden"
    (folder / "good.md").unlink()
    with pytest.raises(InputError, match=r"no text among .* \(1 hidden, 1 other, 2 empty, 1 binary, 2 undecodable\)"):
        ingested(**fields(folder, endings=["md", "txt", "html", "jsonl"]))


def test_a_name_that_is_no_utf8_is_counted(tmp_path, ingested):
    put(tmp_path, "set/good.md", "text")
    try:
        Path(os.fsdecode(os.fsencode(tmp_path / "set") + b"/caf\xe9.md")).write_text(REST)
    except OSError:
        pytest.skip("this file system takes names in UTF-8 alone")
    made = ingested(**fields(tmp_path / "set"))
    assert [row[0] for row in made.passages] == ["good.md#0"]
    assert made.counts["undecodable_files"] == 1


def test_an_empty_folder(tmp_path, ingested):
    (tmp_path / "set").mkdir()
    with pytest.raises(InputError, match=r"set: no file matches ingest\.pattern '\*\*/\*'$"):
        ingested(**fields(tmp_path / "set"))
    put(tmp_path, "set/blank.md", " ", "")
    made = ingested(**fields(tmp_path / "set"))
    assert made.passages == [("blank.md#0", "blank.md", "blank", "")]


@pytest.mark.parametrize("questions", [[], ["crops"]])
@pytest.mark.parametrize("row", [{"id": "a", "text": f"\ud800 {REST}"}, {"id": "\udc00", "text": REST}])
def test_half_of_a_surrogate_pair_is_refused_by_its_line(tmp_path, ingested, row, questions):
    path = put(tmp_path, "t.jsonl", json.dumps({"id": "fine", "text": 2 * REST}), json.dumps(row))
    with pytest.raises(InputError, match=r"t\.jsonl:2: .* holds half of a surrogate pair"):
        ingested(**fields(path, id_key="id", questions=questions))


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../*"])
def test_a_pattern_stays_inside_its_folder(tmp_path, pattern):
    with pytest.raises(ValidationError, match="inside the folder"):
        CONFIG.validate_python(fields(tmp_path, pattern=pattern))


@pytest.mark.parametrize("pattern", [".", "a**b"])
def test_what_is_no_pattern_is_refused_by_its_field(tmp_path, pattern):
    with pytest.raises(ValidationError, match="is no pattern of paths"):
        CONFIG.validate_python(fields(tmp_path, pattern=pattern))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"questions": ["headings", "headings"]}, "names a kind twice"),
        ({"questions": ["tags"]}, "'titles', 'headings', 'first_sentences' or 'crops'"),
        ({"sentence_words": [5, 4]}, "must be at least 1, and ascend"),
        ({"crop_share": [0.5, 1.0]}, "must lie between 0 and 1"),
        ({"dev_share": 0.5, "test_share": 0.5}, "leave nothing to train on"),
    ],
)
def test_fields_that_make_no_sense(tmp_path, changed, message):
    with pytest.raises(ValidationError, match=message):
        CONFIG.validate_python(fields(tmp_path, **changed))


def test_a_missing_folder_names_the_field(tmp_path):
    (line,) = missing(CONFIG.validate_python(fields(tmp_path / "gone")))
    assert line.startswith(f"{tmp_path / 'gone'} does not exist; ingest.path takes")
    assert line.endswith("(--set ingest.path=FOLDER)")


def test_lines_and_jsonl(tmp_path, ingested):
    made = ingested(**fields(put(tmp_path, "t.txt", "one", "", "two"), documents="lines"))
    assert made.passages == [("t.txt:1#0", "t.txt:1", "", "one"), ("t.txt:3#0", "t.txt:3", "", "two")]
    path = put(tmp_path, "d.jsonl", '{"key": 7, "name": "N", "body": "x y"}', '{"key": "k", "body": ""}')
    made = ingested(**fields(path, id_key="key", title_key="name", text_key="body"))
    assert made.passages == [("7#0", "7", "N", "x y")]
    assert made.counts["empty_passages"] == 1
    with pytest.raises(InputError, match=r"d.jsonl:1: no text in field 'text'"):
        ingested(**fields(path))
    with pytest.raises(InputError, match=r"e.txt: empty file"):
        ingested(**fields(put(tmp_path, "e.txt")))
    (tmp_path / "l.md").write_bytes(b"fine\ncaf\xe9")
    with pytest.raises(InputError, match=r"l.md:2: invalid UTF-8"):
        ingested(**fields(tmp_path / "l.md"))


def asked(made) -> dict[str, tuple[str, list[str]]]:
    """{question id: (text, ids of the passages that answer)}."""
    return {q.query_id: (q.text, list(made.qrels[q.query_id])) for q in made.queries}


def titled(made) -> dict[str, tuple[str, str]]:
    return {row[0]: (row[2], row[3]) for row in made.passages}


@pytest.fixture
def guide(tmp_path) -> Path:
    first = ["# Keeping cats", "Cats like fish a lot. " + REST]
    return put(tmp_path, "set/guide.md", *first, "## Large cats", REST, "### Lions at home", REST).parent


def test_titles_ask_for_all_passages_and_leave_their_titles(guide, ingested):
    made = ingested(**fields(guide, questions=["titles"]))
    assert asked(made) == {"guide.md?titles:0": ("Keeping cats", ["guide.md#0", "guide.md#1", "guide.md#2"])}
    assert [title for title, _ in titled(made).values()] == ["", "Large cats", "Large cats: Lions at home"]
    assert made.counts["questions_from_titles"] == 1


def test_headings_ask_for_their_section_with_its_subsections(guide, ingested):
    made = ingested(**fields(guide, questions=["headings"]))
    assert asked(made) == {
        "guide.md?headings:0": ("Large cats", ["guide.md#1", "guide.md#2"]),
        "guide.md?headings:1": ("Lions at home", ["guide.md#2"]),
    }
    assert {title for title, _ in titled(made).values()} == {"Keeping cats"}


def test_first_sentences_ask_for_the_rest(guide, ingested):
    made = ingested(**fields(guide, questions=["first_sentences"]))
    assert asked(made) == {"guide.md?first_sentences:0": ("Cats like fish a lot.", ["guide.md#0"])}
    assert titled(made)["guide.md#0"] == ("Keeping cats", REST)
    # Both other sections begin, and are, the same sentence.
    assert made.counts["repeated_left_out"] == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Two lines\nof one. Then the others.", "Two lines of one."),
        ("He said e.g. this and i.e. That. Next one.", "He said e.g. this and i.e. That."),
        ("Is version 1.2 of it out? Yes.", "Is version 1.2 of it out?"),
        ('He said "it is so." And went.', 'He said "it is so."'),
        ("A sentence alone in its paragraph.\n\nNext.", "A sentence alone in its paragraph."),
        ("Été comme hiver il dort. Éveillé il mange.", "Été comme hiver il dort."),
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
    made = ingested(**fields(tmp_path / "set", questions=["first_sentences"]))
    texts = {query.query_id.split("?")[0]: query.text for query in made.queries}
    assert texts.get("a.txt") == sentence
    if sentence:
        assert sentence.split()[0] not in titled(made)["a.txt#0"][1].split()


def test_crops_are_spans_of_their_passage_and_taken_out(tmp_path, ingested):
    words = [f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(300)]
    path = put(tmp_path, "set/a.txt", " ".join(words)).parent
    put(tmp_path, "set/b.txt", "too few words for any crop")
    made = ingested(**fields(path, questions=["crops"], passage_words=50))
    whole = ingested(**fields(path, passage_words=50))
    assert made.counts["questions_from_crops"] == 6
    assert made.counts["without_rest_left_out"] == 1
    lengths = []
    for query in made.queries:
        (passage,) = made.qrels[query.query_id]
        left, before = titled(made)[passage][1].split(), titled(whole)[passage][1].split()
        assert query.text in " ".join(before)
        assert sorted(left + query.text.split()) == sorted(before)
        lengths.append(len(query.text.split()) / len(before))
    assert 0.2 - 0.02 <= min(lengths) < max(lengths) <= 0.5 + 0.02
    again = ingested(**fields(path, questions=["crops"], passage_words=50, seed=2))
    assert [q.text for q in again.queries] != [q.text for q in made.queries]


def test_equal_passages_give_no_crops(tmp_path, ingested):
    for name, text in (("a", REST), ("b", REST), ("c", "Another text of some words entirely, and more of it.")):
        put(tmp_path, f"set/{name}.txt", text)
    made = ingested(**fields(tmp_path / "set", questions=["crops"]))
    assert [query.query_id for query in made.queries] == ["c.txt?crops:0"]
    assert made.counts["repeated_left_out"] == 2
    assert [text for _, text in titled(made).values()][:2] == [REST, REST]  # what does not ask stays whole


def test_headings_that_say_nothing_are_left_out(tmp_path, ingested):
    nothing = ["Introduction", "1.2 Usage", "Getting started", "2. What's new?", "2021", "A b", "Said in both"]
    sections = [line for heading in nothing for line in (f"## {heading}", REST)]
    put(tmp_path, "set/a.md", "# T", *sections, "## Something said", REST, "## Nothing left", "few words")
    put(tmp_path, "set/b.md", "# T", "## 3. Said, in both!", REST, "## Only a parent", "### Child", REST)
    made = ingested(**fields(tmp_path / "set", questions=["headings"]))
    assert {text for text, _ in asked(made).values()} == {"Something said", "Only a parent"}
    assert made.counts["saying_nothing_left_out"] == 7
    assert made.counts["repeated_left_out"] == 2
    assert made.counts["without_rest_left_out"] == 1


def test_a_folder_without_any_heading(tmp_path, ingested):
    put(tmp_path, "set/a.txt", REST)
    with pytest.raises(InputError) as error:
        ingested(**fields(tmp_path / "set", questions=["headings"]))
    assert str(error.value).startswith(
        f"{tmp_path / 'set'}: nothing to ask by ingest.questions [headings] in 1 documents (0 saying nothing"
    )
    assert "\n" not in str(error.value)


@pytest.fixture
def many(tmp_path) -> Path:
    for a in "abcdefghij":
        for b in ascii_lowercase:
            put(tmp_path, f"set/{a}{b}.md", f"# About {a}{b}xy", f"The word is {a}{b}xy here. {REST}")
    return tmp_path / "set"


HELD_OUT = {"questions": ["titles", "first_sentences"], "dev_share": 0.1, "test_share": 0.2}


def test_whole_documents_are_held_out_and_stay_so(many, ingested):
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
    made = ingested(**fields(many, **HELD_OUT, kept_share=0.4))
    stays: dict[str, list[bool]] = {"train": [], "dev": [], "test": []}
    for query in made.queries:
        (passage,) = made.qrels[query.query_id]
        title, text = titled(made)[passage]
        stays[query.split].append(query.text in (title, text[: len(query.text)]))
    assert not any(stays["dev"] + stays["test"])
    assert sum(stays["train"]) / len(stays["train"]) == pytest.approx(0.4, abs=0.1)


@pytest.mark.parametrize("shares", [{"dev_share": 0.001, "test_share": 0.0}, {"dev_share": 0.0, "test_share": 0.999}])
def test_a_split_without_questions_is_told(guide, ingested, shares):
    with pytest.raises(InputError, match=r"ingest\.dev_share, test_share and seed leave \d questions to train on and"):
        ingested(**fields(guide, questions=["headings"], **shares))


def test_equal_folders_give_equal_bytes(many, ingested):
    everything = HELD_OUT | {"questions": ["titles", "headings", "first_sentences", "crops"], "kept_share": 0.5}
    one, two = (ingested(**fields(many, **everything)).folder for _ in range(2))
    for name in ("passages.parquet", "queries.parquet", "qrels.parquet", "ingest.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert json.loads((one / "ingest.json").read_text())["questions_from_crops"] > 0


TEXT = "Größe und Maß\nZweite Zeile\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.html", "a.txt.gz"])
def test_a_byte_order_mark_tells_the_encoding(tmp_path, ingested, encoding, name):
    mark = {"utf-16-be": b"\xfe\xff", "utf-16-le": b"\xff\xfe"}.get(encoding, b"")
    content = mark + TEXT.replace("\n", "\r\n").encode(encoding)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    made = ingested(**fields(tmp_path / "set"))
    assert " ".join(made.passages[0][3].split()) == "Größe und Maß Zweite Zeile"
    assert made.notices == []


LEFT_OUT = {
    "latin": (
        b"caf\xe9",
        "files left out, not UTF-8 or named so: 4 (first: f0.txt, f1.txt, f2.txt); save them as UTF-8",
    ),
    "cut": (b"\xff\xfea\0b", "files left out, not UTF-8 or named so: 4 (first"),
    "picture": (b"GIF\0", "files left out, binary: 4 (first: f0.txt"),
    "utf-16 without a mark": ("text".encode("utf-16-le"), "files left out, binary: 4 (first: f0.txt"),
    "empty": (b"", "files left out, empty: 4 (first: f0.txt"),
    "a mark alone": (b"\xff\xfe", "files left out, empty: 4 (first: f0.txt"),
}


@pytest.mark.parametrize("kind", LEFT_OUT)
def test_files_left_out_are_noticed(tmp_path, ingested, kind):
    content, line = LEFT_OUT[kind]
    put(tmp_path, "set/good.md", "text")
    for i in range(4):
        (tmp_path / "set" / f"f{i}.txt").write_bytes(content)
    (found,) = ingested(**fields(tmp_path / "set")).notices
    assert found.startswith(line)
    assert str(tmp_path) not in found


def test_files_that_the_recipe_leaves_out_are_noticed(tmp_path, ingested):
    put(tmp_path, "set/deep/good.md", "text")
    for name in ("a.rst", "deep/b.rst", ".git/config", "line\nbreak.rst"):
        put(tmp_path, f"set/{name}", "text")
    (tmp_path / "set" / "nowhere.md").symlink_to("gone.md")
    (tmp_path / "set" / "folder.md").symlink_to("deep")
    os.mkfifo(tmp_path / "set" / "pipe.md")
    assert ingested(**fields(tmp_path / "set", endings=["md"])).notices == [
        "files left out, of other endings: 3 (first: a.rst, deep/b.rst, line\\nbreak.rst); "
        "add theirs to ingest.endings",
        "files left out, hidden: 1 (first: .git/config); name a hidden folder in ingest.pattern to take its files",
        "links left out, to folders or to nothing: 2 (first: folder.md, nowhere.md); "
        "put the files themselves into ingest.path",
        "files left out, neither files nor folders: 1 (first: pipe.md)",
    ]
    made = ingested(**fields(tmp_path / "set", pattern="deep/*.md"))
    assert made.notices[0].startswith(
        "files left out, not matched by ingest.pattern: 6 (first: a.rst, deep/b.rst, folder"
    )


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
def test_texts_that_do_not_ask_are_noticed(tmp_path, ingested, reason, files, first):
    for name, lines in files.items():
        put(tmp_path, f"set/{name}", *lines)
    made = ingested(**fields(tmp_path / "set", questions=["titles"]))
    (line,) = made.notices
    assert line.startswith("texts that do not ask, as ")
    assert f": {made.counts[f'{reason}_left_out']} (first: {first}" in line


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
        text = "".join(sentence[(7 * i + k * k) % (len(sentence) // 2) :] for k in range(40))
        put(tmp_path, f"set/{i}.md", f"# {title}{title[0] * (2 * i + 1)}", f"## {title}{title[0] * 2 * i}", text)
    made = ingested(**fields(tmp_path / "set", passage_words=80, questions=[kind], remaining_words=20))
    assert made.counts[f"questions_from_{kind}"] >= 3
    assert made.counts["passages"] >= 6


@pytest.mark.parametrize("script", ["chinese", "japanese", "khmer"])
def test_first_sentences_without_spaces(tmp_path, ingested, script):
    sentence = SCRIPTS[script][1]
    put(tmp_path, "set/a.txt", sentence + "x" + 9 * sentence)
    made = ingested(**fields(tmp_path / "set", questions=["first_sentences"]))
    assert [query.text for query in made.queries] == [sentence]


@pytest.mark.parametrize("title", ["介绍", "概要", "ไทย"])
def test_short_titles_do_not_ask(tmp_path, ingested, title):
    put(tmp_path, "set/a.md", f"# {title}", REST)
    put(tmp_path, "set/b.md", "# Big cats", REST)
    made = ingested(**fields(tmp_path / "set", questions=["titles"]))
    assert [query.text for query in made.queries] == ["Big cats"]
