"""The report's page: complete, escaped, self-contained, the same bytes for the same inputs."""

import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from others import OTHERS, WORSE
from reported import CONFIG, LINEAGE, WHOLE, elements, work

from pipeline.bm25.settings import write_settings
from pipeline.data.collection import schemas
from pipeline.evaluate.shallow import shallow
from pipeline.report.build import report
from pipeline.report.lineage import build_summary, duration, hours


def test_text_of_the_collection_is_escaped(page):
    assert "script" not in elements(page)
    unmarked = re.sub("</?mark>", "", page)
    assert unmarked.count("&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; &amp; &lt;b&gt;more") >= 6
    assert "A &lt;recipe&gt;" in page
    assert "&lt;/pre&gt;" in page


def test_words_of_the_question_are_marked_by_the_language_of_the_first_stage(inputs, tmp_path):
    passages = pq.read_table(inputs["collection"] / "passages.parquet").to_pylist()
    queries = pq.read_table(inputs["collection"] / "queries.parquet").to_pylist()
    collection = shutil.copytree(inputs["collection"], tmp_path / "collection")
    for rows, name, text in ((passages, "passages", "Das Haus, questions"), (queries, "queries", "Welche Häuser")):
        table = pa.Table.from_pylist([{**row, "text": text} for row in rows], schema=schemas()[name])
        pq.write_table(table, collection / f"{name}.parquet")
    for language, marked in (("de", "Das <mark>Haus</mark>, questions"), (None, "Das Haus, questions")):
        bm25 = tmp_path / f"bm25-{language}"
        bm25.mkdir()
        write_settings(bm25, {"scores": "bm25", "language": language, "stemmer": "porter", "split_identifiers": False})
        out = tmp_path / f"out-{language}"
        report(CONFIG, **{**inputs, "collection": collection, "bm25": bm25}, **WHOLE, work=work(out))
        assert marked in (out / "report.html").read_text()


def test_the_page_is_self_contained(page):
    assert "link" not in elements(page)
    assert "img" not in elements(page)
    assert not re.search(r"""(src|href)=["']?(?!#)[a-z/]|@import|url\((?!#)""", page)


def test_the_page_shows_figures_pictures_counts_and_lineage(page, inputs):
    metrics = json.loads((inputs["evaluate"] / "metrics.json").read_text())
    for system in metrics["splits"]["test"]["systems"].values():
        mean = f"{system['RR@10']['mean']:.3f}".removeprefix("0")
        assert mean in page
    assert elements(page).count("svg") == 3 + 1 + 2  # three measures, the questions, two trainings
    for part in ("BM25 + stage 2", "head MLM", "contrastive", "12,345", "4 layers of 128", "c0" * 32, "a1" * 32):
        assert part in page
    assert "one encoder for questions and one for passages" in page
    assert "passages empty" not in page  # zero
    assert "untied" not in page  # a folder name that is no digest would show a local path


