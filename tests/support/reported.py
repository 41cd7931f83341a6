"""The report of the tests: its request, its steps, and its page in parts."""

from html.parser import HTMLParser
from pathlib import Path

from machines import make_machine

from pipeline.report.build import ReportConfig
from pipeline.runtime.lineage import Step
from pipeline.runtime.work import Work, silent

CONFIG = ReportConfig(
    title="A <recipe>",
    published=[],
    examples=5,
    changes=1,
    answers=2,
    seed=0,
)
WHOLE = {
    "configuration": {"title": "A <recipe>", "bm25": {"k1": 1.5, "note": "</pre><script>y</script>"}},
    "command": ["cocondenser", "run", "tiny", "--set", "title=<script>"],
}
"""What the page shows of the whole recipe."""
OLDER, NEWER = {"python": "3.11.2"}, {"python": "3.12.1"}
NOTICES = ("files left out: 2 (first: <a>.md, b.md); save them as UTF-8", "passages dropped: 1")
LINEAGE = [
    Step("ingest", "ingest", "c0" * 32, "5a" * 32, False, 13.04, 0, OLDER, "2026-01-01T10:00:00+00:00", NOTICES),
    Step("stage2", "finetune", "a1" * 32, "5b" * 32, True, 5400.0, 2, NEWER, "2026-01-03T10:00:00+00:00"),
    Step("old", "mine", "a2" * 32, "5c" * 32, False, 60.0, None, {}, "2026-01-02T10:00:00+00:00"),
    Step("gone", "", "a3" * 32, "", False, None, None, {}, ""),
]
MACHINE = make_machine()


def work(out: Path) -> Work:
    out.mkdir()
    return Work(out, out.parent, MACHINE, silent)


def elements(page: str) -> list[str]:
    """Names of the page's elements, in order."""
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append(tag)  # type: ignore[method-assign]
    parser.feed(page)
    return found
