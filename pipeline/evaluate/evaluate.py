"""Measures all runs on dev and test, with intervals, and fusions: BM25 with the dense retriever, or any runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.data.collection import passage_id_array
from pipeline.data.documents import read_documents
from pipeline.errors import InputError
from pipeline.evaluate import systems
from pipeline.evaluate.config import SPLITS, EvaluateConfig
from pipeline.evaluate.rows import FUSION, fusion_rows, is_fine_tuned, labels, last_dense
from pipeline.evaluate.significance.paired import FEWEST, is_significant
from pipeline.evaluate.tables.short_tables import tables_of
from pipeline.runtime.planned import Planned
from pipeline.runtime.work import Metrics, Work, silent

if TYPE_CHECKING:
    import pyarrow

    from pipeline.data.runs import Run
    from pipeline.evaluate.fusion.choice import FusionChoice


OTHERS = "evaluate.others"
"""The recipe's section of an evaluation on a further collection."""


def missing(config: EvaluateConfig) -> list[str]:
    """Returns a line for each fault of the run files of other systems. Quick."""
    return systems.missing(config.systems)


def check_collection(node: Planned) -> None:
    """Questions to evaluate with, and other systems' answers to them; an early check, also of `evaluate.others`.

    A run that trains on questions needs some; one that only indexes and searches does not.
    """
    import pyarrow.compute as pc

    from pipeline.data.stored import read_table
    from pipeline.evaluate.questions import read_split_questions

    source, config = node.input("collection"), node.config
    collection = source.path
    questions_of = {split: read_split_questions(collection, split, config.relevance) for split in SPLITS}
    if node.section == OTHERS and not any(found.qrels for found in questions_of.values()):
        folder = source.config.folder
        raise InputError(f"{OTHERS}: {folder}: no dev or test question has a relevant passage: leave it out")
    if not any(len(found.query_ids) for found in questions_of.values()):
        of = [("split", "in", SPLITS)]
        grades = read_table(collection / "qrels.parquet", columns=["relevance"], filters=of)["relevance"]
        highest = pc.max(grades).as_py() or 0
        if highest >= 1:
            raise InputError(
                f"evaluate.relevance: {config.relevance}, but no judgement of dev and test is above {highest}"
            )
        if any(map(is_fine_tuned, node.inputs)):
            last = [given.name for given in node.inputs.values() if given][-1]
            raise InputError(
                "evaluate: the collection has no dev or test question with a relevant passage or answers; "
                f"`--until {last}` stops before it"
            )
    if config.systems:
        query_ids = {split: found.query_ids for split, found in questions_of.items()}
        documents = read_documents(collection, passage_id_array(collection))
        systems.read_systems(config.systems, query_ids, documents.ids, silent)


def evaluate(config: EvaluateConfig, collection: Path, bm25: Path | None, work: Work, **runs: Path | None) -> Metrics:
    """Writes `metrics.json`, `per_query.parquet`, `answers.parquet` and, if questions have answers,
    `answer_qrels.parquet` (columns as the collection's qrels) for the runs in `bm25`, `runs` and `config.systems`.

    Where documents are cut, qrels and `config.systems` name documents, and each list ranks documents by their best
    passages (pipeline/data/documents.py); answers.parquet has these passages.
    Qrels measure a split's questions with a relevant passage, answer hits (passages with an answer among the first 5,
    20 and 100) those with answers; a split may have either or both. A question without results counts as zero, and is
    counted. A system is in a split's table only if its run has rows of that split.
    `runs`: by system, in the table's order (`pretrained`, `stage1`, `stage2`, `stage2-2`, ..., `rerank`; or `model`).
    The row `fusion` joins BM25 with the last dense run, `stage1 + GAR` is one of `config.fusions`; each adds
    z-normalised scores with equal weights, unless dev proves another way better (`fusion_choice.choose`). If no
    question of dev and test can be measured, metrics.json has no split, and says how a search fuses by default; there
    are no other tables. Raises `InputError` for fusions of missing runs, for runs with NaN scores, unknown or duplicate
    passages, if questions can be measured but none has a run, and if none can be measured after a fine-tuning.
    """
    import pyarrow as pa

    from pipeline.evaluate import per_query
    from pipeline.evaluate.fusion.choice import ways_of, without_dev
    from pipeline.evaluate.questions import read_split_questions
    from pipeline.evaluate.split import Common, split_figures

    folders = {name: folder for name, folder in {"bm25": bm25, **runs}.items() if folder is not None}
    joined = fusion_rows(config, [*folders])
    passage_ids = passage_id_array(collection)
    documents = read_documents(collection, passage_ids)
    by_split = {split: read_split_questions(collection, split, config.relevance) for split in SPLITS}
    query_ids = {split: questions.query_ids for split, questions in by_split.items()}
    others, counts = systems.read_systems(config.systems, query_ids, documents.ids, work.progress)
    has_dev = len(query_ids["dev"]) > 0
    common = Common(config, collection, passage_ids, documents, joined, has_dev, depths(bm25), work)
    choices: dict[str, FusionChoice] = {}
    splits: dict[str, Any] = {}
    tables: dict[str, list[pa.Table]] = {"per_query": [], "answers": [], "answer_qrels": []}
    for split, questions in by_split.items():
        own = read_runs(folders, split, questions.query_ids, passage_ids) if len(questions.query_ids) else {}
        if not own and not others[split]:
            continue
        result = split_figures(common, split, questions, own, others[split], choices)
        splits[split] = result.figures
        tables["per_query"] += result.per_query
        tables["answers"] += result.answers
        tables["answer_qrels"] += [result.answer_qrels] if result.answer_qrels else []
    if not splits:
        if any(map(len, query_ids.values())) or any(map(is_fine_tuned, folders)):
            raise InputError(
                f"{collection / 'qrels.parquet'}: no dev or test question has a run and a relevant passage or answers"
            )
        choices = {name: without_dev(len(members), ways_of(config)) for name, members in joined.items()}
    metrics = assembled(config, folders, joined, choices, counts, splits)
    (work.out / "metrics.json").write_text(json.dumps(metrics, indent=1, ensure_ascii=False) + "\n")
    per_query.write_per_query(work.out, tables)
    return flat_metrics(metrics)


