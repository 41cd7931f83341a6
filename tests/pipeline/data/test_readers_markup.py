"""Markdown and HTML as headings and text, and the sections built from them."""

import pytest
from markdown_it.parser_inline import ParserInline
from outlines import outline, read_html

from pipeline.data.readers.formats import markdown
from pipeline.data.readers.sections import Document, document, lower_words


def read_markdown(*lines: str) -> Document:
    title, blocks = markdown.blocks("\n".join(lines))
    return document("d", title, "name", blocks)


def text_of(*lines: str) -> str:
    (section,) = read_markdown(*lines).sections
    return section.text


def test_headings_of_both_kinds_nest_below_the_title():
    parsed = read_markdown(
        *("before", "# The *title* of `it`", "intro", "Setext, two", "-----------", "a", "### Three ###", "b"),
        *("## Two again", "c", "", "#not a heading", "", "One again", "=========", "d"),
    )
    assert parsed.title == "The title of it"
    # A paragraph just above the underline belongs to a setext heading.
    assert outline(parsed) == [
        ("", "before"),
        ("intro Setext, two", "a"),
        ("intro Setext, two/Three", "b"),
        ("Two again", "c\n\n#not a heading"),
        ("One again", "d"),
    ]


def test_a_heading_without_text_is_kept_if_it_has_no_subsection():
    parsed = read_markdown("# T", "## Parent", "### Child", "a", "### Empty", "## Last")
    assert outline(parsed) == [("Parent/Child", "a"), ("Parent/Empty", ""), ("Last", "")]
    assert outline(read_markdown("# T")) == [("", "")]
    assert outline(read_markdown("")) == [("", "")]


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        (["# One", "# Two"], "One"),
        (["## One", "### Below"], "One"),
        (["## One", "## Besides"], "name"),
        (["## One", "# Above"], "name"),
        (["no heading"], "name"),
        (["---", "title: 'It''s: this'", "date: 2021-99-99", "---", "# Other"], "It's: this"),
        (["---", "# a comment", "title: >-", "  two", "  lines", "..."], "two lines"),
        (["---", "title: [a, list]", "---", "# H"], "H"),
        (["---", "title: {{ template }", "---", "# H"], "H"),
    ],
)
def test_title(lines, title):
    assert read_markdown(*lines).title == title


def test_front_matter_is_not_text_and_rules_are_not_front_matter():
    assert text_of("---", "tags: [x]", "---", "body") == "body"
    assert text_of("---", "tags: {{ broken", "---", "body") == "body"
    assert text_of("---", "", "Some prose.", "", "---", "body") == "Some prose.\n\nbody"
    assert "tags" in text_of("body", "", "---", "tags: [x]", "", "---")


@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_code_is_kept_unchanged(fence):
    parsed = read_markdown("# T", "## S", f"{fence}sh", "# no heading", "<b> [x](y)", "", "", "  **z**", fence, "after")
    assert outline(parsed) == [("S", "# no heading\n<b> [x](y)\n\n  **z**\n\nafter")]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (r"\# no \*heading\* \[x\](y) &lt;b&gt; &#169;", "# no *heading* [x](y) <b> ©"),
        ("[text *of*](http://x 'T') ![alt](y) <http://z> [a][none]", "text of alt http://z [a][none]"),
        ("[![badge](a)](b) said", "said"),
        ("~~gone~~ `code <b>` **bold _both_**", "gone code <b> bold both"),
        ("one  \ntwo\nthree<br/>four <kbd>k</kbd>", "one\ntwo three\nfour k"),
        ("*open **bold [unclosed](", "*open **bold [unclosed]("),
        ("[x][r]\n\n[r]: http://x", "x"),
        ("- a\n- b\n  1. c\n\nafter", "a\nb\nc\n\nafter"),
        ("> # Quoted\n> text", "Quoted\n\ntext"),
        ("| a\\|b | `c` |\n|--|--|\n| [x](y) | z |\n\nafter", "a|b | c\nx | z\n\nafter"),
        ("<!-- no\n\n# heading\n-->\nshown", "shown"),
        ("<details><summary>S</summary>\n\ninside\n\n</details>", "S\ninside"),
        (99 * "> " + "deep", "deep"),
    ],
)
def test_inline_and_blocks_as_text(line, text):
    assert text_of(line) == text


def test_unclosed_brackets_are_text_and_are_each_parsed_only_a_few_times(monkeypatch):
    positions: list[int] = []
    skip = ParserInline.skipToken

    def counted(self, state):
        positions.append(state.pos)
        skip(self, state)

    monkeypatch.setattr(ParserInline, "skipToken", counted)
    assert text_of(1000 * "[") == 1000 * "["
    assert len(positions) < 20 * 1000
    assert text_of(8 * "![" + "deep" + 8 * "](x)") == "deep"


def test_html_headings_inside_markdown_are_headings():
    parsed = read_markdown(
        '<h1 align="center">', "Head", "</h1>", "", "text", "<h2>Low</h2>", "", "<h2>Two</h2>", "", "x"
    )
    assert parsed.title == "Head"
    assert outline(parsed) == [("", "text"), ("Low", ""), ("Two", "x")]


