"""Measures of every run on dev and test, with intervals, and fusions: BM25 with the dense retriever, or any runs."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from pipeline import systems
from pipeline.bootstrap import summary
from pipeline.collection import passage_id_array, read_qrels, read_queries
from pipeline.config import Config, Seed
from pipeline.errors import InputError
from pipeline.tables import FIRST_STAGES, TABLE, label
from pipeline.work import Metrics, Work

if TYPE_CHECKING:
    import pyarrow

    from pipeline.fusion import Choice
    from pipeline.runs import Run

SPLITS = ("dev", "test")
FUSION = "fusion"
"""The row that joins BM25 with the last dense run."""


class EvaluateConfig(Config):
    relevance: int = Field(ge=1)
    """Least judgement that is relevant in binary measures (1; TREC Deep Learning: 2). nDCG takes the grades."""
    systems: dict[systems.Name, Path]
    """Other systems as rows of every table, by name: run files, plain or compressed, of TREC's six columns or MS
    MARCO's three, with questions of dev, test or both. Passages stand by score, then passage order."""
    fusions: list[Annotated[list[str], Field(min_length=2)]]
    """Runs to be joined beside BM25 and the last dense one: two or more of `bm25`, `pretrained`, `stage1`, `stage2`
    (`stage2-2`, ... of further rounds), `rerank` and the names of `systems`."""
    fusion_methods: list[Literal["reciprocal_rank", "weighted_sum"]] = Field(min_length=1)
    """How lists may be joined; for each fusion the best by MRR@10 on dev is taken."""
    fusion_weights: list[Annotated[float, Field(gt=0, lt=1)]] = Field(min_length=1)
    """Shares of the first run (BM25) that are tried on dev; the others have equal parts of the rest. Where one of the
    runs has no questions of dev, the first method and weight are taken."""
    reciprocal_k: float = Field(gt=0)
    """k in weight / (k + rank): 60 in Cormack, Clarke and Buettcher (2009)."""
    bootstrap_samples: int = Field(ge=100)
    """Resamples of the questions for each 95 % interval."""
    seed: Seed
    """Seed of the resamples."""
    answers: int = Field(ge=1, le=100)
    """Passages of each question and system that are kept beside the measures, for the report."""

    @model_validator(mode="after")
    def _names_are_told_apart(self) -> Self:
        systems.check_names([*self.systems], self.fusions)
        return self


def missing(config: EvaluateConfig) -> list[str]:
    """What is wrong with the run files of other systems, a line each. Quick."""
    return systems.missing(config.systems)


def evaluate(config: EvaluateConfig, collection: Path, bm25: Path | None, work: Work, **runs: Path | None) -> Metrics:
    """Write `metrics.json`, `per_query.parquet` and `answers.parquet` for the runs in the given folders and files.

    The questions of a split are those with a relevant passage; one that a run does not answer counts as zero and is
    counted. A system stands in a split only if its run has rows of that split. `runs`: by system, in the table's order
    (`pretrained`, `stage1`, `stage2`, `stage2-2`, ..., `rerank`; or `model`). The row `fusion` joins BM25 with the last
    dense run given, `stage1 + GAR` is one of `config.fusions`; each by the method and weight that are best on dev.
    Raises `InputError` on fusions of runs that are not given, on runs with NaN scores, unknown passages or a passage
    twice, and where no question of dev and test has a relevant passage.
    """
    from pipeline.fusion import fuse
    from pipeline.measures import as_ranks, measure
    from pipeline.per_query import answer_rows, measure_rows, write

    given = {name: folder for name, folder in {"bm25": bm25, **runs}.items() if folder is not None}
    joined = fusion_rows(config, [*given])
    passage_ids = passage_id_array(collection)
    asked = {split: judged(collection, split, config.relevance) for split in SPLITS}
    query_ids_of = {split: query_ids for split, (query_ids, _, _) in asked.items()}
    others, counts = systems.read(config.systems, query_ids_of, passage_ids, work.progress)
    choices: dict[str, Choice] = {}
    splits: dict[str, Any] = {}
    per_query: list[pyarrow.Table] = []
    answers: list[pyarrow.Table] = []
    for split, (query_ids, qrels, without) in asked.items():
        found = read_runs(given, split, query_ids, passage_ids) | others[split] if qrels else {}
        if not found:
            continue
        for name, members in joined.items():
            if found.keys() >= {*members}:
                parts = [found[member] for member in members]
                if name not in choices:
                    choices[name] = choose_fusion(config, split, parts, query_ids, passage_ids, qrels)
                found[name] = fuse(parts, choices[name], config.reciprocal_k)
        values: dict[str, np.ndarray] = {}
        for name, run in found.items():
            values[name] = measure(as_ranks(run, query_ids, passage_ids), list(qrels), qrels, config.relevance)
            per_query.append(measure_rows(split, name, list(qrels), values[name]))
            answers.append(answer_rows(split, name, run, query_ids, passage_ids, qrels, config.answers))
            work.progress(len(per_query), None, "runs")
        pairs = compared([*values], [*config.systems], joined)
        splits[split] = {
            "questions": len(qrels),
            "questions_without_relevant": without,
            "questions_without_results": {n: len(qrels) - len(np.unique(run.question_R)) for n, run in found.items()},
            **summary(values, pairs, config.bootstrap_samples, config.seed),
        }
    if not splits:
        raise InputError(f"{collection / 'qrels.parquet'}: no dev or test question has a relevant passage and a run")
    dense = last_dense(given)
    chosen = {
        name: {**asdict(choice), "chosen_on_dev": name in splits.get("dev", {}).get("systems", {})}
        for name, choice in choices.items()
    }
    metrics = {
        "config": config.model_dump(exclude={"systems"}),
        "labels": labels(bm25, [*given, *sorted(config.systems)], joined),
        "dense": dense,
        "fusion": chosen.pop(FUSION, None),
        "fusions": chosen,
        "systems": counts,
        "winner_on_dev": winner(splits, dense),
        "splits": splits,
    }
    (work.out / "metrics.json").write_text(json.dumps(metrics, indent=1, ensure_ascii=False) + "\n")
    write(work.out, per_query, answers)
    return flat(metrics)