def assembled(
    config: EvaluateConfig,
    folders: Mapping[str, Path],
    joined: Mapping[str, Sequence[str]],
    choices: Mapping[str, "FusionChoice"],
    counts: Mapping[str, Mapping[str, Any]],
    splits: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the content of metrics.json. `counts`: of the rows of other systems' files."""
    dense = last_dense(folders)
    chosen = {
        name: {**asdict(one.choice), "chosen_on_dev": one.chosen_on_dev, "why": one.why}
        for name, one in choices.items()
    }
    return {
        "config": config.model_dump(exclude={"systems", "others"}),
        "labels": labels(folders.get("bm25"), [*folders, *sorted(config.systems)], joined),
        "dense": dense,
        "fusion": chosen.pop(FUSION, None),
        "fusions": chosen,
        "systems": counts,
        "winner_on_dev": answering_system(splits, dense),
        "splits": splits,
    }


def depths(bm25: Path | None) -> dict[str, int]:
    """Returns `Common.depths`: BM25's lists end if no more passage contains a word of the question."""
    from pipeline.bm25.settings import read_settings

    settings = read_settings(bm25) if bm25 is not None else {}
    return {"bm25": settings["depth"]} if "depth" in settings else {}


def read_runs(
    folders: Mapping[str, Path], split: str, query_ids: "pyarrow.Array", passage_ids: "pyarrow.Array"
) -> dict[str, "Run"]:
    """Returns the runs that have rows of the split."""
    from pipeline.data import runs

    every = {name: runs.read_run(folder, split, query_ids, passage_ids) for name, folder in folders.items()}
    return {name: run for name, run in every.items() if run is not None}


def answering_system(splits: Mapping[str, Any], dense: str | None) -> str | None:
    """Returns what answers questions after a look at dev: `fusion`, or one of its runs (`dense`, `bm25`) that at least
    FEWEST questions prove better. `dense` if no split has a fusion, `bm25` if there is no dense run. None without dev.

    Compares MRR@10 on dev, or hits@20 if dev has only answers.
    """
    if "dev" not in splits:
        return None
    if dense is None:
        return "bm25"
    dev, measure = splits["dev"], "RR@10"
    if not dev["systems"]:
        dev, measure = dev.get("answers", dev), "hits@20"
    if FUSION not in dev["systems"]:  # without questions of both runs, dev proves nothing
        parts = [part for split in splits.values() for part in (split, split.get("answers", split))]
        return "fusion" if any(FUSION in part["systems"] for part in parts) else "dense"
    losses = {}
    for way, run in (("dense", dense), ("bm25", "bm25")):
        difference = dev["differences"][f"{FUSION} - {run}"][measure]
        if difference["mean"] < 0 and is_significant(difference) and dev["questions"] >= FEWEST:
            losses[way] = difference["mean"]
    return min(losses, key=lambda way: losses[way]) if losses else "fusion"


def flat_metrics(metrics: Mapping[str, Any]) -> Metrics:
    """Returns the short tables' figures and the fusions, as `test/stage2/RR@10` and `stage1 + GAR/weight`."""
    figures: Metrics = {
        f"{split}/{name}/{measure}": table[name][measure]["mean"]
        for split in metrics["splits"]
        for table, measures in tables_of(metrics, split)
        for name in table
        for measure in measures
    }
    standard = metrics["fusion"] or {"method": None, "weight": None}
    for name, chosen in {FUSION: standard, **metrics["fusions"]}.items():
        figures |= {f"{name}/method": chosen["method"], f"{name}/weight": chosen["weight"]}
    return {**figures, "winner_on_dev": metrics["winner_on_dev"]}
