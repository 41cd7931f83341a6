"""Charsets of pages; reStructuredText, AsciiDoc, PDF, Word, PowerPoint and EPUB in a folder."""

import contextlib
import re
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
from office_files import docx, epub, pdf, pptx, zipped
from outlines import outline
from own_texts import fields
from pydantic import TypeAdapter
from writing import put

from artifacts import versions
from pipeline.data import ingest
from pipeline.data.readers.formats import (
    LIBRARIES,
    Unreadable,
    asciidoc,
    charset,
    converted,
    html,
    markdown,
    restructured,
)
from pipeline.data.readers.sections import document
from pipeline.errors import InputError

CONVERTER = pytest.mark.skipif(not converted.installed(), reason="the extra `documents` is not installed")


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("latin-1", "<meta charset=ISO-8859-1>"),
        ("cp1252", "<meta http-equiv='Content-Type' content='text/html; charset=iso-8859-1'>"),
        ("cp1252", '<?xml version="1.0" encoding="windows-1252"?>'),
        ("utf-8", "<meta charset=latin1>"),
        ("utf-8", ""),
        ("utf-8", "<meta charset=no-such>"),
        ("utf-8-sig", "<meta charset=latin1>"),
        ("utf-16", ""),
        ("iso-8859-15", "<!-- x --><META CHARSET = 'ISO-8859-15' />"),
    ],
)
def test_a_page_is_read_in_its_charset(encoding, declared):
    page = f"{declared}<p>Größe déjà €</p>" if encoding != "latin-1" else f"{declared}<p>Größe déjà</p>"
    assert charset.decode(page.encode(encoding)) == page


@pytest.mark.parametrize(
    ("encoding", "name", "text"),
    [
        ("shift_jis", "Shift_JIS", "保守と更新"),
        ("iso2022_jp", "ISO-2022-JP", "保守と更新"),
        ("euc_jp", "EUC-JP", "保守と更新"),
        ("gb18030", "gb2312", "维护和更新"),
        ("koi8_r", "koi8-r", "Поиск"),
        ("cp932", "x-sjis", "保守と更新"),
        ("cp874", "windows-874", "ค้นหา"),
        ("mac_cyrillic", "x-mac-cyrillic", "Поиск"),
    ],
)
def test_charsets_of_languages(encoding, name, text):
    page = f"<html><head><title>x</title><meta charset={name}></head>{text}"
    assert charset.decode(page.encode(encoding)) == page


@pytest.mark.parametrize("name", ["undefined", "punycode", "idna", "utf-7", "unicode_escape", "raw_unicode_escape"])
def test_a_codec_of_python_that_is_no_charset_of_pages_is_not_used(name):
    page = f"<meta charset={name}><p>a-b +AGE- \\x41 "
    assert charset.decode(page.encode()) == page
    with pytest.raises(UnicodeDecodeError, match="utf-8"):
        charset.decode(f"{page} café".encode("latin-1"))


@pytest.mark.parametrize(
    "declared",
    [
        "",
        "<meta charset=utf-8>",
        "<meta charset=undefined>",
        "<meta charset=idna>",
        "<meta charset=hex>",
        "<meta charset=ascii-x>",
    ],
)
def test_a_page_in_no_known_charset_is_counted(tmp_path, ingested, declared):
    put(tmp_path, "set/good.html", "<p>text")
    (tmp_path / "set" / "bad.html").write_bytes(declared.encode() + b"<p>caf\xe9")
    result = ingested(**fields(tmp_path / "set"))
    assert (result.counts["undecodable_files"], len(result.passages)) == (1, 1)
    assert "HTML may declare another charset" in result.notices[0]
    with pytest.raises(InputError, match=r"bad\.html: text or name not UTF-8; save"):
        ingested(**fields(tmp_path / "set" / "bad.html"))


RST = """
=====
Cats
=====
.. toctree::

   other

1. Small cats
=============
They *purr*, see :ref:`the others <dogs>`, :class:`~zoo.Cat` and `a page <http://x>`_.

.. code-block:: python
   :emphasize-lines: 1

   def purr():
       return 1

.. py:method:: Cat.purr(*times)
   :noindex:

   Makes a sound.

.. versionadded:: 3.2
   With *more* sounds.

2. Big cats
===========
====  =====
name  sound
====  =====
lion  roar
====  =====
"""


