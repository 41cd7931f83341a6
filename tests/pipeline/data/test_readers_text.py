"""The user's own texts: which files are read and how."""

import gzip
import json
import lzma
import os
import sys
from pathlib import Path

import pytest
from own_texts import REST, fields
from pydantic import TypeAdapter, ValidationError
from writing import put

from pipeline.data.ingest import IngestConfig, missing
from pipeline.data.readers.formats import converted
from pipeline.errors import InputError

CONFIG = TypeAdapter(IngestConfig)


def test_a_folder(tmp_path, ingested):
    put(tmp_path, "set/b.txt", "one two.", "", "three four.")
    put(tmp_path, "set/a name/c.txt.v2.text", "five")
    put(tmp_path, "set/empty.txt")
    result = ingested(**fields(tmp_path / "set", passage_words=3))
    assert result.passages == [
        ("a%20name/c.txt.v2.text#0", "a%20name/c.txt.v2.text", "c.txt.v2", "five"),
        ("b.txt#0", "b.txt", "b", "one two."),
        ("b.txt#1", "b.txt", "b", "three four."),
    ]
    assert (result.counts["documents"], result.counts["files"], result.counts["empty_files"]) == (2, 2, 1)
    assert result.queries == []
    with pytest.raises(InputError, match=r"set: no file matches ingest.pattern '\*.html'"):
        ingested(**fields(tmp_path / "set", pattern="*.html"))


@pytest.mark.parametrize(
    ("name", "document"), [("a\x1b[31mb", "a%1B[31mb"), ("a\nb", "a%0Ab"), ("a\x85b", "a%C2%85b"), ("a\tb", "a%09b")]
)
def test_file_names_with_characters_that_ids_cannot_hold_are_escaped(tmp_path, ingested, name, document):
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
    result = ingested(**fields(tmp_path / "set", passage_words=2, metadata=names))
    actual = {row[0]: tuple(values.values()) for row, values in zip(result.passages, result.metadata, strict=True)}
    cats = ("a b/cats.MD", "a b", "md", "no", 2020, "01234", "12:30", "2024-01-02")
    nothing = (None,) * 5
    assert actual == {
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


def test_metadata_of_texts_with_generated_questions(tmp_path, ingested):
    for i in range(3):
        put(tmp_path, f"set/{i}.md", "---", f"number: {i}", "---", f"# What {'abc'[i]} is about", REST, "## More", REST)
    settings = {"questions": ["titles"], "dev_share": 0.0, "test_share": 0.0}
    result = ingested(**fields(tmp_path / "set", metadata=["number"], **settings))
    assert [values["number"] for values in result.metadata] == [0, 0, 1, 1, 2, 2]
    assert len(result.queries) == 3


def test_front_matter_that_cannot_be_parsed_is_ignored(tmp_path, ingested):
    put(tmp_path, "set/a.md", "---", "lang: {{ broken", "---", "purr")
    put(tmp_path, "set/b.md", "---", "lang: en", "1: one", "---", "bark")
    put(tmp_path, "set/c.md", "---", "- lang", "---", "sing")
    assert ingested(**fields(tmp_path / "set", metadata=["lang"])).metadata[:2] == [{"lang": None}, {"lang": "en"}]


def test_each_ending_has_its_own_format(tmp_path, ingested):
    put(tmp_path, "set/a.md", "# Cats", "purr", "## Big ones", "roar")
    put(tmp_path, "set/b.HTML", "<title>Dogs</title><p>bark<h2>Small ones</h2>yap")
    put(tmp_path, "set/c.jsonl", '{"text": "# no heading", "name": "Birds"}', '{"text": "sing"}')
    put(tmp_path, "set/d.txt", "# plain", "- text")
    (tmp_path / "set" / "e.markdown.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfFish\r\n===\r\n\r\nswim\r\n"))
    result = ingested(**fields(tmp_path / "set", title_key="name"))
    assert result.passages == [
        ("a.md#0", "a.md", "Cats", "purr"),
        ("a.md#1", "a.md", "Cats: Big ones", "roar"),
        ("b.HTML#0", "b.HTML", "Dogs", "bark"),
        ("b.HTML#1", "b.HTML", "Dogs: Small ones", "yap"),
        ("c.jsonl:1#0", "c.jsonl:1", "Birds", "# no heading"),
        ("c.jsonl:2#0", "c.jsonl:2", "", "sing"),
        ("d.txt#0", "d.txt", "d", "# plain\n- text"),
        ("e.markdown.gz#0", "e.markdown.gz", "Fish", "swim"),
    ]


