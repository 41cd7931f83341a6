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
from pipeline.measures import MEASURES
from pipeline.report.build import ReportConfig, report
from pipeline.report.lineage import Step, duration, hours, summary
from pipeline.report.published import Published
from pipeline.report.results import difference_rows, parts, verdict
from pipeline.work import Work, silent

SCRIPT = '<script>alert("x")</script> & <b>more</b>'
CONFIG = ReportConfig(
    title="A <recipe>",
    published=[],
    examples=5,
    changes=1,
    answers=2,
    seed=0,
    configuration={"title": "A <recipe>", "bm25": {"k1": 1.5, "note": "</pre><script>y</script>"}},
    command=["cocondenser", "run", "tiny", "--set", "title=<script>"],
)
OLDER, NEWER = {"python": "3.11.2"}, {"python": "3.12.1"}
LINEAGE = [
    Step("ingest", "ingest", "c0" * 32, "5a" * 32, False, 13.04, 0, OLDER, "2026-01-01T10:00:00+00:00"),
    Step("stage2", "finetune", "a1" * 32, "5b" * 32, True, 5400.0, 2, NEWER, "2026-01-03T10:00:00+00:00"),
    Step("old", "mine", "a2" * 32, "5c" * 32, False, 60.0, None, {}, "2026-01-02T10:00:00+00:00"),
    Step("gone", "", "a3" * 32, "", False, None, None, {}, ""),
]
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
    figures = report(CONFIG, **inputs, lineage=LINEAGE, work=work(out))
    assert figures["examples"] == 2  # all there are
    assert figures["pictures"] == len(list((out / "pictures").glob("*.png"))) == 6
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
    assert elements(page).count("svg") == 3 + 1 + 2  # three measures, the questions, two trainings
    for part in ("BM25 + stage 2", "head MLM", "contrastive", "12,345", "4 layers of 128", "c0" * 32, "a1" * 32):
        assert part in page
    assert "one encoder for questions and one for passages" in page
    assert "passages empty" not in page  # zero
    assert "untied" not in page  # a folder's name that is no digest says where it lies


def test_answers_show_what_is_relevant(page):
    random = page.split("Picked at random")[1]
    assert random.count('class="tick"') == 3  # BM25: p0 and p1; stage 2: p1 alone, p0 is third
    assert "first relevant at rank 3" in random


def test_colours_come_from_the_page(page):
    svg = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", svg)) == set()
    assert "var(--stage2)" in svg
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_equal_inputs_give_equal_bytes(inputs, page, tmp_path):
    import matplotlib

    matplotlib.rcParams["lines.linewidth"] = 9  # a user's own settings do not show
    report(CONFIG, **inputs, lineage=LINEAGE, work=work(tmp_path / "out"))
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
    random = page.split("Picked at random")[1]
    assert random.count('class="tick"') == (3 if judged else 2)  # stage 2 finds p3 first, twice
    if not judged:
        assert "hits@20 on 2 test questions" in page
        assert "an answer in the first 5" in page
        assert "no answer in the first 100" in page
        assert "None" not in page


def test_the_entropy_of_attention_is_a_picture_of_the_analyses(inputs, page, tmp_path):
    attention = tmp_path / ("e1" * 32)
    attention.mkdir()
    columns = {"model": ["pretrained", "stage2"], "layer": [1, 1], "entropy": [3.0, 2.0]}
    pq.write_table(pa.table(columns), attention / "attention.parquet")
    report(CONFIG, **inputs, attention=attention, work=work(tmp_path / "out"))
    shown = (tmp_path / "out" / "report.html").read_text()
    assert elements(shown).count("svg") == elements(page).count("svg") + 1
    assert (tmp_path / "out" / "pictures" / "attention.png").is_file()
    for part in ("Entropy of [CLS]'s attention", "entropy (nats)", "pre-trained"):
        assert part in shown.split('<section id="analyses">')[1].split("</section>")[0]
        assert part not in page