PAGE = """<!doctype html><html><head><title> A &amp;
 B </title><script>no</script><style>no</style></head>
<body><!-- no --><nav>no</nav><h1>A<a class=headerlink>¶</a></h1>
<p>one<br>two <b>bo</b>ld <script>no</script>caf&eacute; &#x263A; &lt;i&gt;&nbsp;x
<ul><li>a<ul><li>b</ul><li>c</ul>after
<table><tr><th>h<td>1<tr><td><p>p</p><td>2</table>
<h2>Two <em>words</em></h2><pre>
  x

  y
</pre><p hidden>no</p><p style="display: none">no</p><span aria-hidden="true">no</span>end
<h3><div>Three</div></h3></body></html>"""


def test_visible_text_of_a_page():
    parsed = read_html(PAGE)
    assert parsed.title == "A & B"
    first, second, third = outline(parsed)
    assert first[0] == ""
    assert first[1].splitlines()[:2] == ["one", "two bold café ☺ <i> x"]
    assert "\na\nb\nc\n\nafter\n\nh | 1\n" in first[1]
    assert second == ("Two words", "x\n\n  y\n\nend")
    assert third == ("Two words/Three", "")
    assert "no" not in first[1].split()


def test_only_the_main_element_is_read_if_it_has_text():
    page = "<title>T</title><h1>Site</h1><aside>x</aside><main>{}</main><footer>y</footer>"
    assert outline(read_html(page.format("<h1>Page</h1>text"))) == [("Page", "text")]
    assert "Site" in read_html(page.format(" ")).headings
    assert outline(read_html(page.replace("main", "div").replace("<div", "<div role=main").format("z"))) == [("", "z")]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>a<b>b<p>c</i>d", [("", "ab\n\ncd")]),
        ("<h2>unclosed <p>para", [("", "para")]),
        ("no tags &lt;x> & y", [("", "no tags <x> & y")]),
        ("</div>", [("", "")]),
        ("<div", [("", "")]),
        ("<!-- only", [("", "")]),
        ("<h1></h1><h2> </h2><h3><img></h3>x", [("", "x")]),
        ("<div>" * 1000 + "deep" + "</div>" * 1000, [("", "deep")]),
        ("<?xml version='1.0' encoding='latin-1'?><meta charset=latin-1><p>é", [("", "é")]),
        ("<main><h2>a</h2></span></main></main>x", [("", "")]),
    ],
)
def test_broken_pages_are_read(page, expected):
    assert outline(read_html(page)) == expected


@pytest.mark.parametrize(
    "declarations",
    [
        '[<!ENTITY x SYSTEM "http://x.org/a]>b">]',
        """SYSTEM "x.dtd" [ <!-- it's ]> --> <!ENTITY nbsp "&#160;"> <!ATTLIST p a CDATA #IMPLIED> %x; ] """,
        "[]",
    ],
)
def test_declarations_within_the_document_type_are_no_text(declarations):
    start = f"<?xml version='1.0'?>\n<!-- a --><!DOCTYPE html {declarations}>"
    parsed = read_html(f"{start}<html><head><title>T</title></head><body><p>a [b] c</body></html>")
    assert (parsed.title, outline(parsed)) == ("T", [("", "a [b] c")])


def test_a_row_of_a_table_is_one_line_if_its_cells_are():
    rows = "<tr><th><p>a</p><th><div>b</div><tr><td>1<td><p>2</p>"
    assert outline(read_html(f"<table>{rows}</table>")) == [("", "a | b\n1 | 2")]
    long = "<tr><td><p>one</p><p>two</p><td><ul><li>x<li>y</ul>"
    assert outline(read_html(f"<table>{long}</table>")) == [("", "one\n\ntwo\n\nx\ny")]


def test_a_list_of_links_in_markdown_is_no_text():
    contents = ("## Contents", "", "- [One](#one)", "  - [Two](#two)", "- [Three](x.md)", "")
    parsed = read_markdown("# Head", "", "intro", "", *contents, "## One", "", "text", "", "- [a](x) does b and c")
    assert outline(parsed) == [("", "intro"), ("One", "text\n\na does b and c")]
    parsed = read_markdown("# Head", "", "See", "", "1. [One](#one)", "2. [Two](#two)", "", "after")
    assert outline(parsed) == [("", "See\n\nafter")]


def test_words_consist_of_letters():
    assert lower_words("1.2 What’s NEW in `v2`?") == "what’s new in v"
    assert lower_words("Version 1.2 (2021)") == lower_words("version 3")
    assert lower_words("'Quoted' cats' -- don't") == "quoted cats don't"
    # Vowel signs and combining accents are not letters, but belong to words.
    assert lower_words("१. बिल्लियों की देखभाल") == "बिल्लियों की देखभाल"
    assert lower_words("⚙\ufe0f Getting started ☺\ufe0f") == "getting started"
    assert lower_words("un cafe\u0301 noir") == "un cafe\u0301 noir"