def test_files_that_are_not_text_are_counted(tmp_path, ingested):
    folder = tmp_path / "set"
    put(folder, "good.md", "text")
    put(folder, "script.py", "print()")
    put(folder, ".git/hidden.md", "hidden")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "cut.txt").write_bytes("é".encode()[:1])
    (folder / "image.txt").write_bytes(b"GIF\0")
    (folder / "empty.html.gz").write_bytes(gzip.compress(b""))
    (folder / "empty.jsonl.gz").write_bytes(gzip.compress(b""))
    result = ingested(**fields(folder, endings=["md", "txt", "html", "jsonl"]))
    assert [row[0] for row in result.passages] == ["good.md#0"]
    assert {name: n for name, n in result.counts.items() if name.endswith("files")} == {
        "files": 1,
        "hidden_files": 1,
        "other_files": 1,
        "empty_files": 2,
        "undecodable_files": 2,
        "binary_files": 1,
        "unmatched_files": 0,
        "link_files": 0,
        "special_files": 0,
        "large_files": 0,
        "unconverted_files": 0,
        "damaged_files": 0,
        "textless_files": 0,
        "asset_files": 0,
    }
    assert ingested(**fields(folder, pattern=".git/*")).passages[0][3] == "hidden"
    (folder / "good.md").unlink()
    with pytest.raises(InputError, match=r"no text .* \(1 hidden, 1 other, 2 empty, 1 binary, 2 undecodable\); add"):
        ingested(**fields(folder, endings=["md", "txt", "html", "jsonl"]))


@pytest.mark.parametrize(
    ("endings", "expected"),
    [
        (["md"], {"a.md"}),
        (["md", "rst"], {"a.md", "b.rst", "c.RST.gz"}),
        (["md", ".RST"], {"a.md", "b.rst", "c.RST.gz"}),
        (["*.rst"], {"b.rst", "c.RST.gz"}),
        (["md", ""], {"a.md", "README", "Makefile"}),
        (["README"], {"README"}),
    ],
)
def test_endings_are_matched_as_the_notice_advises(tmp_path, ingested, endings, expected):
    for name in ("a.md", "b.rst", "README", "Makefile"):
        put(tmp_path, f"set/{name}", "text")
    (tmp_path / "set" / "c.RST.gz").write_bytes(gzip.compress(b"text"))
    result = ingested(**fields(tmp_path / "set", endings=endings))
    assert {row[1] for row in result.passages} == expected
    assert result.counts["other_files"] == 5 - len(expected)


@pytest.mark.parametrize("ending", ["md.gz", "gz", "min.js", ".tar.md"])
def test_endings_that_no_file_has_are_refused(tmp_path, ending):
    with pytest.raises(ValidationError, match=f"'{ending}' is not a file's ending"):
        CONFIG.validate_python(fields(tmp_path, endings=[ending]))


def test_a_file_name_that_is_not_utf8_is_counted(tmp_path, ingested):
    put(tmp_path, "set/good.md", "text")
    try:
        Path(os.fsdecode(os.fsencode(tmp_path / "set") + b"/caf\xe9.md")).write_text(REST)
    except OSError:
        pytest.skip("this file system accepts only names in UTF-8")
    result = ingested(**fields(tmp_path / "set"))
    assert [row[0] for row in result.passages] == ["good.md#0"]
    assert result.counts["undecodable_files"] == 1
    assert r"(first: caf\xe9.md)" in result.notices[0]