def is_dense(name: str) -> bool:
    """Whether one of the flow's runs is a retriever's, whose index can be asked further questions."""
    return name in ("pretrained", "model") or name.startswith("stage")


def last_dense(names: Iterable[str]) -> str | None:
    return next((name for name in reversed([*names]) if is_dense(name)), None)


def fusion_rows(config: EvaluateConfig, names: Sequence[str]) -> dict[str, list[str]]:
    """{row: the runs that it joins} in a flow with the runs `names`. Raises InputError where one is not among them."""
    dense = last_dense(names)
    standard = ["bm25", dense] if dense and "bm25" in names else None
    for members in config.fusions:
        for name in members:
            if name not in names and name not in config.systems:
                raise InputError(f"evaluate.fusions: this recipe has no run {name!r}; its own are {', '.join(names)}")
    rows = {" + ".join(members): members for members in config.fusions if members != standard}
    return ({FUSION: standard} if standard else {}) | rows


def labels(bm25: Path | None, names: Sequence[str], joined: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """What tables call each row."""
    from pipeline.bm25 import read_settings

    found = {name: label(name) for name in names}
    if bm25 is not None:
        found["bm25"] = FIRST_STAGES[read_settings(bm25)["scores"]]
    return found | {row: " + ".join(found[name] for name in members) for row, members in joined.items()}


def compared(names: Sequence[str], others: Sequence[str], joined: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """Pairs of systems whose difference is worth a row.

    Each dense one and the one before; the last and what is made of it, or what `others` found; a fusion and its first
    part.
    """
    dense = [name for name in names if name not in (*others, *joined) and is_dense(name)]
    pairs = [(after, before) for before, after in itertools.pairwise(dense)]
    if dense and "rerank" in names:
        pairs.append(("rerank", dense[-1]))
    pairs += [(dense[-1], name) for name in names if dense and name in others]
    return pairs + [(row, members[0]) for row, members in joined.items() if row in names]


def judged(collection: Path, split: str, relevance: int) -> tuple["pyarrow.Array", dict[str, dict[str, int]], int]:
    """Questions of a split that have a relevant passage: their ids and qrels; and the number of those without."""
    import pyarrow as pa

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
    runs: Sequence["Run"],
    query_ids: "pyarrow.Array",
    passage_ids: "pyarrow.Array",
    qrels: Mapping[str, Mapping[str, int]],
) -> "Choice":
    """The best fusion on dev. Never chosen on test: without dev runs it is the first method and weight."""
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
    return choose(runs, relevant, len(query_ids), methods, weights, config.reciprocal_k)


def winner(splits: Mapping[str, Any], dense: str | None) -> str:
    """What `cocondenser search` should ask: `dense`, `fusion`, or `bm25` where there is no dense run.

    The better MRR@10 on dev; `dense` where dev cannot tell.
    """
    if dense is None:
        return "bm25"
    systems = splits.get("dev", {}).get("systems", {})
    better = FUSION in systems and systems[FUSION]["RR@10"]["mean"] > systems[dense]["RR@10"]["mean"]
    return "fusion" if better else "dense"


def flat(metrics: Mapping[str, Any]) -> Metrics:
    """The short table's figures and the fusions, as `test/stage2/RR@10` and `stage1 + GAR/weight`."""
    figures: Metrics = {
        f"{split}/{name}/{measure}": found["systems"][name][measure]["mean"]
        for split, found in metrics["splits"].items()
        for name in found["systems"]
        for measure in TABLE
    }
    standard = metrics["fusion"] or {"method": None, "weight": None}
    for name, chosen in {FUSION: standard, **metrics["fusions"]}.items():
        figures |= {f"{name}/method": chosen["method"], f"{name}/weight": chosen["weight"]}
    return {**figures, "winner_on_dev": metrics["winner_on_dev"]}
