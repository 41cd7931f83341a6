"""The report: complete, escaped, self-contained, the same bytes for the same inputs."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from machines import make_machine

from pipeline import runs
from pipeline.collection import schemas, write_table
from pipeline.evaluate import EvaluateConfig, evaluate
from pipeline.report.build import ReportConfig, difference_rows, report
from pipeline.tables import TABLE
from pipeline.work import Work, silent

SCRIPT = '<script>alert("x")</script> & <b>more</b>'
CONFIG = ReportConfig(
    title="A <recipe>",
    examples=5,
    answers=2,
    seed=0,
    configuration={"title": "A <recipe>", "bm25": {"k1": 1.5, "note": "</pre><script>y</script>"}},
)
EVALUATE = EvaluateConfig(
    relevance=1,
    systems={},
    fusions=[],
    fusion_methods=["reciprocal_rank"],
    fusion_weights=[0.75],
    reciprocal_k=60,
    bootstrap_samples=100,
    test="randomisation",
    permutations=200,
    neighbours=[1, 2],
    seed=0,
    answers=2,
)
MACHINE = make_machine()


def work(out: Path) -> Work:
    out.mkdir()
    return Work(out, out.parent, MACHINE, silent)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> dict[str, Path | None]:
    """A collection with a script in its texts, BM25's and stage 2's runs evaluated, two trainings."""
    tmp_path = tmp_path_factory.mktemp("report")
    collection = tmp_path / ("c0" * 32)
    collection.mkdir()
    tables = schemas()
    passages = [(f"p{n}", f"p{n}", SCRIPT if n == 0 else f"title {n}", f"{SCRIPT} number {n}") for n in range(4)]
    write_table(collection / "passages.parquet", tables["passages"], passages)
    queries = [(f"{split}{n}", split, f"{SCRIPT} question {split}{n}", []) for split in ("dev", "test") for n in (0, 1)]
    write_table(collection / "queries.parquet", tables["queries"], queries)
    judged = [(split, f"{split}{n}", f"p{n}", 1) for split in ("dev", "test") for n in (0, 1)]
    write_table(collection / "qrels.parquet", tables["qrels"], judged)
    (collection / "ingest.json").write_text(json.dumps({"passages": 12345, "passages_empty": 0}))
    folders = {}
    for name, best_first in (("bm25", ["p0", "p1"]), ("stage2", ["p3", "p1", "p0"])):
        folders[name] = tmp_path / name
        folders[name].mkdir()
        with runs.writer(folders[name]) as write:
            for split in ("dev", "test"):
                for n in (0, 1):
                    scores = np.arange(len(best_first), 0, -1.0)
                    write(split, [f"{split}{n}"] * len(best_first), best_first, scores)
    (folders["bm25"] / "bm25.json").write_text('{"scores": "bm25"}')
    metrics = tmp_path / "metrics"
    evaluate(EVALUATE, collection, folders["bm25"], work(metrics), stage2=folders["stage2"])
    steps = np.arange(1, 601)
    cocondenser, stage2 = tmp_path / ("a1" * 32), tmp_path / "untied"
    cocondenser.mkdir()
    (stage2 / "query").mkdir(parents=True)
    shape = {"model_type": "bert", "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 4}
    losses = {"head_mlm": 9 / steps, "late_mlm": 8 / steps, "contrastive": 5 / steps, "skipped": steps == 7}
    pq.write_table(pa.table({"step": steps, **losses}), cocondenser / "history.parquet")
    pq.write_table(pa.table({"step": steps, "loss": 4 / steps}), stage2 / "query" / "history.parquet")
    for folder in (cocondenser, stage2 / "query"):
        (folder / "config.json").write_text(json.dumps(shape | {"vocab_size": 8000}))
    trained = {"condenser": None, "cocondenser": cocondenser, "stage1": None, "stage2": stage2}
    return {"collection": collection, "evaluate": metrics, **trained}


@pytest.fixture(scope="module")
def page(inputs, tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("page") / "out"
    figures = report(CONFIG, **inputs, work=work(out))
    assert figures["examples"] == 2  # all there are
    return (out / "report.html").read_text()


def elements(page: str) -> list[str]:
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append(tag)  # type: ignore[method-assign]
    parser.feed(page)
    return found


def test_text_of_the_collection_is_escaped(page):
    assert "script" not in elements(page)
    assert page.count("&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt; &amp; &lt;b&gt;more") >= 6
    assert "A &lt;recipe&gt;" in page
    assert "&lt;/pre&gt;" in page


def test_it_needs_nothing_else(page):
    assert "link" not in elements(page)
    assert "img" not in elements(page)
    assert not re.search(r"""(src|href)=["']?(?!#)[a-z/]|@import|url\((?!#)""", page)


