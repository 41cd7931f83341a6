"""Pages are read without navigation, tables of contents and indexes."""

import pytest
from outlines import outline, read_html
from own_texts import REST, fields
from writing import put

from pipeline.errors import InputError

PROSE = f"<p>{REST} {REST} {REST} {REST} It has <a href=x>a link</a> and <a href=y>another one</a>.</p>"
LINKS = "<a href=a.html>First page</a> | <a href=b.html>Second page</a>"
DOCBOOK = f"""<html><head><title>43.6. Control Structures</title></head><body id="docContent">
<div class="navheader"><table><tr><th>43.6. Control Structures</th></tr><tr><td><a href="a">Prev</a></td>
<td><a href="b">Up</a></td><th>Chapter 43. PL/pgSQL</th><td><a href="c">Next</a></td></tr></table><hr></div>
<div class="sect1"><div class="titlepage"><h2 class="title">43.6.&nbsp;Control Structures</h2></div>
<div class="toc"><dl class="toc"><dt><a href="#x">43.6.1. Simple CASE</a></dt><dt><a href="#y">43.6.2. Loops</a></dt>
</dl></div>{PROSE}<div class="sect2"><h3>43.6.1.&nbsp;Simple CASE</h3><p>Case text.</p><pre>IF x
  THEN y</pre></div><div class="refsect1"><h2>See Also</h2>{LINKS}</div></div>
<div class="navfooter"><hr><p><a href="a">Prev</a></p><p>43.5. Basic Statements</p></div></body></html>"""


def words(page: str) -> str:
    return " ".join(" ".join(text.split()) for _, text in outline(read_html(page)))


def test_a_page_of_a_book():
    parsed = read_html(DOCBOOK)
    assert parsed.title == "Control Structures"
    text = f"{REST} {REST} {REST} {REST} It has a link and another one."
    assert outline(parsed) == [("", text), ("Simple CASE", "Case text.\n\nIF x\n  THEN y")]


@pytest.mark.parametrize(
    "navigation",
    [
        f"<nav>{LINKS} text</nav>",
        f"<div role=navigation>{LINKS} text</div>",
        f"<div role='contentinfo'>{LINKS} text of a publisher</div>",
        "<div class='site-footer'>Made by somebody</div>",
        "<div id=breadcrumbs>Home &gt; Manual</div>",
        "<ul class='docnav top'><li><a href=a>Prev</a><li>The Handbook</ul>",
        f"<p class=menu>{LINKS}</p>",
        f"<div>{LINKS}</div>",
        f"<h2>See also</h2><div><h2>Links</h2>{LINKS}</div>".replace("<h2>See also</h2>", ""),
        "<ol><li><a href=#a>One</a><ul><li><a href=#b>Two</a></ul></ol>",
        "<table><tr><td><a href=a>Prev</a><td><a href=b>Up</a><td><a href=c>Next</a></table>",
        "<div class=up><a href=..>Back to the start</a></div>",
        "<div class=index><dl><dt>ABORT, <a href=a>ABORT</a><dt>aggregate, <a href=b>Functions</a></dl></div>",
    ],
)
def test_navigation_is_no_text(navigation):
    assert words(f"<body>{navigation}{PROSE}{navigation}</body>") == words(PROSE)


@pytest.mark.parametrize(
    "content",
    [
        f"<div class='sidebar'>{PROSE}</div>",
        f"<div id=index><h1>Index of refraction</h1>{PROSE}{PROSE}</div>",
        "<p>See <a href=x>the other page</a>.</p>",
        "<ul><li><a href=a>sort</a> sorts the lines<li><a href=b>uniq</a> drops repeated lines</ul>",
        "<div><pre><a href=a>print</a>(<a href=b>value</a>)</pre></div>",
        "<table><tr><td><a href=a>int</a><td>a whole number<tr><td><a href=b>str</a><td>a piece of text</table>",
        "<div><a name=x>Anchors</a> <a name=y>are text</a></div>",
    ],
)
def test_text_with_links_is_text(content):
    plain = content.replace("<a ", "<b ").replace("</a>", "</b>").replace("class=", "x=").replace("id=", "x=")
    assert words(content) == words(plain) != ""


def test_a_page_of_links_is_left_out_and_counted(tmp_path, ingested):
    put(tmp_path, "set/page.html", f"<title>Page</title>{PROSE}")
    put(tmp_path, "set/index.html", f"<title>Contents</title><h1>Contents</h1><div>{LINKS}</div>")
    result = ingested(**fields(tmp_path / "set"))
    assert [row[0] for row in result.passages] == ["page.html#0"]
    assert (result.counts["files"], result.counts["textless_files"]) == (1, 1)
    (notice,) = result.notices
    assert notice.startswith("files left out, without text: scans, or pages of links")
    assert "(first: index.html)" in notice
    with pytest.raises(InputError, match=r"index.html: without text"):
        ingested(**fields(tmp_path / "set" / "index.html"))