@pytest.mark.parametrize("cut", [5, 20, 200])
def test_measures_deeper_than_the_lists_are_named_on_the_page(cut, inputs, tmp_path):
    folder = tmp_path / "evaluate"
    shutil.copytree(inputs["evaluate"], folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["splits"]["test"]["cut_at"] = {"bm25": cut}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    report(CONFIG, **{**inputs, "evaluate": folder}, lineage=LINEAGE, **WHOLE, work=work(tmp_path / "out"))
    section = (tmp_path / "out" / "report.html").read_text().split('<section id="measures">')[1].split("</section>")[0]
    measures = next(iter(metrics["splits"]["test"]["systems"].values()))
    assert f"BM25: {shallow(cut, measures)}." in section


@pytest.mark.parametrize("reranked", [0.0, 1.0])
def test_a_cross_encoder_below_the_retriever_on_dev_is_a_notice(reranked, inputs, tmp_path):
    folder = tmp_path / "evaluate"
    shutil.copytree(inputs["evaluate"], folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    rows = metrics["splits"]["test"]["systems"]
    dense = rows[metrics["dense"]]

    def measured(mean: float) -> dict:
        return {**dense, "RR@10": {"mean": mean, "low": mean, "high": mean}}

    dev = {metrics["dense"]: measured(0.5), "rerank": measured(reranked)}
    metrics["labels"]["rerank"] = "reranked"
    metrics["splits"]["dev"] = {**metrics["splits"]["test"], "systems": {**rows, **dev}}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    report(CONFIG, **{**inputs, "evaluate": folder}, lineage=LINEAGE, **WHOLE, work=work(tmp_path / "out"))
    line = "the cross-encoder is below the retriever on dev: MRR@10 0.000 reranked, 0.500 without"
    assert (line in (tmp_path / "out" / "report.html").read_text()) == (reranked == 0)


def test_answers_show_which_passages_are_relevant(page):
    random = page.split("Picked at random")[1]
    assert random.count('class="tick"') == 3  # BM25: p0 and p1; stage 2: only p1, because p0 is third
    assert "first relevant at rank 3" in random


def test_colours_come_from_the_page(page):
    svg = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) == set()
    assert "var(--stage2)" in svg
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_equal_inputs_give_equal_bytes(inputs, page, tmp_path):
    import matplotlib

    matplotlib.rcParams["lines.linewidth"] = 9  # a user's own settings have no effect
    report(CONFIG, **inputs, lineage=LINEAGE, **WHOLE, work=work(tmp_path / "out"))
    assert matplotlib.rcParams["lines.linewidth"] == 9
    matplotlib.rcdefaults()
    assert (tmp_path / "out" / "report.html").read_text() == page


def test_a_page_without_trainings_and_examples_lacks_their_sections(inputs, tmp_path):
    bare = {**inputs, "cocondenser": None, "stage2": None}
    config = CONFIG.model_copy(update={"examples": 0, "changes": 0})
    assert report(config, **bare, configuration={}, command=[], work=work(tmp_path / "out"))["examples"] == 0
    text = (tmp_path / "out" / "report.html").read_text()
    assert "<h2>Training</h2>" not in text
    assert "<h2>Questions</h2>" not in text
    assert "<h2>Reproduce</h2>" not in text
    assert "<h2>Results</h2>" in text


def test_a_page_without_questions_says_so_and_keeps_its_other_sections(inputs, tmp_path):
    evaluation = tmp_path / "evaluate"
    evaluation.mkdir()
    metrics = json.loads((inputs["evaluate"] / "metrics.json").read_text())
    (evaluation / "metrics.json").write_text(json.dumps({**metrics, "splits": {}, "winner_on_dev": None}))
    figures = report(
        CONFIG, **{**inputs, "evaluate": evaluation}, lineage=LINEAGE, **WHOLE, work=work(tmp_path / "out")
    )
    assert (figures["examples"], figures["pictures"]) == (0, 2)  # of the trainings
    text = (tmp_path / "out" / "report.html").read_text()
    assert "Nothing is measured: the collection has no dev or test question" in text
    assert "BM25 + stage 2 adds" in text
    assert "Mean [95 % interval]" not in text
    assert 'href="#measures"' not in text
    for name, shown in {
        "Results": True,
        "Training": True,
        "Collection and models": True,
        "All measures": False,
    }.items():
        assert (f"<h2>{name}</h2>" in text) == shown


def test_questions_that_changed_most_are_listed(page):
    """BM25 has p0 first and stage 2 has it at rank 3: test0 lost. test1 kept its rank 2."""
    assert "Gained most" not in page
    lost = page.split("Lost most")[1].split("Picked at random")[0]
    assert re.findall(r"question (test\d)", lost) == ["test0"]
    assert "first relevant at rank 1" in lost
    assert "first relevant at rank 3" in lost
    assert "1 worse" in page
    assert "1 alike" in page


def test_the_lineage_shows_steps_with_their_times(page):
    for part in ("ingest", "13 s", "1 h 30 min", "3.00", "5a5a5a5a5a5a", "a3" * 32, "3.11.2, 3.12.1"):
        assert part in page
    assert "5b5b5b5b5b5b</code> *" in page
    assert "2026-01-01 to 2026-01-03" in page
    assert "without 1 step whose GPUs were not recorded" in page
    assert "Of 1 step no record is left." in page
    assert "cocondenser run tiny --set &#39;title=&lt;script&gt;&#39;" in page
    summary = build_summary(LINEAGE)
    assert (summary["time"], summary["gpu_hours"], summary["unknown"], summary["kept"]) == ("1 h 31 min", "3.00", 1, 1)


def test_notices_are_listed_by_node(page):
    listed = page[page.index('<section id="notices">') : page.index('<section id="reproduce">')]
    assert listed.count("<dt>ingest</dt>") == 2
    assert "files left out: 2 (first: &lt;a&gt;.md, b.md); save them as UTF-8" in listed
    assert "passages dropped: 1" in listed


def test_a_page_without_notices_lacks_their_section(inputs, tmp_path):
    report(CONFIG, **inputs, lineage=LINEAGE[1:], **WHOLE, work=work(tmp_path / "out"))
    assert "#notices" not in (tmp_path / "out" / "report.html").read_text()


def test_times_are_shown_in_readable_units():
    assert [duration(s) for s in (0.04, 9.96, 59.4, 59.6, 3599.6, 100_000)] == [
        *("0.0 s", "10 s", "59 s", "1 min 00 s", "1 h 00 min", "27 h 47 min")
    ]
    assert [hours(s) for s in (0, 10, 900, 360_000)] == ["0", "< 0.01", "0.25", "100.0"]


def test_trained_dimensions_have_a_section(inputs, page, tmp_path):
    assert 'id="dimensions"' not in page
    figures = {"nDCG@10": {"mean": 0.064, "low": 0.05, "high": 0.08}, "R@100": {"mean": 0.5, "low": 0.4, "high": 0.6}}
    rows = [{"dimension": n, **figures, "bytes": 4 * n, "questions_per_second": None} for n in (384, 64)]
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "dimensions.json").write_text(json.dumps({"split": "dev", "questions": 9, "rows": rows}))
    report(CONFIG, **inputs, dimensions=tmp_path / "measured", lineage=LINEAGE, **WHOLE, work=work(tmp_path / "out"))
    section = (tmp_path / "out" / "report.html").read_text().split('<section id="dimensions">')[1]
    for name in ("dimensions, 9 questions of dev", "nDCG@10", "R@100", "bytes per passage", "questions/s"):
        assert f"<th>{name}</th>" in section
    assert '<th scope="row">64</th><td>.064 [.050, .080]</td><td>.500 [.400, .600]</td><td>256</td><td></td>' in section


def test_other_collections_have_a_section(inputs, page, tmp_path):
    assert "Other collections" not in page
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "others.json").write_text(json.dumps(OTHERS))
    given = {**inputs, "others": tmp_path / "others"}
    report(CONFIG, **given, lineage=LINEAGE, **WHOLE, work=work(tmp_path / "out"))
    text = (tmp_path / "out" / "report.html").read_text()
    section = text.split('<section id="others">')[1].split("</section>")[0]
    assert f"<p>{WORSE}</p>" in section
    assert '<th scope="row">nfcorpus</th><td>1,234 test</td><td>.300</td><td>.281</td><td>−.019 [' in section
    assert '<th scope="row">&lt;adi&gt;</th>' in section
    assert section.count('class="unsure"') == 5  # only the differences of the second row
    assert '<a href="#others">' in text