def test_restructured_text():
    parsed = document("d", *_named(restructured.blocks(RST)))
    assert parsed.title == "Cats"
    (small, text), big = outline(parsed)
    assert small == "Small cats"
    assert text.startswith(
        "They purr, see the others, zoo.Cat and a page.\n\ndef purr():\n    return 1\n\nCat.purr(*times)"
    )
    assert text.endswith("Makes a sound.\n\n3.2 With more sounds.")
    assert big == ("Big cats", "name | sound\nlion | roar")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("\n\n".join(f"{'  ' * i}- text" for i in range(400)), id="nested.rst"),
        pytest.param("<div>" * 3000 + "text" + "</div>" * 3000 + "<p>more", id="nested.html"),
        pytest.param("text\n\n" + "<div>" * 3000 + "text", id="nested.md"),
        pytest.param("text\n\n" + ">" * 5000 + " text", id="quotes.md"),
        pytest.param("\n".join(f"{'  ' * i}- text" for i in range(60)), id="lists.md"),
    ],
)
def test_a_deeply_nested_text_is_counted_as_damaged(request, tmp_path, ingested, page):
    put(tmp_path, "set/good.txt", "text")
    put(tmp_path, f"set/{request.node.callspec.id}", page)
    result = ingested(**fields(tmp_path / "set"))
    assert (result.counts["damaged_files"], len(result.passages)) == (1, 1)


SPACES = " " * 5000
REPEATED = {
    asciidoc: ("*a ", "http:", "[", "<<a, ", f"= a{SPACES}", f"|===\n{SPACES}"),
    restructured: (":", "http:", "\n"),
    markdown: ("[", "**a*", "---\n"),
    html: ("<table><tr><td>", "<main>a", "<h1>¶a" + "¶" * 5000, "<!DOCTYPE a [<!--'"),
}