DAMAGED = {
    "none.txt.gz": b"text",
    "cut.txt.gz": gzip.compress(os.urandom(1_500_000).hex().encode())[:-100_000],
    "head.md.gz": gzip.compress(b"text")[:5],
    "wrong.md.gz": gzip.compress(b"text" * 9)[:12] + bytes(20),
    "cut.html.xz": lzma.compress(b"text" * 999)[:-30],
    "none.docx.xz": b"text",
    "none.html.zst": b"text",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_an_archive_that_cannot_be_read_is_counted(tmp_path, ingested, name):
    put(tmp_path, "set/good.md", "text")
    path = tmp_path / "set" / name
    path.write_bytes(DAMAGED[name])
    result = ingested(**fields(tmp_path / "set"))
    assert [row[1] for row in result.passages] == ["good.md"]
    assert result.counts["damaged_files"] == 1 or not converted.installed()
    with pytest.raises(InputError, match=r"unreadable archive|PDF, Word"):
        ingested(**fields(path))


def test_a_fault_of_jsonl_is_an_error(tmp_path, ingested):
    put(tmp_path, "set/good.md", "text")
    (tmp_path / "set" / "a.jsonl.gz").write_bytes(b"text")
    with pytest.raises(InputError, match=r"a\.jsonl\.gz: unreadable archive"):
        ingested(**fields(tmp_path / "set"))


def test_nobody_is_advised_to_read_pictures_and_styles(tmp_path, ingested):
    for name in ("a.html", "b.css", "c.JS", "d.png", "e.svg.gz", "f.woff2"):
        put(tmp_path, f"set/{name}", "text")
    result = ingested(**fields(tmp_path / "set", endings=["html"]))
    assert result.notices == [
        "files left out, parts of pages and media: styles, scripts, pictures, fonts, sound, video: 5 "
        "(first: b.css, c.JS, d.png)"
    ]
    assert len(ingested(**fields(tmp_path / "set", endings=["html", "css"])).passages) == 2


def test_an_empty_folder(tmp_path, ingested):
    (tmp_path / "set").mkdir()
    with pytest.raises(InputError, match=r"set: no file matches ingest\.pattern '\*\*/\*'$"):
        ingested(**fields(tmp_path / "set"))
    put(tmp_path, "set/blank.md", " ", "")
    with pytest.raises(InputError, match=r"set: no text among the files .* \(1 textless\)$"):
        ingested(**fields(tmp_path / "set"))


def test_texts_without_visible_characters_are_dropped(tmp_path, ingested):
    lines = ["\u200b\u2060", "\x01\x02", "seen"]
    result = ingested(**fields(put(tmp_path, "t.txt", *lines), documents="lines"))
    assert [row[3] for row in result.passages] == ["seen"]
    assert result.notices == ["passages dropped, without text and title: 2 (first: t.txt:1#0, t.txt:2#0)"]


@pytest.mark.parametrize("questions", [[], ["crops"]])
@pytest.mark.parametrize("row", [{"id": "a", "text": f"\ud800 {REST}"}, {"id": "\udc00", "text": REST}])
def test_half_of_a_surrogate_pair_is_refused_with_its_line(tmp_path, ingested, row, questions):
    path = put(tmp_path, "t.jsonl", json.dumps({"id": "fine", "text": 2 * REST}), json.dumps(row))
    with pytest.raises(InputError, match=r"t\.jsonl:2: .* holds half of a surrogate pair"):
        ingested(**fields(path, id_key="id", questions=questions))


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../*"])
def test_a_pattern_stays_inside_its_folder(tmp_path, pattern):
    with pytest.raises(ValidationError, match="inside the folder"):
        CONFIG.validate_python(fields(tmp_path, pattern=pattern))


@pytest.mark.parametrize(
    "pattern",
    [
        ".",
        pytest.param("a**b", marks=pytest.mark.skipif(sys.version_info >= (3, 13), reason="means a*b from 3.13 on")),
    ],
)
def test_an_invalid_pattern_is_refused_with_its_field(tmp_path, pattern):
    with pytest.raises(ValidationError, match="is not a pattern of paths"):
        CONFIG.validate_python(fields(tmp_path, pattern=pattern))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"questions": ["headings", "headings"]}, "names a kind twice"),
        ({"questions": ["tags"]}, "'titles', 'headings', 'first_sentences' or 'crops'"),
        ({"sentence_words": [5, 4]}, "must be at least 1, and ascend"),
        ({"crop_share": [0.5, 1.0]}, "must be between 0 and 1"),
        ({"dev_share": 0.5, "test_share": 0.5}, "leave nothing to train on"),
    ],
)
def test_invalid_fields_are_refused(tmp_path, changed, message):
    with pytest.raises(ValidationError, match=message):
        CONFIG.validate_python(fields(tmp_path, **changed))


def test_the_message_of_a_missing_folder_names_the_field(tmp_path):
    (line,) = missing(CONFIG.validate_python(fields(tmp_path / "gone")))
    assert line.startswith(f"{tmp_path / 'gone'} does not exist; ingest.path takes")
    assert line.endswith("(--set ingest.path=FOLDER)")


def test_lines_and_jsonl(tmp_path, ingested):
    result = ingested(**fields(put(tmp_path, "t.txt", "one", "", "two"), documents="lines"))
    assert result.passages == [("t.txt:1#0", "t.txt:1", "", "one"), ("t.txt:3#0", "t.txt:3", "", "two")]
    path = put(tmp_path, "d.jsonl", '{"key": 7, "name": "N", "body": "x y"}', '{"key": "k", "body": ""}')
    result = ingested(**fields(path, id_key="key", title_key="name", text_key="body"))
    assert result.passages == [("7#0", "7", "N", "x y")]
    assert result.counts["empty_passages"] == 1
    with pytest.raises(InputError, match=r"d.jsonl:1: no text in field 'text'"):
        ingested(**fields(path))
    with pytest.raises(InputError, match=r"e.txt: empty file"):
        ingested(**fields(put(tmp_path, "e.txt")))
    (tmp_path / "l.md").write_bytes(b"fine\ncaf\xe9")
    with pytest.raises(InputError, match=r"l.md:2: invalid UTF-8"):
        ingested(**fields(tmp_path / "l.md"))


TEXT = "Größe und Maß\nZweite Zeile\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.html", "a.txt.gz"])
def test_a_byte_order_mark_determines_the_encoding(tmp_path, ingested, encoding, name):
    mark = {"utf-16-be": b"\xfe\xff", "utf-16-le": b"\xff\xfe"}.get(encoding, b"")
    content = mark + TEXT.replace("\n", "\r\n").encode(encoding)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    result = ingested(**fields(tmp_path / "set"))
    assert " ".join(result.passages[0][3].split()) == "Größe und Maß Zweite Zeile"
    assert result.notices == []


LEFT_OUT = {
    "latin": (
        b"caf\xe9",
        "files left out, text or name not UTF-8: 4 (first: f0.txt, f1.txt, f2.txt); save them as UTF-8",
    ),
    "cut": (b"\xff\xfea\0b", "files left out, text or name not UTF-8: 4 (first"),
    "picture": (b"GIF\0", "files left out, binary: 4 (first: f0.txt"),
    "utf-16 without a mark": ("text".encode("utf-16-le"), "files left out, binary: 4 (first: f0.txt"),
    "too large": (
        b"a" * 1_000_001,
        "files left out, larger than ingest.max_file_mb when unpacked: 4 (first: f0.txt, f1.txt, f2.txt)",
    ),
    "empty": (b"", "files left out, empty: 4 (first: f0.txt"),
    "a mark alone": (b"\xff\xfe", "files left out, empty: 4 (first: f0.txt"),
}


@pytest.mark.parametrize("kind", LEFT_OUT)
def test_files_left_out_are_reported(tmp_path, ingested, kind):
    content, line = LEFT_OUT[kind]
    put(tmp_path, "set/good.md", "text")
    for i in range(4):
        (tmp_path / "set" / f"f{i}.txt").write_bytes(content)
    (notice,) = ingested(**fields(tmp_path / "set", max_file_mb=1)).notices
    assert notice.startswith(line)
    assert str(tmp_path) not in notice


def test_files_that_the_recipe_leaves_out_are_reported(tmp_path, ingested):
    put(tmp_path, "set/deep/good.md", "text")
    for name in ("a.rst", "deep/b.rst", ".git/config", "line\nbreak.rst"):
        put(tmp_path, f"set/{name}", "text")
    (tmp_path / "set" / "nowhere.md").symlink_to("gone.md")
    (tmp_path / "set" / "folder.md").symlink_to("deep")
    (tmp_path / "set" / "loop.md").symlink_to("loop.md")
    os.mkfifo(tmp_path / "set" / "pipe.md")
    assert ingested(**fields(tmp_path / "set", endings=["md"])).notices == [
        "files left out, other endings: 3 (first: a.rst, deep/b.rst, line\\nbreak.rst); "
        'add theirs to ingest.endings: rst for NAME.rst, "" for names without one',
        "files left out, hidden: 1 (first: .git/config); name a hidden folder in ingest.pattern to take its files",
        "links left out, to folders, to nothing or in a circle: 3 (first: folder.md, loop.md, nowhere.md); "
        "put the files themselves into ingest.path",
        "files left out, neither files nor folders: 1 (first: pipe.md)",
    ]
    result = ingested(**fields(tmp_path / "set", pattern="deep/*.md"))
    assert result.notices[0].startswith(
        "files left out, not matched by ingest.pattern: 7 (first: a.rst, deep/b.rst, folder"
    )