def test_without_trainings_and_examples(inputs, tmp_path):
    bare = {**inputs, "cocondenser": None, "stage2": None}
    config = CONFIG.model_copy(update={"examples": 0, "changes": 0, "configuration": {}, "command": []})
    assert report(config, **bare, work=work(tmp_path / "out"))["examples"] == 0
    text = (tmp_path / "out" / "report.html").read_text()
    assert "<h2>Training</h2>" not in text
    assert "<h2>Questions</h2>" not in text
    assert "<h2>Reproduce</h2>" not in text
    assert "<h2>Results</h2>" in text


FIGURES = {"mean": 0.012, "low": -0.001, "high": 0.025}


def split(*systems: str, differences: tuple[str, ...] = (), tested: bool = False, **more) -> dict:
    """What metrics.json holds of a split."""
    test = {"p": 0.02, "p_holm": 0.043, "wins": 1200, "ties": 30, "losses": 7} if tested else {}
    return {
        "questions": 1237,
        "questions_without_relevant": 3,
        "questions_without_results": dict.fromkeys(systems, 2),
        "systems": {name: dict.fromkeys(MEASURES, FIGURES) for name in systems},
        "differences": {pair: dict.fromkeys(MEASURES, FIGURES | test) for pair in differences},
        **more,
    }


def hits(*systems: str) -> dict:
    """As `split`, by answer strings."""
    named = ("hits@5", "hits@20", "hits@100")
    return {
        "questions": 3610,
        "questions_without_results": {},
        "systems": {name: {m: FIGURES | {"mean": 0.5 + n / 10} for n, m in enumerate(named)} for name in systems},
        "differences": {},
    }


def metrics_of(dense: str = "stage2", **splits) -> dict:
    return {"labels": {"bm25": "BM25", "stage1": "stage 1", "stage2": "stage 2"}, "dense": dense, "splits": splits}


def published(row: str, split: str, **measures: float) -> Published:
    named = {name.replace("_", "@"): value for name, value in measures.items()}
    return Published(row=row, label="coCondenser", split=split, measures=named, source="coCondenser, table 1")


def test_a_differences_sign(page):
    loss = {name: -value for name, value in FIGURES.items()}
    found = split("stage1", "stage2", differences=("stage2 - stage1", "stage1 - stage2"))
    found["differences"]["stage1 - stage2"] = dict.fromkeys(MEASURES, loss)
    metrics = metrics_of(test=found)
    gain, fall = difference_rows(metrics, parts(metrics, [])[0])
    assert gain["cells"][0] == {"sure": False, "mean": "+.012", "interval": "[−.001, .025]", "p": ""}
    assert (fall["label"], fall["cells"][0]["mean"]) == ("stage 1 − stage 2", "−.012")
    assert gain["counts"] is None
    assert "+−" not in page


def test_a_tested_difference_has_p_and_counts():
    metrics = metrics_of(test=split("stage1", "stage2", differences=("stage2 - stage1",), tested=True))
    part = parts(metrics, [])[0]
    (row,) = difference_rows(metrics, part)
    assert row["cells"][0]["p"] == "p = .043"
    assert row["counts"] == {"wins": 1200, "ties": 30, "losses": 7}
    assert verdict(metrics, part) == (
        "Stage 2 against stage 1: +.012 MRR@10 [−.001, .025], p = .043; better for 1,200 questions, worse for 7."
    )
    assert verdict(metrics_of("stage1", test=split("bm25", "stage1")), part) is None


@pytest.mark.parametrize(("p_holm", "sure"), [(0.049, True), (0.05, False), (0.7, False)])
def test_a_difference_is_sure_by_its_corrected_p_alone(p_holm, sure):
    """As in the table of an ablation; the interval of one pair is corrected for nothing."""
    found = split("stage1", "stage2", differences=("stage2 - stage1",), tested=True)
    for interval in ({"low": -0.001, "high": 0.025}, {"low": 0.001, "high": 0.023}):
        found["differences"]["stage2 - stage1"] = {key: {**FIGURES, **interval, "p_holm": p_holm} for key in MEASURES}
        metrics = metrics_of(test=found)
        (row,) = difference_rows(metrics, parts(metrics, [])[0])
        assert {cell["sure"] for cell in row["cells"]} == {sure}


