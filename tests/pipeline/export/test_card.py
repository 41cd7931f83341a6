"""The model card: its header for the hub, its figures, and escaped texts."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from encoders import ENCODER
from markdown_it import MarkdownIt

from pipeline.export.card import card, header, markdown
from pipeline.export.page import write_page
from pipeline.export.source import Source

SCRIPT = "<script>alert(1)</script> [x](javascript:alert(1)) | *a* `b`"
FIGURE = {"mean": 0.382, "low": 0.37, "high": 0.394}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    counts = {"documents": 11500, "passages": 25000, "train_queries": 3000, "queries": 4000}
    (tmp_path / "ingest.json").write_text(json.dumps(counts))
    systems = {name: dict.fromkeys(("RR@10", "nDCG@10", "R@100"), FIGURE) for name in ("bm25", SCRIPT, "stage1")}
    part = {"questions": 6980, "systems": systems, "differences": {}}
    labels = {"bm25": "BM25", "stage1": "stage 1"}
    return Source(
        recipe="one",
        model="stage1",
        checkpoint=tmp_path,
        encoder=ENCODER,
        passage_tokens=128,
        collection=tmp_path,
        tokens=tmp_path,
        relevance=1,
        index=None,
        served=None,
        served_collection=tmp_path,
        runs={},
        fusion=None,
        best_three_share=0,
        dimension=None,
        reciprocal_k=60,
        question=SCRIPT,
        system="stage1",
        metrics={"labels": labels, "dense": "stage1", "splits": {"dev": part}},
        settings={
            "title": SCRIPT,
            "initial": {"pretrained": "bert-base-uncased", "checkpoint": None},
            "cocondenser": {"budget": "8 epochs", "batch_documents": 2048, "optimiser": {"learning_rate": 1e-4}},
            "stage1": {"epochs": 1, "batch_queries": 8, "optimiser": {"learning_rate": 5e-6}},
        },
        command=["cocondenser", "run", "one", "--set", SCRIPT],
        artifacts={"ingest": "a" * 64, "cocondenser": "b" * 64, "stage1": "c" * 64, "stage2": "d" * 64},
    )


def test_no_text_becomes_markup(source: Source, tmp_path: Path) -> None:
    write_page(source, tmp_path, ("run",), None, None)
    page = (tmp_path / "README.md").read_text()
    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render(page)
    assert "<script" not in shown
    assert "href" not in shown
    assert shown.count("&lt;script&gt;") == 3  # title, a row of the table, the command
    assert f"<h1>{MarkdownIt().renderInline(markdown(SCRIPT))}: a dense retriever</h1>" in shown


def test_the_table_has_intervals_and_the_models_own_row(source: Source, tmp_path: Path) -> None:
    write_page(source, tmp_path, ("run",), None, None)
    page = (tmp_path / "README.md").read_text()
    shown = MarkdownIt("commonmark").enable("table").render(page)
    assert "<th>dev, 6,980 questions</th>\n<th>MRR@10</th>" in shown
    assert "<td><strong>stage 1</strong></td>\n<td>.382 [.370, .394]</td>" in shown
    assert "<td>BM25</td>" in shown
    assert "on 11,500 documents, 25,000 passages and 3,000 training questions" in page


def test_judgements_and_answers_have_a_table_each(source: Source, tmp_path: Path) -> None:
    hits = {name: dict.fromkeys(("hits@5", "hits@20", "hits@100"), FIGURE) for name in ("bm25", "stage1")}
    source.metrics["splits"]["dev"]["answers"] = {"questions": 1, "systems": hits, "differences": {}}
    write_page(source, tmp_path, ("run",), None, None)
    page = (tmp_path / "README.md").read_text()
    assert "| dev, 6,980 questions | MRR@10 |" in page
    assert "| dev, 1 question with answers | hits@5 |" in page


@pytest.mark.parametrize(
    ("cut_at", "notes"),
    [
        ({}, []),
        ({"bm25": 1000, "stage1": 100}, []),
        ({"stage1": 20}, ["stage 1: no list is longer than 20; R@100 is R@20 there."]),
        (
            {SCRIPT: 50, "bm25": 5},
            [
                f"{markdown(SCRIPT)}: no list is longer than 50; R@100 is R@50 there.",
                "BM25: no list is longer than 5; RR@10 is RR@5, R@100 is R@5 there, and nDCG@10 is cut.",
            ],
        ),
    ],
)
def test_lists_shorter_than_the_depth_of_a_measure_are_named(source: Source, tmp_path: Path, cut_at, notes) -> None:
    source.metrics["splits"]["dev"]["cut_at"] = cut_at
    write_page(source, tmp_path, ("run",), None, None)
    lines = [line for line in (tmp_path / "README.md").read_text().splitlines() if "no list is longer" in line]
    assert sorted(lines) == sorted(notes)
    shown = MarkdownIt("commonmark").enable("table").render((tmp_path / "README.md").read_text())
    assert shown.count("<p>") >= len(notes)
    assert all("longer than" not in cell for cell in re.findall("<td>.*</td>", shown))


def test_the_card_lists_the_trainings_up_to_the_model(source: Source) -> None:
    rows = [tuple(row.values())[:4] for row in card(source)["trainings"]]
    assert rows == [
        ("coCondenser", "8 epochs", "2,048 documents", "0.0001"),
        ("Stage 1", "1 epoch", "8 questions", "5e-06"),
    ]


def test_the_header_names_library_base_model_and_tags(source: Source) -> None:
    fields = yaml.safe_load(header(source).strip("-"))
    assert (fields["library_name"], fields["base_model"]) == ("sentence-transformers", "bert-base-uncased")
    assert "dense-retrieval" in fields["tags"]
    assert "license" not in fields
    from_scratch = replace(source, settings={"initial": {"pretrained": None}})
    assert "base_model" not in yaml.safe_load(header(from_scratch).strip("-"))