@pytest.mark.parametrize(
    ("parser", "piece"), [pytest.param(p, piece, id=piece[:9]) for p, pieces in REPEATED.items() for piece in pieces]
)
def test_time_is_not_quadratic(parser, piece):
    start = time.process_time()
    with contextlib.suppress(Unreadable):
        parser.blocks(piece * (30_000 // len(piece)) + "x")
    assert time.process_time() - start < 3


def test_anchors_and_empty_cells_of_asciidoc_are_no_text():
    text = "[[a]]one\n- [[[ref]]] two\n|===\n| three |  |four 2+^.>a|five\n|==="
    assert "".join(piece for _, piece in asciidoc.blocks(text)[1]).split("\n")[:4] == [
        *("one", "-  two", "", "three | four | five"),
    ]


def test_long_markup_of_asciidoc_stays_as_text():
    long = "word " * 300
    assert asciidoc.blocks(f"*{long}x* and *bold*")[1] == [(0, f"*{long}x* and bold\n")]


@pytest.mark.parametrize("heading", ["== A == b ==", "== A == b   ==", "== A == b"])
def test_a_heading_of_asciidoc_may_end_with_its_mark(heading):
    assert asciidoc.blocks(heading)[1] == [(2, "A == b")]


def test_restructured_text_opens_no_files(tmp_path):
    secret = put(tmp_path, "secret.txt", "secret")
    for directive in (
        f".. include:: {secret}",
        f".. raw:: html\n   :file: {secret}",
        ".. raw:: html\n\n   <p>secret",
        f".. csv-table:: x\n   :file: {secret}",
        f".. csv-table:: x\n   :url: file://{secret}",
        f".. code:: text\n   :file: {secret}",
        f".. literalinclude:: {secret}",
        f".. figure:: {secret}",
        f".. role:: raw-html(raw)\n   :format: html\n\n:raw-html:`<p>` and :file:`{secret}`",
    ):
        blocks = restructured.blocks(f"text\n\n{directive}\n\n.. |x| replace:: y\n\nbroken `link_ |x|\n\n=\nend")[1]
        assert "secret" not in "".join(text for _, text in blocks if "secret.txt" not in text)
        assert "text" in blocks[0][1]


ASCIIDOC = """= Cats
:toc: left

Intro with *bold*, `code`, https://x.org[a site] and <<big,the others>>.

// a comment
== Small cats
[source,ruby]
----
puts "== purr"
----

////
hidden
////
* one
* two

[[big]]
=== Big cats
|===
|name |sound

|lion |roar
|===
"""


def test_asciidoc():
    parsed = document("d", *_named(asciidoc.blocks(ASCIIDOC)))
    assert parsed.title == "Cats"
    assert outline(parsed) == [
        ("", "Intro with bold, code, a site and the others."),
        ("Small cats", 'puts "== purr"\n\n* one\n* two'),
        ("Small cats/Big cats", "name | sound\n\nlion | roar"),
    ]


def test_asciidoc_with_titles_of_two_lines():
    lines = ["git-x(1)", "========", "", "NAME", "----", "git-x - does x", "", "----", "some", "code", "----", ""]
    parsed = document("d", *_named(asciidoc.blocks("\n".join([*lines, "A part", "~~~~~~", "more"]))))
    assert parsed.title == "git-x(1)"
    assert outline(parsed) == [("NAME", "git-x - does x\n\nsome\ncode"), ("NAME/A part", "more")]


def _named(parsed):
    return parsed[0], "name", parsed[1]


@CONVERTER
def test_documents_that_are_converted(tmp_path, ingested):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(pdf("Cats purr."))
    (folder / "b.docx").write_bytes(docx(("Heading1", "1. Cats"), ("", "purr"), ("Heading2", "1.1. Big"), ("", "roar")))
    (folder / "c.PPTX").write_bytes(pptx(("Cats", "purr\nsleep"), ("Dogs", "bark")))
    contents = "<h1>Contents</h1><ul><li><a href='p1.xhtml'>One</a></li><li><a href='p2.xhtml'>Two</a></li></ul>"
    (folder / "d.epub").write_bytes(epub("Pets", contents, "<h1>Chapter 1. Cats</h1><p>purr</p>", "<h1>Dogs</h1>bark"))
    result = ingested(**fields(folder))
    assert [row[1:] for row in result.passages] == [
        ("a.pdf", "a", "Cats purr."),
        ("b.docx", "Cats", "purr"),
        ("b.docx", "Cats: Big", "roar"),
        ("c.PPTX", "Cats", "purr\nsleep"),
        ("c.PPTX", "Cats: Dogs", "bark"),
        ("d.epub", "Pets: Cats", "purr"),
        ("d.epub", "Pets: Dogs", "bark"),
    ]
    assert result.notices == []


@CONVERTER
@pytest.mark.parametrize("questions", [[], ["titles"]])
def test_documents_that_cannot_be_converted_are_counted_once(tmp_path, ingested, questions):
    for i in range(3):
        put(tmp_path, f"set/{i}.md", f"# What {'abc'[i]} is", "Many words follow here about it.")
    (tmp_path / "set" / "scan.pdf").write_bytes(pdf(""))
    for name in ("junk.pdf", "junk.docx", "junk.pptx", "junk.epub"):
        (tmp_path / "set" / name).write_bytes(b"junk")
    (tmp_path / "set" / "empty.pdf").write_bytes(b"")
    result = ingested(**fields(tmp_path / "set", questions=questions))
    assert {k: v for k, v in result.counts.items() if k.endswith("files") and v} == {
        "files": 3,
        "damaged_files": 4,
        "textless_files": 1,
        "empty_files": 1,
    }
    assert [line.split(";")[0] for line in result.notices] == [
        "files left out, empty: 1 (first: empty.pdf)",
        "files left out, damaged, encrypted, nested too deeply or not of their ending's type: 4 (first: junk.docx, "
        "junk.epub, junk.pptx)",
        "files left out, without text: scans, or pages of links such as tables of contents: 1 (first: scan.pdf)",
    ]
    with pytest.raises(InputError, match=r"scan\.pdf: without text: scans"):
        ingested(**fields(tmp_path / "set" / "scan.pdf"))


@CONVERTER
@pytest.mark.parametrize("ending", ["docx", "pptx", "epub"])
@pytest.mark.parametrize("told", [True, False])
def test_a_document_is_not_unpacked_beyond_the_largest_size(tmp_path, ingested, ending, told):
    size = 3_000_000
    content = zipped({"a": " " * size, "b": "text"}, zipfile.ZIP_DEFLATED)
    if not told:
        content = content.replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))
    put(tmp_path, "set/good.txt", "text")
    path = tmp_path / "set" / f"bomb.{ending}"
    path.write_bytes(content)
    assert len(content) < 10_000
    result = ingested(**fields(tmp_path / "set", max_file_mb=2))
    assert (result.counts["large_files"], result.counts["damaged_files"], len(result.passages)) == (1, 0, 1)
    with pytest.raises(InputError, match=rf"bomb\.{ending}: larger than ingest\.max_file_mb when unpacked; raise it"):
        ingested(**fields(path, max_file_mb=2))
    assert not converted.exceeds(content, size + 4)
    assert converted.exceeds(content, size + 3)
    path.write_bytes(zipped({"a": "text"}, zipfile.ZIP_BZIP2))
    assert ingested(**fields(tmp_path / "set")).counts["damaged_files"] == 1


