"""Measures of every run on dev and test, with intervals, and the fusion of BM25 with the dense retriever.

Legend of suffixes: Q questions, M measures, S resamples.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from pipeline.bootstrap import interval, resampled_means
from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.work import Metrics, Work

if TYPE_CHECKING:
    import pyarrow
    from rich.table import Table

    from pipeline.fusion import Choice
    from pipeline.runs import Run

LABELS = {"bm25": "BM25", "model": "ready model", "pretrained": "pre-trained only", "rerank": "reranked"}
TABLE = {"RR@10": "MRR@10", "nDCG@10": "nDCG@10", "R@100": "R@100"}
"""Measures of the short table, and what the field calls their means."""
SPLITS = ("dev", "test")
DIGITS = 6


class EvaluateConfig(Config):
    relevance: int = Field(ge=1)
    """Least judgement that is relevant in binary measures (1; TREC Deep Learning: 2). nDCG takes the grades."""
    fusion_methods: list[Literal["reciprocal_rank", "weighted_sum"]] = Field(min_length=1)
    """How BM25 and dense lists may be joined; the best by MRR@10 on dev is taken."""
    fusion_weights: list[Annotated[float, Field(gt=0, lt=1)]] = Field(min_length=1)
    """Shares of BM25 that are tried on dev; the rest is the dense retriever's. Without a dev run the first is taken."""
    reciprocal_k: float = Field(gt=0)
    """k in weight / (k + rank): 60 in Cormack, Clarke and Buettcher (2009)."""
    bootstrap_samples: int = Field(ge=100)
    """Resamples of the questions for each 95 % interval."""
    seed: int = Field(ge=0)
    """Seed of the resamples."""
    answers: int = Field(ge=1, le=100)
    """Passages of each question and system that are kept beside the measures, for the report."""


def evaluate(config: EvaluateConfig, collection: Path, bm25: Path | None, work: Work, **runs: Path | None) -> Metrics:
    """Write `metrics.json`, `per_query.parquet` and `answers.parquet` for the runs in the given folders.

    The questions of a split are those with a relevant passage; one that a run does not answer counts as zero and is
    counted. A system stands in a split only if its run has rows of that split. `runs`: by system, in the table's order
    (`pretrained`, `stage1`, `stage2`, `stage2-2`, ..., `rerank`; or `model`). The row `fusion` joins BM25 with the last
    dense run given, by the method and weight that are best on dev. Raises `InputError` on runs with NaN scores, unknown
    passages or a passage twice, and where no question of dev and test has a relevant passage.
    """
    import pyarrow.parquet as pq

    from pipeline.fusion import fuse
    from pipeline.measures import as_ranks, measure

    given = {name: folder for name, folder in {"bm25": bm25, **runs}.items() if folder is not None}
    dense = next((name for name in reversed(given) if is_dense(name)), None)
    passage_ids = pq.read_table(collection / "passages.parquet", columns=["passage_id"])["passage_id"].combine_chunks()
    choice: Choice | None = None
    splits: dict[str, Any] = {}
    per_query: list[pyarrow.Table] = []
    answers: list[pyarrow.Table] = []
    for split in SPLITS:
        query_ids, qrels, without = judged(collection, split, config.relevance)
        found = read_runs(given, split, query_ids, passage_ids) if qrels else {}
        if not found:
            continue
        if dense in found and "bm25" in found:
            if choice is None:
                choice = choose_fusion(config, split, found["bm25"], found[dense], query_ids, passage_ids, qrels)
            found["fusion"] = fuse(found["bm25"], found[dense], choice, config.reciprocal_k)
        values: dict[str, np.ndarray] = {}
        for name, run in found.items():
            values[name] = measure(as_ranks(run, query_ids, passage_ids), list(qrels), qrels, config.relevance)
            per_query.append(per_query_rows(split, name, list(qrels), values[name]))
            answers.append(answer_rows(split, name, run, query_ids, passage_ids, qrels, config.answers))
            work.progress(len(per_query), None, "runs")
        splits[split] = {
            "questions": len(qrels),
            "questions_without_relevant": without,
            "questions_without_results": {n: len(qrels) - len(np.unique(run.question_R)) for n, run in found.items()},
            **summary(values, config.bootstrap_samples, config.seed),
        }
    if not splits:
        raise InputError(f"{collection / 'qrels.parquet'}: no dev or test question has a relevant passage and a run")
    metrics = {
        "config": config.model_dump(),
        "labels": {name: label(name) for name in given} | ({"fusion": f"BM25 + {label(dense)}"} if dense else {}),
        "dense": dense,
        "fusion": choice and {**asdict(choice), "chosen_on_dev": "fusion" in splits.get("dev", {}).get("systems", {})},
        "winner_on_dev": winner(splits, dense),
        "splits": splits,
    }
    (work.out / "metrics.json").write_text(json.dumps(metrics, indent=1, ensure_ascii=False) + "\n")
    write_tables(work.out, per_query, answers)
    return flat(metrics)