def test_it_shows_figures_pictures_counts_and_lineage(page, inputs):
    metrics = json.loads((inputs["evaluate"] / "metrics.json").read_text())
    for system in metrics["splits"]["test"]["systems"].values():
        mean = f"{system['RR@10']['mean']:.3f}".removeprefix("0")
        assert mean in page
    assert elements(page).count("svg") == 3 + 2  # three measures, two trainings
    for part in ("BM25 + stage 2", "head MLM", "contrastive", "12,345", "4 layers of 128", "c0" * 32, "a1" * 32):
        assert part in page
    assert "one encoder for questions and one for passages" in page
    assert "passages empty" not in page  # zero
    assert "untied" not in page  # a folder's name that is no digest says where it lies


def test_answers_show_what_is_relevant(page):
    assert page.count('class="tick"') == 3  # BM25: p0 and p1; stage 2: p1 alone, p0 is third
    assert "first relevant at rank 3" in page


def test_colours_come_from_the_page(page):
    svg = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) == set()
    assert "var(--stage2)" in svg
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_equal_inputs_give_equal_bytes(inputs, page, tmp_path):
    import matplotlib

    matplotlib.rcParams["lines.linewidth"] = 9  # a user's own settings do not show
    report(CONFIG, **inputs, work=work(tmp_path / "out"))
    assert matplotlib.rcParams["lines.linewidth"] == 9
    matplotlib.rcdefaults()
    assert (tmp_path / "out" / "report.html").read_text() == page