def test_without_the_extra_a_line_names_it(tmp_path, ingested, monkeypatch):
    monkeypatch.setattr(converted, "find_spec", lambda name: None)
    put(tmp_path, "set/a.txt", "text")
    path = put(tmp_path, "set/b.pdf", "any")
    (notice,) = ingested(**fields(tmp_path / "set")).notices
    assert notice == (
        "files left out, PDF, Word, PowerPoint or EPUB: 1 (first: b.pdf); "
        "install the libraries that read them: pip install 'cocondenser[documents]'"
    )
    with pytest.raises(InputError, match=r"b\.pdf: PDF, Word, PowerPoint or EPUB; install .*documents"):
        ingested(**fields(path))
    path.rename(tmp_path / "b.pdf")
    (tmp_path / "set" / "a.txt").rename(tmp_path / "set" / "b.pdf")
    with pytest.raises(InputError, match=r"no text .* \(1 unconverted\); install"):
        ingested(**fields(tmp_path / "set"))


def test_versions_of_the_libraries_count_where_they_parse(tmp_path, monkeypatch):
    def libraries(path: Path, **changed) -> tuple[str, ...]:
        return ingest.libraries(TypeAdapter(ingest.IngestConfig).validate_python(fields(path, **changed)))

    put(tmp_path, "set/a.txt", "text")
    put(tmp_path, "set/a.jsonl", "{}")
    assert libraries(tmp_path / "set") == ("sentencex",)
    put(tmp_path, "set/b.pdf", "text")
    monkeypatch.setattr(converted, "find_spec", lambda name: None)
    assert libraries(tmp_path / "set") == ("sentencex",)
    monkeypatch.setattr(converted, "find_spec", lambda name: name)
    pdf = ("sentencex", "markitdown", "pdfminer.six", "pdfplumber")
    assert libraries(tmp_path / "set") == pdf
    assert libraries(tmp_path / "set", endings=["txt"]) == ("sentencex",)
    assert libraries(tmp_path / "set" / "b.pdf") == pdf
    put(tmp_path, "set/a.rst.gz", "text")
    assert libraries(tmp_path / "set") == ("sentencex", "docutils", "lxml", *pdf[1:])
    put(tmp_path, "set/c.epub", "text")
    assert {"beautifulsoup4", "defusedxml", "markdown-it-py", "markdownify"} < {*libraries(tmp_path / "set")}


@CONVERTER
def test_libraries_that_parse_are_installed_and_required():
    names = {name for names in LIBRARIES.values() for name in names}
    assert versions.library_versions(names).keys() == names
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["documents"]]
    assert names <= {re.split(r"[\[=><]", line)[0] for line in required}
