"""The rows of the report's tables: systems, differences, hits and what papers published."""

import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluating import EVALUATE
from reported import CONFIG, WHOLE, work

from pipeline.data.collection import schemas, write_table
from pipeline.evaluate.evaluate import evaluate
from pipeline.evaluate.measures import MEASURES
from pipeline.report.build import report
from pipeline.report.results import Published, difference_rows, split_measures, verdict

FIGURES = {"mean": 0.012, "low": -0.001, "high": 0.025}


def split(*systems: str, differences: tuple[str, ...] = (), tested: bool = False, **more) -> dict:
    """The entry of a split in metrics.json."""
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
    """Like `split`, for answer strings."""
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


def test_later_rounds_and_reranking_have_their_rows_and_points(inputs, tmp_path):
    bm25, stage2 = (inputs["evaluate"].parent / name for name in ("bm25", "stage2"))
    later = {"stage2": stage2, "stage2-2": bm25, "rerank": stage2}
    evaluate(EVALUATE, inputs["collection"], bm25, work(tmp_path / "metrics"), **later)
    report(CONFIG, inputs["collection"], tmp_path / "metrics", **WHOLE, work=work(tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    for system, label in (("stage2", "stage 2, round 2"), ("rerank", "reranked")):
        assert f'var(--{system})"></i>{label}</th>' in page
    assert len(set(re.findall(r"(?<!-)--rerank: [^;]+", page))) == 2  # on light and on dark
    ladder = next(svg for svg in page.split("<figure>")[1:] if "MRR@10" in svg)
    assert "stage 2, round 2" in ladder
    assert "var(--rerank)" in ladder


def test_an_existing_model_has_its_row_and_point(inputs, tmp_path):
    bm25, run = (inputs["evaluate"].parent / name for name in ("bm25", "stage2"))
    evaluate(EVALUATE, inputs["collection"], bm25, work(tmp_path / "metrics"), model=run)
    metrics = json.loads((tmp_path / "metrics" / "metrics.json").read_text())
    assert (metrics["dense"], metrics["labels"]["fusion"]) == ("model", "BM25 + existing model")
    model = inputs["cocondenser"]
    report(CONFIG, inputs["collection"], tmp_path / "metrics", **WHOLE, work=work(tmp_path / "out"), model=model)
    page = (tmp_path / "out" / "report.html").read_text()
    assert 'var(--stage2)"></i>existing model</th>' in page
    assert "var(--model)" not in page


@pytest.mark.parametrize("judged", [True, False])
def test_questions_with_answers_have_a_table_of_hits(inputs, tmp_path, judged):
    """Next to the judged measures, or instead of them."""
    collection = tmp_path / "collection"
    shutil.copytree(inputs["collection"], collection)
    queries = [(f"test{n}", "test", f"question {n}", ["number 3"]) for n in (0, 1)]
    write_table(collection / "queries.parquet", schemas()["queries"], queries)
    qrels = pq.read_table(collection / "qrels.parquet").to_pylist() if judged else []
    judgements = [tuple(row.values()) for row in qrels if row["query_id"] in ("test0", "test1")]
    write_table(collection / "qrels.parquet", schemas()["qrels"], judgements)
    bm25, stage2 = (inputs["evaluate"].parent / name for name in ("bm25", "stage2"))
    evaluate(EVALUATE, collection, bm25, work(tmp_path / "metrics"), stage2=stage2)
    report(CONFIG, collection, tmp_path / "metrics", **WHOLE, work=work(tmp_path / "out"))
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


def test_a_difference_has_its_sign(page):
    loss = {name: -value for name, value in FIGURES.items()}
    part = split("stage1", "stage2", differences=("stage2 - stage1", "stage1 - stage2"))
    part["differences"]["stage1 - stage2"] = dict.fromkeys(MEASURES, loss)
    metrics = metrics_of(test=part)
    gain, fall = difference_rows(metrics, split_measures(metrics, [])[0])
    assert gain["cells"][0] == {"sure": False, "mean": "+.012", "interval": "[−.001, .025]", "p": ""}
    assert (fall["label"], fall["cells"][0]["mean"]) == ("stage 1 − stage 2", "−.012")
    assert gain["counts"] is None
    assert "+−" not in page


def test_a_tested_difference_has_p_and_counts():
    metrics = metrics_of(test=split("stage1", "stage2", differences=("stage2 - stage1",), tested=True))
    part = split_measures(metrics, [])[0]
    (row,) = difference_rows(metrics, part)
    assert row["cells"][0]["p"] == "p = .043"
    assert row["counts"] == {"wins": 1200, "ties": 30, "losses": 7}
    assert verdict(metrics, part) == (
        "Stage 2 against stage 1: +.012 MRR@10 [−.001, .025], p = .043; better for 1,200 questions, worse for 7."
    )
    assert verdict(metrics_of("stage1", test=split("bm25", "stage1")), part) is None


@pytest.mark.parametrize(("p_holm", "sure"), [(0.049, True), (0.05, False), (0.7, False)])
def test_only_the_corrected_p_makes_a_difference_sure(p_holm, sure):
    """As in the table of an ablation. The interval of one pair is not corrected."""
    part = split("stage1", "stage2", differences=("stage2 - stage1",), tested=True)
    for interval in ({"low": -0.001, "high": 0.025}, {"low": 0.001, "high": 0.023}):
        part["differences"]["stage2 - stage1"] = {key: {**FIGURES, **interval, "p_holm": p_holm} for key in MEASURES}
        metrics = metrics_of(test=part)
        (row,) = difference_rows(metrics, split_measures(metrics, [])[0])
        assert {cell["sure"] for cell in row["cells"]} == {sure}


def test_published_figures_choose_the_first_split_and_its_columns():
    metrics = metrics_of(dev=split("bm25", "stage2"), test={**split("bm25", "stage2"), "questions": 43})
    assert [part.split for part in split_measures(metrics, [])] == ["test", "dev"]
    rows = [published("stage2", "dev", RR_10=0.382, R_1000=0.984), published("stage2", "test", nDCG_10=0.7)]
    dev, test = split_measures(metrics, rows)
    assert (dev.split, dev.columns, dev.lead) == ("dev", ("RR@10", "nDCG@10", "R@100", "R@1000"), "RR@10")
    assert (test.columns, test.lead) == (("RR@10", "nDCG@10", "R@100"), "nDCG@10")
    documents = split_measures(metrics, [published("stage2", "dev", RR_100=0.404)])[0]
    assert (documents.split, documents.lead, documents.head) == ("dev", "RR@100", "MRR@100")


def test_the_papers_figures_are_below_ours(inputs, tmp_path):
    rows = [published("stage2", "test", RR_10=0.382, R_1000=0.984), published("stage1", "test", RR_10=0.357)]
    report(CONFIG.model_copy(update={"published": rows}), **inputs, **WHOLE, work=work(tmp_path / "out"))
    table = (tmp_path / "out" / "report.html").read_text().split("</table>")[0]
    assert "published .382" in table
    rows = re.findall(r'<tr(?: class="(\w+)")?><th scope="row">.*?</tr>', table, re.DOTALL)
    # BM25, stage 2 and its published row, fusion, the published row of a stage that this run lacks.
    assert rows == ["", "", "published", "", "published"]
    cells = re.findall(r"<td>(.*?)</td>", table.split('<tr class="published">')[1])
    assert cells[:4] == [".382", "", "", ".984"]
    whole = (tmp_path / "out" / "report.html").read_text()
    assert "This run differs from the recipe" in whole
    assert "<code>title=&lt;script&gt;</code>" in whole


def test_a_split_with_only_answers_shows_hits_first(inputs, tmp_path):
    evaluation = tmp_path / "metrics"
    evaluation.mkdir()
    metrics = json.loads((inputs["evaluate"] / "metrics.json").read_text())
    metrics["splits"]["test"] = {"systems": {}, "questions": 0, "answers": hits("bm25", "stage2")}
    (evaluation / "metrics.json").write_text(json.dumps(metrics))
    rows = pq.read_table(inputs["evaluate"] / "per_query.parquet").to_pylist()
    hits_of = {"bm25": (0, 0, 1), "stage2": (1, 1, 1)}
    named = ("hits@5", "hits@20", "hits@100")
    for row in rows:
        has = hits_of.get(row["system"], (0, 0, 0)) if row["split"] == "test" else (None, None, None)
        row |= dict(zip(named, has, strict=True)) | ({"RR@100": None} if row["split"] == "test" else {})
    pq.write_table(pa.Table.from_pylist(rows), evaluation / "per_query.parquet")
    answers = pq.read_table(inputs["evaluate"] / "answers.parquet")
    holds = pa.array([rank == 2 for rank in answers["rank"].to_pylist()])
    pq.write_table(
        answers.drop_columns("holds_answer").append_column("holds_answer", holds), evaluation / "answers.parquet"
    )
    changed = {**inputs, "evaluate": evaluation}
    paper = [published("stage2", "test", hits_5=0.758, hits_20=0.843)]
    report(CONFIG.model_copy(update={"published": paper}), **changed, **WHOLE, work=work(tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "hits@20 on 3,610 test questions" in page
    assert ".600 <small>published .843</small>" in page
    assert "<th>hits@5</th><th>hits@20</th><th>hits@100</th>" in page
    assert "2 better" in page  # in the picture
    gained = page.split("Gained most")[1].split("Picked at random")[0]
    assert "an answer in the first 100" in gained
    assert "an answer in the first 5" in gained
    assert gained.count('class="tick"') == 2  # the second passage of each
    assert "dev, 2 questions" in page


@pytest.mark.parametrize(
    ("dev", "fields", "phrase"),
    [
        (
            False,
            {"fusion_methods": ["reciprocal_rank", "weighted_sum"], "fusion_weights": [0.1, 0.5]},
            "z-normalised scores, the first with weight 0.5 (default: no dev questions)",
        ),
        (False, {}, "reciprocal ranks with k = 60, the first with weight 0.9 (as requested)"),
        (
            True,
            {"fusion_weights": [0.1, 0.6]},
            "reciprocal ranks with k = 60, the first with weight 0.5 (default: 2 dev questions, fewer than 50)",
        ),
    ],
)
def test_the_page_says_how_the_fusion_was_chosen_and_which_lists_are_cut(dev, fields, phrase, inputs, tmp_path):
    bm25, stage2 = (inputs["evaluate"].parent / name for name in ("bm25", "stage2"))
    collection = tmp_path / "collection"
    shutil.copytree(inputs["collection"], collection)
    judged = [(split, f"{split}{n}", f"p{n}", 1) for split in (*["dev"] * dev, "test") for n in (0, 1)]
    write_table(collection / "qrels.parquet", schemas()["qrels"], judged)
    config = EVALUATE.model_copy(update=fields)
    evaluate(config, collection, bm25, work(tmp_path / "metrics"), stage2=stage2)
    report(CONFIG, collection, tmp_path / "metrics", **WHOLE, work=work(tmp_path / "out"))
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"BM25 + stage 2 adds {phrase}." in page
    assert "BM25: no list is longer than 2; RR@10 is RR@2, R@100 is R@2 there, and nDCG@10 is cut." in page
    assert "stage 2: no list is longer than 3;" in page
    assert "BM25 + stage 2: no list" in page