def is_dense(name: str) -> bool:
    """Whether a system's run is a retriever's, whose index can be asked further questions."""
    return name in ("pretrained", "model") or name.startswith("stage")


def label(name: str) -> str:
    """What tables call a system: `stage 1`, `stage 2, round 3`."""
    stage, _, number = name.removeprefix("stage").partition("-")
    if name.startswith("stage") and stage.isdigit():
        return f"stage {stage}, round {number}" if number else f"stage {stage}"
    return LABELS.get(name, name)


def compared(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of systems whose difference is worth a row: each dense one and the one before, what is made of others."""
    dense = [name for name in names if is_dense(name)]
    pairs = [(after, before) for before, after in itertools.pairwise(dense)]
    if dense and "rerank" in names:
        pairs.append(("rerank", dense[-1]))
    return pairs + ([("fusion", "bm25")] if {"fusion", "bm25"} <= {*names} else [])


def judged(collection: Path, split: str, relevance: int) -> tuple["pyarrow.Array", dict[str, dict[str, int]], int]:
    """Questions of a split that have a relevant passage: their ids and qrels; and the number of those without."""
    import pyarrow as pa

    from pipeline.collection import read_qrels, read_queries

    qrels = read_qrels(collection, [split])
    asked = [query.query_id for query in read_queries(collection, [split])]
    found = {q: qrels[q] for q in asked if max(qrels.get(q, {}).values(), default=0) >= relevance}
    return pa.array(list(found), pa.string()), found, len(asked) - len(found)


def read_runs(
    folders: Mapping[str, Path], split: str, query_ids: "pyarrow.Array", passage_ids: "pyarrow.Array"
) -> dict[str, "Run"]:
    """The runs that have rows of the split."""
    from pipeline import runs

    found = {name: runs.read(folder, split, query_ids, passage_ids) for name, folder in folders.items()}
    return {name: run for name, run in found.items() if run is not None}


def choose_fusion(
    config: EvaluateConfig,
    split: str,
    bm25: "Run",
    dense: "Run",
    query_ids: "pyarrow.Array",
    passage_ids: "pyarrow.Array",
    qrels: Mapping[str, Mapping[str, int]],
) -> "Choice":
    """The best fusion on dev. Never chosen on test: without a dev run it is the first method and weight."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from pipeline.fusion import Choice, choose

    if split != "dev":
        return Choice(config.fusion_methods[0], config.fusion_weights[0])
    pairs = [(q, p) for q, grades in enumerate(qrels.values()) for p, g in grades.items() if g >= config.relevance]
    passage_R = pc.index_in(pa.array([p for _, p in pairs], pa.string()), value_set=passage_ids)
    known_R = passage_R.is_valid().to_numpy(zero_copy_only=False)
    relevant = np.array([q for q, _ in pairs])[known_R], passage_R.drop_null().to_numpy().astype(np.int64)
    methods, weights = config.fusion_methods, config.fusion_weights
    return choose(bm25, dense, relevant, len(query_ids), methods, weights, config.reciprocal_k)


def summary(values: Mapping[str, np.ndarray], samples: int, seed: int) -> dict[str, Any]:
    """Means and paired differences with their 95 % intervals, from {system: [questions, measures]}."""
    resampled = resampled_means(np.concatenate(list(values.values()), axis=1), samples, seed)
    means = dict(zip(values, np.split(resampled, len(values), axis=1), strict=True))
    return {
        "systems": {name: estimates(values[name].mean(0), means[name]) for name in values},
        "differences": {
            f"{a} - {b}": estimates((values[a] - values[b]).mean(0), means[a] - means[b])
            for a, b in compared([*values])
        },
    }


def estimates(mean_M: np.ndarray, means_SM: np.ndarray) -> dict[str, dict[str, float]]:
    """{measure: {mean, low, high}}, rounded so that the bytes do not hang on the processor's order of sums."""
    from pipeline.measures import MEASURES

    columns = zip(MEASURES, mean_M, *interval(means_SM), strict=True)
    return {
        name: {key: round(float(x), DIGITS) + 0.0 for key, x in zip(("mean", "low", "high"), figures, strict=True)}
        for name, *figures in columns
    }


def winner(splits: Mapping[str, Any], dense: str | None) -> str:
    """What `cocondenser search` should ask: `dense`, `fusion`, or `bm25` where there is no dense run.

    The better MRR@10 on dev; `dense` where dev cannot tell.
    """
    if dense is None:
        return "bm25"
    systems = splits.get("dev", {}).get("systems", {})
    better = "fusion" in systems and systems["fusion"]["RR@10"]["mean"] > systems[dense]["RR@10"]["mean"]
    return "fusion" if better else "dense"


def per_query_rows(split: str, system: str, query_ids: list[str], values_QM: np.ndarray) -> "pyarrow.Table":
    import pyarrow as pa

    from pipeline.measures import MEASURES

    same = {"split": [split] * len(query_ids), "query_id": query_ids, "system": [system] * len(query_ids)}
    return pa.table({**same, **{name: values_QM[:, m].astype(np.float32) for m, name in enumerate(MEASURES)}})


def answer_rows(
    split: str,
    system: str,
    run: "Run",
    query_ids: "pyarrow.Array",
    passage_ids: "pyarrow.Array",
    qrels: Mapping[str, Mapping[str, int]],
    depth: int,
) -> "pyarrow.Table":
    """The first `depth` passages of each question, with their judgements (none: null)."""
    import pyarrow as pa

    top_R = run.rank_R <= depth
    query_R = query_ids.take(pa.array(run.question_R[top_R])).to_pylist()
    passage_R = passage_ids.take(pa.array(run.passage_R[top_R])).to_pylist()
    grades = [qrels[q].get(p) for q, p in zip(query_R, passage_R, strict=True)]
    return pa.table(
        {
            "split": pa.array([split] * len(query_R), pa.string()),
            "query_id": pa.array(query_R, pa.string()),
            "system": pa.array([system] * len(query_R), pa.string()),
            "rank": run.rank_R[top_R],
            "passage_id": pa.array(passage_R, pa.string()),
            "score": run.score_R[top_R].astype(np.float32),
            "relevance": pa.array(grades, pa.int32()),
        }
    )


def write_tables(out: Path, per_query: list["pyarrow.Table"], answers: list["pyarrow.Table"]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.concat_tables(per_query), out / "per_query.parquet", compression="zstd")
    pq.write_table(pa.concat_tables(answers), out / "answers.parquet", compression="zstd")


def flat(metrics: Mapping[str, Any]) -> Metrics:
    """The short table's figures and the fusion, as `test/stage2/RR@10`."""
    figures: Metrics = {
        f"{split}/{name}/{measure}": found["systems"][name][measure]["mean"]
        for split, found in metrics["splits"].items()
        for name in found["systems"]
        for measure in TABLE
    }
    fusion = metrics["fusion"] or {"method": None, "weight": None}
    chosen = {"fusion/method": fusion["method"], "fusion/weight": fusion["weight"]}
    return {**figures, **chosen, "winner_on_dev": metrics["winner_on_dev"]}


def shown_split(metrics: Mapping[str, Any]) -> str:
    """The split that tables show: test where there is one."""
    return "test" if "test" in metrics["splits"] else "dev"


def table(metrics: Mapping[str, Any]) -> "Table":
    """The short table of the parsed `metrics.json`, to be printed: a row a system, MRR@10, nDCG@10, R@100 [95 %]."""
    from rich.table import Table

    split = shown_split(metrics)
    found = metrics["splits"][split]
    shown = Table(title=f"{split}: {found['questions']:,} questions, mean [95 % interval]", title_justify="left")
    shown.add_column("")
    for name in TABLE.values():
        shown.add_column(name, justify="right")
    for system, figures in found["systems"].items():
        shown.add_row(metrics["labels"][system], *(estimate_text(figures[measure]) for measure in TABLE))
    return shown


def estimate_text(figure: Mapping[str, float]) -> str:
    """`.497 [.475, .519]`, as papers print shares."""
    mean, low, high = (share_text(figure[key]) for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def share_text(share: float) -> str:
    """`.497`, `−.012`; `.000` for what rounds to nothing from either side."""
    return f"{round(share, 3) + 0.0:.3f}".replace("0.", ".", 1).replace("-", "−")