def test_what_was_published_leads_and_has_its_columns():
    metrics = metrics_of(dev=split("bm25", "stage2"), test={**split("bm25", "stage2"), "questions": 43})
    assert [part.split for part in parts(metrics, [])] == ["test", "dev"]
    rows = [published("stage2", "dev", RR_10=0.382, R_1000=0.984), published("stage2", "test", nDCG_10=0.7)]
    dev, test = parts(metrics, rows)
    assert (dev.split, dev.columns, dev.lead) == ("dev", ("RR@10", "nDCG@10", "R@100", "R@1000"), "RR@10")
    assert (test.columns, test.lead) == (("RR@10", "nDCG@10", "R@100"), "nDCG@10")
    documents = parts(metrics, [published("stage2", "dev", RR_100=0.404)])[0]
    assert (documents.split, documents.lead, documents.head) == ("dev", "RR@100", "MRR@100")


def test_the_papers_figures_stand_below_ours(inputs, tmp_path):
    rows = [published("stage2", "test", RR_10=0.382, R_1000=0.984), published("stage1", "test", RR_10=0.357)]
    report(CONFIG.model_copy(update={"published": rows}), **inputs, work=work(tmp_path / "out"))
    table = (tmp_path / "out" / "report.html").read_text().split("</table>")[0]
    assert "published .382" in table
    rows = re.findall(r'<tr(?: class="(\w+)")?><th scope="row">.*?</tr>', table, re.DOTALL)
    assert rows == ["", "", "published", "", "published"]  # BM25, stage 2, its own; the fusion; a row that we have not
    cells = re.findall(r"<td>(.*?)</td>", table.split('<tr class="published">')[1])
    assert cells[:4] == [".382", "", "", ".984"]
    whole = (tmp_path / "out" / "report.html").read_text()
    assert "This run differs from the recipe" in whole
    assert "<code>title=&lt;script&gt;</code>" in whole


