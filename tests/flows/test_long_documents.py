"""The whole flow on documents that are cut into passages: judged, trained on, reranked, measured and searched."""

import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from writing import put

from flows.dag import nodes
from flows.recipes.recipe import resolve
from pipeline.data.documents import document_id
from pipeline.evaluate.run_files import evaluate_files

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

DOCUMENTS, WORDS_OF_PART = 90, 15
SETTINGS = [
    *("condenser.budget=null", "cocondenser.budget=null", "ingest.passage_words=16", "ingest.passage_overlap=2"),
    *("cross_encoder.loss=pointwise", "cross_encoder.negatives_per_query=1", "stage2.loss=soft_labels"),
    *("rerank={depth: 20, splits: [dev, test]}", "stage1.validation={questions: 9, candidates: 8, keep: best}"),
    "search.depth=30",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BEIR folder. A document has three to six parts of a subject each; a question asks about one of them."""
    folder = tmp_path_factory.mktemp("long") / "data"
    draw = random.Random(0)
    words = [a + b + c for a in "bdfgklmn" for b in "aeiou" for c in ("lan", "ner", "tor", "mak", "sil", "pud", "ren")]
    corpus, queries, judged = [], [], {"train": [], "dev": [], "test": []}
    for n in range(DOCUMENTS):
        subjects = [draw.sample(words, 5) for _ in range(draw.randint(3, 6))]
        parts = [" ".join(draw.choices(subject + words[:15], k=WORDS_OF_PART)).capitalize() for subject in subjects]
        corpus.append(json.dumps({"_id": f"d{n}", "title": f"Document {n}", "text": ". ".join(parts) + "."}))
        queries.append(json.dumps({"_id": f"q{n}", "text": " ".join(draw.choice(subjects)[:4])}))
        judged["train" if n < 50 else "dev" if n < 65 else "test"].append(f"q{n}\td{n}\t1")
    put(folder, "corpus.jsonl", *corpus)
    put(folder, "queries.jsonl", *queries)
    for split, lines in judged.items():
        put(folder, f"qrels/{split}.tsv", *lines)
    return folder


@pytest.fixture(scope="module")
def store(folder: Path) -> Path:
    return folder.parent / "store"


@pytest.fixture(scope="module")
def recipe(folder: Path) -> str:
    reader = json.dumps({"reader": "beir", "folder": str(folder), "document_key": "", "metadata": []})
    put(folder.parent, "long.yaml", "extends: tiny", "title: Long documents", f"ingest: {reader}")
    return str(folder.parent / "long.yaml")


@pytest.fixture(scope="module")
def ended(recipe: str, store: Path, run_served) -> dict:
    options = [word for setting in SETTINGS for word in ("--set", setting)]
    result = run_served("run", recipe, "--json", "--device", "cpu", *options, store=store)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def table(ended: dict, node: str, name: str) -> list[dict]:
    return pq.read_table(Path(ended["artifacts"][node]["path"]) / name).to_pylist()


def test_every_stage_is_built(ended: dict, recipe: str) -> None:
    assert list(ended["artifacts"]) == [node.name for node in nodes(resolve(recipe, SETTINGS))]
    passages = table(ended, "ingest", "passages.parquet")
    assert ended["artifacts"]["ingest"]["metrics"]["documents"] == DOCUMENTS < len(passages) / 2
    assert {row["document"] for row in passages} == {f"d{n}" for n in range(DOCUMENTS)}


def test_no_passage_of_a_relevant_document_is_a_negative(ended: dict) -> None:
    for node in ("bm25", "mine"):
        rows = table(ended, node, "negatives.parquet")
        assert rows
        assert not [row for row in rows if document_id(row["passage_id"])[1:] == row["query_id"][1:]]


def test_a_question_is_trained_on_one_passage_of_its_document(ended: dict) -> None:
    counts = ended["artifacts"]["stage1"]["metrics"]
    assert counts["queries"] == counts["examples_per_epoch"] == 50
    own = [
        r
        for r in table(ended, "soft-labels", "scores.parquet")
        if document_id(r["passage_id"])[1:] == r["query_id"][1:]
    ]
    assert len(own) == len({row["query_id"] for row in own}) == 50


def test_each_run_file_has_the_figures_of_the_table(ended: dict, folder: Path, tmp_path: Path) -> None:
    """With the judgements as they came, also of documents that a list of passages leaves out."""
    judged = (folder / "qrels" / "test.tsv").read_text().split("\n")
    qrels = put(
        tmp_path, "qrels.txt", *(f"{q} 0 {d} {grade}" for q, d, grade in (line.split() for line in judged if line))
    )
    part = ended["results"]["splits"]["test"]
    for system, node in {"bm25": "bm25", "stage2": "search-stage2", "rerank": "rerank"}.items():
        path = Path(ended["artifacts"][node]["path"]) / "run.trec"
        found = evaluate_files([path], qrels, 1, "t", 100, 0).systems[str(path)]
        measured = part["systems"][system]
        assert {name: figure["mean"] for name, figure in found.items()} == {n: f["mean"] for n, f in measured.items()}
    assert part["systems"]["bm25"]["RR@10"]["mean"] > 0.3
    assert 1 <= part["fewest_documents"]["stage2"] < 30


def test_a_search_finds_each_document_once(ended: dict, call_cli, store: Path) -> None:
    for by in ("bm25", "dense", "fusion"):
        result = call_cli("search", "balan baner", "--by", by, "-k", "20", "--json", store=store)
        assert result.returncode == 0, result.stderr
        answers = json.loads(result.stdout)["answers"]
        assert len(answers) == len({answer["doc_id"] for answer in answers}) > 5
        assert all(document_id(answer["passage_id"]) == answer["doc_id"] for answer in answers)