def test_later_rounds_and_reranking_have_their_rows_and_points(inputs, tmp_path):
    bm25, stage2 = (inputs["evaluate"].parent / name for name in ("bm25", "stage2"))
    later = {"stage2": stage2, "stage2-2": bm25, "rerank": stage2}
    evaluate(EVALUATE, inputs["collection"], bm25, work(tmp_path / "metrics"), **later)
    report(CONFIG, inputs["collection"], tmp_path / "metrics", work=work(tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    for system, label in (("stage2", "stage 2, round 2"), ("rerank", "reranked")):
        assert f'var(--{system})"></i>{label}</th>' in page
    assert len(set(re.findall(r"(?<!-)--rerank: [^;]+", page))) == 2  # on light and on dark
    ladder = next(svg for svg in page.split("<figure>")[1:] if "MRR@10" in svg)
    assert "stage 2, round 2" in ladder
    assert "var(--rerank)" in ladder


def test_a_ready_model_has_its_row_and_point(inputs, tmp_path):
    bm25, found = (inputs["evaluate"].parent / name for name in ("bm25", "stage2"))
    evaluate(EVALUATE, inputs["collection"], bm25, work(tmp_path / "metrics"), model=found)
    metrics = json.loads((tmp_path / "metrics" / "metrics.json").read_text())
    assert (metrics["dense"], metrics["labels"]["fusion"]) == ("model", "BM25 + ready model")
    model = inputs["cocondenser"]
    report(CONFIG, inputs["collection"], tmp_path / "metrics", work=work(tmp_path / "out"), model=model)
    page = (tmp_path / "out" / "report.html").read_text()
    assert 'var(--stage2)"></i>ready model</th>' in page
    assert "var(--model)" not in page


@pytest.mark.parametrize("judged", [True, False])
def test_questions_with_answers_have_a_table_of_hits(inputs, tmp_path, judged):
    """Beside the judged measures, or in their place."""
    collection = tmp_path / "collection"
    shutil.copytree(inputs["collection"], collection)
    asked = [(f"test{n}", "test", f"question {n}", ["number 3"]) for n in (0, 1)]
    write_table(collection / "queries.parquet", schemas()["queries"], asked)
    if not judged:
        write_table(collection / "qrels.parquet", schemas()["qrels"], [])
    bm25, stage2 = (inputs["evaluate"].parent / name for name in ("bm25", "stage2"))
    evaluate(EVALUATE, collection, bm25, work(tmp_path / "metrics"), stage2=stage2)
    report(CONFIG, collection, tmp_path / "metrics", work=work(tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<th>hits@20</th>" in page
    assert ("<th>MRR@10</th>" in page) is judged
    assert page.count('class="tick"') == (3 if judged else 2)  # stage 2 finds p3 first, twice
    if not judged:
        assert "hits@20 on 2 test questions" in page
        assert "an answer in the first 5" in page
        assert "no answer in the first 100" in page
        assert "None" not in page


def test_the_entropy_of_attention_is_a_picture_of_the_trainings(inputs, page, tmp_path):
    attention = tmp_path / ("e1" * 32)
    attention.mkdir()
    columns = {"model": ["pretrained", "stage2"], "layer": [1, 1], "entropy": [3.0, 2.0]}
    pq.write_table(pa.table(columns), attention / "attention.parquet")
    report(CONFIG, **inputs, attention=attention, work=work(tmp_path / "out"))
    shown = (tmp_path / "out" / "report.html").read_text()
    assert elements(shown).count("svg") == elements(page).count("svg") + 1
    for part in ("Entropy of [CLS]'s attention", "entropy (nats)", "pre-trained", "e1" * 32):
        assert part in shown
        assert part not in page


def test_without_trainings_and_examples(inputs, tmp_path):
    bare = {**inputs, "cocondenser": None, "stage2": None}
    config = CONFIG.model_copy(update={"examples": 0, "configuration": {}})
    assert report(config, **bare, work=work(tmp_path / "out"))["examples"] == 0
    text = (tmp_path / "out" / "report.html").read_text()
    assert "<h2>Training</h2>" not in text
    assert "<h2>Examples</h2>" not in text
    assert "<h2>Results</h2>" in text


def test_a_differences_sign(page):
    figures = {"mean": 0.012, "low": -0.001, "high": 0.025}
    loss = {name: -value for name, value in figures.items()}
    found = {"differences": {"b - a": dict.fromkeys(TABLE, figures), "a - b": dict.fromkeys(TABLE, loss)}}
    gain, fall = difference_rows({"labels": {"a": "A", "b": "B"}}, found)
    assert gain["cells"][0] == {"sure": False, "mean": "+.012", "interval": "[−.001, .025]"}
    assert (fall["label"], fall["cells"][0]["mean"]) == ("A − B", "−.012")
    assert "+−" not in page


def test_rounds_and_other_systems_have_a_colour():
    from pipeline.report.figures import colour_of, ladder

    names = ["bm25", "stage2", "stage2-2", "rerank", "GAR-2", "stage2 + GAR-2", "fusion"]
    assert [*map(colour_of, names)] == ["bm25", "stage2", "stage2", "rerank", "quiet", "quiet", "fusion"]
    picture = ladder({name: {"mean": 0.5, "low": 0.4, "high": 0.6} for name in names}, {n: n for n in names}, "MRR@10")
    assert "stage2 + GAR-2" in picture
    assert "var(--quiet)" in picture