def test_a_split_with_answers_alone_leads_with_hits(inputs, tmp_path):
    evaluation = tmp_path / "metrics"
    evaluation.mkdir()
    metrics = json.loads((inputs["evaluate"] / "metrics.json").read_text())
    metrics["splits"]["test"] = {"systems": {}, "questions": 0, "answers": hits("bm25", "stage2")}
    (evaluation / "metrics.json").write_text(json.dumps(metrics))
    rows = pq.read_table(inputs["evaluate"] / "per_query.parquet").to_pylist()
    found = {"bm25": (0, 0, 1), "stage2": (1, 1, 1)}
    named = ("hits@5", "hits@20", "hits@100")
    for row in rows:
        has = found.get(row["system"], (0, 0, 0)) if row["split"] == "test" else (None, None, None)
        row |= dict(zip(named, has, strict=True)) | ({"RR@100": None} if row["split"] == "test" else {})
    pq.write_table(pa.Table.from_pylist(rows), evaluation / "per_query.parquet")
    answers = pq.read_table(inputs["evaluate"] / "answers.parquet")
    holds = pa.array([rank == 2 for rank in answers["rank"].to_pylist()])
    pq.write_table(
        answers.drop_columns("holds_answer").append_column("holds_answer", holds), evaluation / "answers.parquet"
    )
    given = {**inputs, "evaluate": evaluation}
    paper = [published("stage2", "test", hits_5=0.758, hits_20=0.843)]
    report(CONFIG.model_copy(update={"published": paper}), **given, work=work(tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "hits@20 on 3,610 test questions" in page
    assert ".600 <small>published .843</small>" in page
    assert "<th>hits@5</th><th>hits@20</th><th>hits@100</th>" in page
    assert "2 better" in page  # of the picture
    gained = page.split("Gained most")[1].split("Picked at random")[0]
    assert "an answer in the first 100" in gained
    assert "an answer in the first 5" in gained
    assert gained.count('class="tick"') == 2  # the second passage of each
    assert "dev, 2 questions" in page


def test_questions_that_changed_most(page):
    """Of BM25's p0 and stage 2's p0 at rank 3: test0 lost; test1 kept its rank 2."""
    assert "Gained most" not in page
    lost = page.split("Lost most")[1].split("Picked at random")[0]
    assert re.findall(r"question (test\d)", lost) == ["test0"]
    assert "first relevant at rank 1" in lost
    assert "first relevant at rank 3" in lost
    assert "1 worse" in page
    assert "1 alike" in page


def test_the_lineage_tells_steps_and_what_they_took(page):
    for part in ("ingest", "13 s", "1 h 30 min", "3.00", "5a5a5a5a5a5a", "a3" * 32, "3.11.2, 3.12.1"):
        assert part in page
    assert "5b5b5b5b5b5b</code> *" in page
    assert "2026-01-01 to 2026-01-03" in page
    assert "without 1 step whose GPUs were not recorded" in page
    assert "Of 1 step no record is left." in page
    assert "cocondenser run tiny --set &#39;title=&lt;script&gt;&#39;" in page
    told = summary(LINEAGE)
    assert (told["time"], told["gpu_hours"], told["unknown"], told["kept"]) == ("1 h 31 min", "3.00", 1, 1)


def test_times_as_people_say_them():
    assert [duration(s) for s in (0.04, 9.96, 59.4, 59.6, 3599.6, 100_000)] == [
        *("0.0 s", "10 s", "59 s", "1 min 00 s", "1 h 00 min", "27 h 47 min")
    ]
    assert [hours(s) for s in (0, 10, 900, 360_000)] == ["0", "< 0.01", "0.25", "100.0"]


def test_neighbours_have_a_line_for_each_pair_and_n(inputs, tmp_path):
    evaluation = tmp_path / "metrics"
    shutil.copytree(inputs["evaluate"], evaluation)
    metrics = json.loads((evaluation / "metrics.json").read_text())
    rows = [
        {"earlier": "bm25", "later": "stage2", "n": n, "questions": 2, "k": [10, 100, 1000], "recall": [0.1, 0.5, 0.9]}
        for n in (50, 100)
    ]
    metrics["splits"]["test"]["neighbours"] = rows
    (evaluation / "metrics.json").write_text(json.dumps(metrics))
    report(CONFIG, **{**inputs, "evaluate": evaluation}, work=work(tmp_path / "out"))
    picture = next(
        svg for svg in (tmp_path / "out" / "report.html").read_text().split("<figure>") if "Neighbours" in svg
    )
    for text in ("stage 2's first 50 in BM25", "stage 2's first 100 in BM25", "1,000"):
        assert text in picture


def test_seven_thousand_questions_stay_small():
    from pipeline.report.differences import per_question

    found = per_question("questions", np.linspace(1, -0.5, 6980), "stage 2 against BM25", "difference in 1 / rank")
    assert len(found.svg) < 40_000
    assert "4,653 better" in found.svg
    assert "2,327 worse" in found.svg


def test_pictures_are_coloured_files_too(inputs, tmp_path):
    from matplotlib.image import imread

    report(CONFIG, **inputs, work=work(tmp_path / "out"))
    names = [path.stem for path in sorted((tmp_path / "out" / "pictures").iterdir())]
    assert names == [
        *("ladder-ndcg-10", "ladder-r-100", "ladder-rr-10", "questions", "training-cocondenser", "training-stage2")
    ]
    pixels = (255 * imread(tmp_path / "out" / "pictures" / "ladder-rr-10.png")[..., :3]).round().astype(int)
    shades = {tuple(shade) for shade in np.unique(pixels.reshape(-1, 3), axis=0).tolist()}
    assert {(255, 255, 255), (0x14, 0x50, 0x8C), (0x8A, 0x92, 0x9B)} <= shades  # paper, stage 2, BM25
    assert not {shade for shade in shades if max(shade) < 10}  # no stand-in is left


def test_rounds_and_other_systems_have_a_colour():
    from pipeline.report.figures import colour_of, ladder

    names = ["bm25", "stage2", "stage2-2", "rerank", "GAR-2", "stage2 + GAR-2", "fusion"]
    assert [*map(colour_of, names)] == ["bm25", "stage2", "stage2", "rerank", "quiet", "quiet", "fusion"]
    figures = {name: {"mean": 0.5, "low": 0.4, "high": 0.6} for name in names}
    picture = ladder("ladder", figures, {n: n for n in names}, "MRR@10").svg
    assert "stage2 + GAR-2" in picture
    assert "var(--quiet)" in picture
