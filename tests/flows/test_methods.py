"""Every training method of the papers in the whole flow, on a small collection. Some runs are killed and resumed."""

import json
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from killing import command, cut_off, finished, run

from flows.dag import nodes
from flows.recipes.recipe import resolve
from tasks.node import Node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

JUDGED, UNJUDGED = 100, 25
"""Training questions."""
SUBSET = 60
"""The number of judged questions that the second set of methods trains on."""
THRESHOLD = 0.6
PLAIN = ["condenser.budget=null", "cocondenser.budget=null"]
CROSS = ["cross_encoder.loss=pointwise", "cross_encoder.negatives_per_query=1"]
RERANK = "rerank={depth: 10, splits: [dev, test]}"
TAUGHT = [
    *PLAIN,
    *CROSS,
    RERANK,
    "ict.budget=20 steps",
    "ict.batch_passages=16",
    "encoder.tied=false",
    "encoder.projection=16",
    "encoder.question_tokens=8",
    "rounds.number=2",
    "rounds.start=previous",
    "stage2.loss=soft_labels",
    f"denoise.threshold={THRESHOLD}",
    "ensemble=2",
    "attention.sections=20",
    "machine.ranks=2",
]
SCHEDULED = [
    *PLAIN,
    *CROSS,
    "encoder.pooling=mean",
    "encoder.normalise=true",
    "encoder.question_prefix=query: ",
    "encoder.title_separator=space",
    "stage1.batch_order=abs_greedy",
    "stage1.negatives_per_query=0",
    "stage1.temperature=0.05",
    "stage1.epochs=3",
    "stage1.validation={questions: 9, candidates: 12, keep: best}",
    f"train_subset.queries={SUBSET}",
    "search.unjudged_train_questions=true",
    "pseudo_labels={depth: 20, positive_above: 0.3, negative_below: 0.3, positives: 1, negatives: 8}",
    "stage2.batch_order=abs_beam",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("methods")


@pytest.fixture(scope="module")
def recipe(folder: Path) -> str:
    """`tiny` on 160 texts of invented words, each with a question; some training questions have no relevant passage."""
    draw = random.Random(0)
    words = [a + b + c for a in "bdfgklmn" for b in "aeiou" for c in ("lan", "ner", "tor", "mak", "sil", "pud", "ren")]
    topics = [draw.sample(words, 6) for _ in range(160)]
    sentences = [[" ".join(draw.choices(topic + words[:20], k=12)).capitalize() for _ in range(3)] for topic in topics]
    texts = [". ".join(text_sentences) + "." for text_sentences in sentences]
    splits = ["train"] * (JUDGED + UNJUDGED) + ["dev"] * 15 + ["test"] * 20
    unjudged = range(JUDGED, JUDGED + UNJUDGED)
    rows = {
        "corpus.jsonl": [
            json.dumps({"_id": f"p{n}", "title": " ".join(topic[:2]), "text": text})
            for n, (topic, text) in enumerate(zip(topics, texts, strict=True))
        ],
        "queries.jsonl": [
            json.dumps({"_id": f"q{n}", "text": " ".join(topics[n][: 3 + 20 * (n == 0)] * (1 + 3 * (n == 0)))})
            for n in range(len(splits))
        ],
    }
    for split in ("train", "dev", "test"):
        judged = [f"q{n}\tp{n}\t{int(n not in unjudged)}" for n, its_split in enumerate(splits) if its_split == split]
        rows[f"qrels/{split}.tsv"] = ["query-id\tcorpus-id\tscore", *judged]
    for name, lines in rows.items():
        (folder / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "data" / name).write_text("\n".join(lines) + "\n")
    reader = json.dumps({"reader": "beir", "folder": str(folder / "data"), "document_key": "", "metadata": []})
    (folder / "methods.yaml").write_text(f"extends: tiny\ntitle: Methods\ningest: {reader}\n")
    return str(folder / "methods.yaml")


def dag(recipe: str, settings: Sequence[str]) -> dict[str, Node]:
    return {node.name: node for node in nodes(resolve(recipe, settings))}


def actions(err: str, names: Sequence[str]) -> dict[str, str]:
    """{node: built or cached}, from the lines of the run."""
    words = [line.split() for line in err.splitlines()]
    return {line[0]: line[1] for line in words if len(line) > 1 and line[0] in names}


def table(artifact: dict, name: str) -> dict[str, list]:
    return pq.read_table(Path(artifact["path"]) / name).to_pydict()


@pytest.fixture(scope="module")
def taught(recipe: str, folder: Path, served: dict[str, str]) -> dict:
    """ICT, an untied encoder, two rounds on soft labels of denoised negatives, an ensemble; interrupted twice."""
    command_line, store = command(recipe, TAUGHT), folder / "store"
    nodes_by_name = dag(recipe, TAUGHT)
    for name, interrupt in (("cross-encoder", signal.SIGKILL), ("soft-labels", signal.SIGINT)):
        assert cut_off(name, nodes_by_name[name].stage, command_line, served, store, interrupt), (
            f"{name} ended before the signal arrived"
        )
    results, err = finished(run(command_line, served, store))
    assert list(results["artifacts"]) == list(nodes_by_name)
    assert actions(err, list(nodes_by_name))["cross-encoder"] == "cached"
    return results


@pytest.fixture(scope="module")
def scheduled(taught: dict, recipe: str, folder: Path, served: dict[str, str]) -> dict:
    """Scheduled batches, the best epoch, pseudo-labels, another model's negatives; interrupted while it schedules."""
    settings = [*SCHEDULED, f"rounds.miner={taught['artifacts']['stage1']['path']}"]
    command_line, store = command(recipe, settings), folder / "store"
    assert cut_off("stage1", "finetune", command_line, served, store), "stage 1 ended before the signal arrived"
    results, err = finished(run(command_line, served, store))
    action_of = actions(err, list(dag(recipe, settings)))
    assert {action_of[name] for name in ("ingest", "tokenizer", "tokens", "bm25")} == {"cached"}
    return {**results, "settings": settings}


def test_the_counts_of_each_stage_are_right(taught: dict) -> None:
    counts = {name: artifact["metrics"] for name, artifact in taught["artifacts"].items()}
    assert counts["ict"]["updates"] == 20
    assert counts["stage1"]["queries"] == counts["soft-labels"]["questions"] == JUDGED
    assert counts["stage1"]["questions_cut"] == 1
    assert counts["cross-encoder"]["examples_per_epoch"] == 2 * JUDGED  # once with either kind of negatives
    for suffix in ("", "-2"):
        kept, dropped = (counts[f"denoise{suffix}"][name] for name in ("negatives", "dropped"))
        assert kept + dropped == counts[f"mine{suffix}"]["negatives"]
        assert kept > 0
        assert counts[f"soft-labels{suffix}"]["pairs"] > kept
    assert counts["rerank"]["pairs"] == 10 * 35
    assert counts["rerank"]["cross_encoders"] == 2


def test_the_scores_of_the_teacher_reach_the_student(taught: dict) -> None:
    artifacts = taught["artifacts"]
    scores = table(artifacts["soft-labels-2"], "scores.parquet")
    score_of = dict(zip(zip(scores["query_id"], scores["passage_id"], strict=True), scores["score"], strict=True))
    mined = table(artifacts["denoise-2"], "negatives.parquet")
    kept = {*zip(mined["query_id"], mined["passage_id"], strict=True)}
    assert all(1 / (1 + np.exp(-score_of[pair])) <= THRESHOLD for pair in kept)
    assert artifacts["stage2"]["digest"] != artifacts["stage2-2"]["digest"]
    one, other = (table(artifacts[name], "history.parquet")["loss"] for name in ("cross-encoder", "cross-encoder-2"))
    assert one != other, "the ensemble contains the same cross-encoder twice"


def test_every_system_has_its_row_and_every_training_its_curve(taught: dict) -> None:
    systems = taught["results"]["splits"]["test"]["systems"]
    assert list(systems) == ["bm25", "pretrained", "stage1", "stage2", "stage2-2", "rerank", "fusion"]
    page = (Path(taught["artifacts"]["report"]["path"]) / "report.html").read_text()
    for label in ("Inverse Cloze Task", "Stage 1", "Stage 2, round 2", "Cross-encoder", "Cross-encoder 2", "reranked"):
        assert f">{label}<" in page, label


def test_reranking_reorders_the_retrieved_passages(taught: dict) -> None:
    retrieved, reranked = (table(taught["artifacts"][name], "run.parquet") for name in ("search-stage2-2", "rerank"))

    def lists(run: dict[str, list], depth: int) -> dict[str, list[str]]:
        rows = zip(run["query_id"], run["rank"], run["passage_id"], strict=True)
        kept: dict[str, list[str]] = {}
        for query, rank, passage in rows:
            if rank <= depth:
                kept.setdefault(query, []).append(passage)
        return kept

    before, after = lists(retrieved, 10), lists(reranked, 10)
    assert before != after
    assert {query: sorted(ids) for query, ids in before.items()} == {query: sorted(ids) for query, ids in after.items()}


def test_a_stage_after_a_kill_has_the_same_bytes(
    taught: dict, recipe: str, folder: Path, served: dict[str, str]
) -> None:
    again = ["--only", "cross-encoder", "--refresh", "cross-encoder"]
    results, err = finished(run([*command(recipe, TAUGHT), *again], served, folder / "store"))
    assert actions(err, ["cross-encoder"]) == {"cross-encoder": "built"}
    assert results["artifacts"]["cross-encoder"]["digest"] == taught["artifacts"]["cross-encoder"]["digest"]


def test_a_setting_of_a_stage_rebuilds_the_stages_that_read_it(
    taught: dict, recipe: str, folder: Path, call_cli
) -> None:
    def rebuilt(*settings: str) -> set[str]:
        """The nodes that the store no longer holds for these settings."""
        arguments = [word for setting in (*TAUGHT, *settings) for word in ("--set", setting)]
        steps = json.loads(call_cli("plan", recipe, "--json", *arguments, store=folder / "store").stdout)
        return {step["node"] for step in steps if step["action"] != "reuse"}

    assert rebuilt() == set()
    assert rebuilt("rerank.depth=9") == {"rerank", "evaluate", "report"}
    assert rebuilt("ensemble=1") == {"rerank", "evaluate", "report"}
    later = {name for name in taught["artifacts"] if "-2" in name and name != "cross-encoder-2"}
    stage2 = {"stage2", "encode-stage2", "index-stage2", "search-stage2"}
    labelled = later | stage2 | {"rerank", "evaluate", "attention", "report"}
    assert rebuilt("denoise.threshold=0.4") == labelled | {"denoise"}
    assert rebuilt("stage2.teacher_temperature=2") == labelled
    assert rebuilt("rounds.start=pretrained") == {name for name in later if "stage2-2" in name} | {
        "rerank",
        "evaluate",
        "attention",
        "report",
    }


def test_search_uses_the_model_of_the_last_round(taught: dict, recipe: str, folder: Path, call_cli) -> None:
    question = json.loads((folder / "data" / "queries.jsonl").read_text().splitlines()[-1])["text"]
    for by in ("dense", "fusion"):
        result = call_cli("search", question, "-k", "3", "--by", by, "--json", store=folder / "store")
        assert result.returncode == 0, result.stderr
        assert len(json.loads(result.stdout)["answers"]) == 3


def test_batches_are_scheduled_and_the_best_epoch_is_kept(scheduled: dict) -> None:
    stage1 = scheduled["artifacts"]["stage1"]
    hardness = table(stage1, "schedule.parquet")
    assert hardness["epoch"] == [1, 2, 3]
    assert np.all(np.array(hardness["scheduled"]) >= np.array(hardness["random"]))
    validation = table(stage1, "validation.parquet")
    assert validation["epoch"] == [1, 2, 3]
    assert stage1["metrics"]["dev_RR@10"] == max(validation["RR@10"])
    assert stage1["metrics"]["queries"] == SUBSET
    assert stage1["metrics"]["negatives_filled"] == 0
    assert len(table(scheduled["artifacts"]["stage2"], "schedule.parquet")["epoch"]) == 1


def test_pseudo_labels_become_questions(scheduled: dict) -> None:
    counts = {name: artifact["metrics"] for name, artifact in scheduled["artifacts"].items()}
    labelled = counts["pseudo-labels"]["questions_labelled"]
    assert counts["pseudo-labels"]["questions"] == UNJUDGED
    assert 0 < labelled <= UNJUDGED
    assert counts["stage2"]["queries"] == SUBSET + labelled
    qrels = table(scheduled["artifacts"]["pseudo-labels"], "qrels.parquet")
    assert {*qrels["query_id"]} <= {f"q{n}" for n in range(JUDGED, JUDGED + UNJUDGED)}


def test_the_given_miner_mines(taught: dict, scheduled: dict) -> None:
    mined = scheduled["artifacts"]["search-miner"]
    assert {*table(mined, "run.parquet")["split"]} == {"train"}
    assert scheduled["artifacts"]["miner"]["metrics"]["encoders"] == 2


def test_a_scheduled_training_is_the_same_after_a_kill(
    scheduled: dict, recipe: str, folder: Path, served: dict[str, str]
) -> None:
    command_line = command(recipe, scheduled["settings"])
    results, _ = finished(run([*command_line, "--only", "stage1", "--refresh", "stage1"], served, folder / "store"))
    assert results["artifacts"]["stage1"]["digest"] == scheduled["artifacts"]["stage1"]["digest"]
