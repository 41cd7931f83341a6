"""The stage on a collection of six passages."""

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluating import EVALUATE
from machines import make_machine
from pydantic import ValidationError
from rich.console import Console
from searched import write_collection

from pipeline.data import runs
from pipeline.data.collection import schemas, write_table
from pipeline.errors import InputError
from pipeline.evaluate.config import EvaluateConfig
from pipeline.evaluate.evaluate import answering_system, evaluate, missing
from pipeline.evaluate.measures import MEASURES
from pipeline.evaluate.per_query import measure_rows
from pipeline.evaluate.rows import compared, fusion_rows
from pipeline.evaluate.tables.short_tables import NO_QUESTIONS, all_notes, default_system, notes, shown_split, tables
from pipeline.runtime.work import Work, silent

CONFIG = EVALUATE.model_copy(
    update={
        "fusion_methods": ["reciprocal_rank", "weighted_sum"],
        "fusion_weights": [0.25, 0.5, 0.75],
        "bootstrap_samples": 200,
        "seed": 3,
    }
)
MACHINE = make_machine()
PASSAGES = [f"p{n}" for n in range(6)]


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    passages = [(p, p, "", f"text of {p}") for p in PASSAGES]
    question_splits = [("d0", "dev"), ("d1", "dev"), ("t0", "test"), ("t1", "test"), ("t2", "test"), ("t3", "test")]
    queries = [(q, split, f"text of {q}") for q, split in question_splits]
    judged = [("dev", "d0", "p0", 1), ("dev", "d1", "p1", 1), ("test", "t0", "p1", 2), ("test", "t0", "p2", 1)]
    judged += [("test", "t1", "p3", 1), ("test", "t2", "p5", 1), ("test", "t3", "p0", 0)]
    return write_collection(tmp_path / "collection", passages, queries, judged)


def write_run(folder: Path, lists: dict[str, dict[str, str]]) -> Path:
    """lists: {split: {query id: passage numbers, best first}}."""
    folder.mkdir()
    (folder / "bm25.json").write_text(json.dumps({"scores": "bm25"}))  # is read if the run is the first stage
    with runs.writer(folder) as write:
        for split, questions in lists.items():
            for query_id, passages in questions.items():
                scores = np.arange(len(passages), 0, -1.0)
                write(split, [query_id] * len(passages), [f"p{n}" for n in passages], scores)
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    runs_by_name = {
        "bm25": {"dev": {"d0": "01", "d1": "01"}, "test": {"t0": "0123", "t1": "3"}},
        "pretrained": {"dev": {"d0": "543210", "d1": "543210"}, "test": {"t0": "543210", "t1": "543210"}},
        "stage2": {"dev": {"d0": "01", "d1": "1"}, "test": {"t0": "12", "t1": "43", "t2": "5"}},
    }
    return {name: write_run(tmp_path / name, lists) for name, lists in runs_by_name.items()}


def evaluated(collection: Path, out: Path, config=CONFIG, bm25=None, **runs):
    out.mkdir()
    figures = evaluate(config, collection, bm25, Work(out, out.parent, MACHINE, silent), **runs)
    return figures, json.loads((out / "metrics.json").read_text())


def printed(metrics: dict) -> str:
    console = Console(width=100, file=io.StringIO())
    for shown in tables(metrics):
        console.print(shown)
    return console.file.getvalue()


def test_figures_of_the_stage(collection, folders, tmp_path):
    figures, metrics = evaluated(collection, tmp_path / "out", **folders)
    test = metrics["splits"]["test"]
    assert test["questions"] == 3
    assert test["questions_without_relevant"] == 1  # t3 is judged, but not relevant
    assert test["questions_without_results"] == {"bm25": 1, "pretrained": 1, "stage2": 0, "fusion": 0}
    assert figures["test/bm25/RR@10"] == pytest.approx((1 / 2 + 1) / 3, abs=1e-6)  # t2 has no answer
    assert figures["test/stage2/RR@10"] == pytest.approx((1 + 1 / 2 + 1) / 3, abs=1e-6)
    assert figures["test/stage2/R@100"] == pytest.approx(1)
    per_query = pq.read_table(tmp_path / "out" / "per_query.parquet").to_pandas()
    means = per_query[per_query.split == "test"].groupby("system")["RR@10"].mean()
    for system, mean in means.items():
        assert test["systems"][system]["RR@10"]["mean"] == pytest.approx(mean, abs=1e-6)
    assert list(test["differences"]) == ["stage2 - pretrained", "fusion - bm25", "fusion - stage2"]
    for figure in (f for measures in test["systems"].values() for f in measures.values()):
        assert 0 <= figure["low"] <= figure["mean"] <= figure["high"] <= 1


def test_few_dev_questions_choose_neither_the_fusion_nor_the_system_that_answers(collection, folders, tmp_path):
    figures, metrics = evaluated(collection, tmp_path / "out", **folders)
    why = "default: 2 dev questions, fewer than 50"
    assert metrics["fusion"] == {"method": "z_score_sum", "weight": 0.5, "chosen_on_dev": False, "why": why}
    assert metrics["labels"]["fusion"] == "BM25 + stage 2"
    assert figures["dev/stage2/RR@10"] == 1
    assert metrics["winner_on_dev"] == "fusion"
    assert f"BM25 + stage 2: z-normalised scores, the first with weight 0.5 ({why})" in notes(metrics)


@pytest.mark.parametrize(
    ("questions", "dense", "bm25", "expected"),
    [
        (50, (-0.1, 0.04), (0.1, 0.001), "dense"),
        (49, (-0.1, 0.04), (0.1, 0.001), "fusion"),
        (50, (-0.1, 0.06), (0.1, 0.001), "fusion"),
        (50, (0.1, 0.001), (-0.1, 0.001), "bm25"),
        (50, (-0.1, 0.001), (-0.2, 0.001), "bm25"),
        (50, (0.1, 0.001), (0.1, 0.001), "fusion"),
    ],
)
def test_the_fusion_answers_unless_dev_proves_one_of_its_runs_better(questions, dense, bm25, expected):
    pairs = {"fusion - stage2": dense, "fusion - bm25": bm25}
    differences = {pair: {"RR@10": {"mean": mean, "p_holm": p}} for pair, (mean, p) in pairs.items()}
    dev = {"questions": questions, "systems": {"fusion": {}}, "differences": differences}
    assert answering_system({"dev": dev}, "stage2") == expected
    assert answering_system({"test": dev}, "stage2") is None


def test_the_fusion_of_another_split_answers_if_a_run_has_no_dev_questions():
    dev, fused = {"systems": {"bm25": {}}}, {"systems": {"fusion": {}}}
    assert answering_system({"dev": dev, "test": fused}, "stage2") == "fusion"
    assert answering_system({"dev": dev, "test": {"systems": {}, "answers": fused}}, "stage2") == "fusion"
    assert answering_system({"dev": dev, "test": dev}, "stage2") == "dense"


def test_dev_questions_choose_a_fusion_that_they_prove_better(tmp_path):
    """BM25 has each question's passage first, the dense run has it last."""
    passages = [(p, p, "", f"text of {p}") for p in PASSAGES]
    queries = [(f"{split}{n}", split, "text") for split in ("dev", "test") for n in range(60)]
    judged = [(split, query_id, "p0", 1) for query_id, split, _ in queries]
    collection = write_collection(tmp_path / "collection", passages, queries, judged)
    lists = {"bm25": "0543", "stage2": "5430"}
    folders = {
        name: write_run(
            tmp_path / name, {split: {q: order for q, of, _ in queries if of == split} for split in ("dev", "test")}
        )
        for name, order in lists.items()
    }
    config = CONFIG.model_copy(update={"permutations": 10_000})
    figures, metrics = evaluated(collection, tmp_path / "out", config, **folders)
    assert metrics["fusion"]["chosen_on_dev"] is True
    assert metrics["fusion"]["weight"] == 0.75
    assert metrics["fusion"]["why"] == "better than the default on 60 dev questions, p < .001"
    assert figures["test/fusion/RR@10"] == 1


def test_answers_are_kept_with_their_judgements(collection, folders, tmp_path):
    evaluated(collection, tmp_path / "out", **folders)
    rows = pq.read_table(tmp_path / "out" / "answers.parquet").to_pylist()
    assert [
        (r["rank"], r["passage_id"], r["relevance"]) for r in rows if (r["system"], r["query_id"]) == ("bm25", "t0")
    ] == [(1, "p0", None), (2, "p1", 2)]


def test_equal_inputs_give_equal_bytes(collection, folders, tmp_path):
    for name in ("one", "two"):
        evaluated(collection, tmp_path / name, **folders)
    for name in ("metrics.json", "per_query.parquet", "answers.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_bm25_alone(collection, folders, tmp_path):
    _, metrics = evaluated(collection, tmp_path / "out", bm25=folders["bm25"])
    assert metrics["winner_on_dev"] == "bm25"
    assert metrics["fusion"] is None
    assert list(metrics["labels"]) == ["bm25"]


def test_without_a_dev_run_the_fusion_is_not_chosen_on_test_and_answers(collection, folders, tmp_path):
    stage1 = write_run(tmp_path / "stage1", {"test": {"t0": "1", "t1": "3", "t2": "5"}})
    _, metrics = evaluated(collection, tmp_path / "out", bm25=folders["bm25"], stage1=stage1)
    assert "stage1" not in metrics["splits"]["dev"]["systems"]
    why = "default: one of its runs has no dev questions"
    assert metrics["fusion"] == {"method": "z_score_sum", "weight": 0.5, "chosen_on_dev": False, "why": why}
    assert metrics["winner_on_dev"] == "fusion"
    assert why in notes(metrics)[-1]


WITHOUT_DEV = {
    "two runs": ({}, [], {"fusion": 0.5}),
    "three runs": ({}, [["bm25", "pretrained", "stage2"]], {"fusion": 0.5, "bm25 + pretrained + stage2": 1 / 3}),
    "one weight left": ({"fusion_weights": [0.7]}, [], {"fusion": 0.7}),
}


@pytest.mark.parametrize(("fields", "joined", "weights"), WITHOUT_DEV.values(), ids=WITHOUT_DEV)
def test_without_dev_questions_nothing_is_chosen_and_the_fusion_answers(
    fields, joined, weights, collection, folders, tmp_path
):
    qrels = pq.read_table(collection / "qrels.parquet").to_pylist()
    write_table(
        collection / "qrels.parquet", schemas()["qrels"], [(*r.values(),) for r in qrels if r["split"] == "test"]
    )
    config = EvaluateConfig(**{**CONFIG.model_dump(), "fusions": joined, **fields})
    figures, metrics = evaluated(collection, tmp_path / "out", config, **folders)
    chosen = {"fusion": metrics["fusion"], **metrics["fusions"]}
    shared = {"method": "z_score_sum", "chosen_on_dev": False, "why": "default: no dev questions"}
    expected = {n: {**shared, "weight": w} for n, w in weights.items()}
    assert chosen == expected
    assert metrics["winner_on_dev"] is None
    assert figures["winner_on_dev"] is None
    assert default_system(metrics) == "fusion"
    lines = [line for line in notes(metrics) if "default: no dev questions" in line]
    assert [line.split(":")[0] for line in lines] == [metrics["labels"][name] for name in weights]
    assert "z-normalised scores" in lines[0]


def test_a_single_method_and_weight_are_used_as_requested(collection, folders, tmp_path):
    config = EvaluateConfig(**{**CONFIG.model_dump(), "fusion_weights": [0.7], "fusion_methods": ["weighted_sum"]})
    _, metrics = evaluated(collection, tmp_path / "out", config, **folders)
    requested = {"method": "weighted_sum", "weight": 0.7, "chosen_on_dev": False, "why": "as requested"}
    assert metrics["fusion"] == requested


def test_a_first_stage_other_than_bm25_is_not_labelled_bm25(collection, folders, tmp_path):
    (folders["bm25"] / "bm25.json").write_text(json.dumps({"scores": "run"}))
    _, metrics = evaluated(collection, tmp_path / "out", **folders)
    assert metrics["labels"]["bm25"] == "first stage (run file)"
    assert metrics["labels"]["fusion"] == "first stage (run file) + stage 2"


# Other systems


def write_trec(path: Path, lists: dict[str, str]) -> Path:
    """lists: {query id: passage numbers, best first}."""
    rows = [f"{q} Q0 p{n} {r} {-r}.0 x" for q, passages in lists.items() for r, n in enumerate(passages, 1)]
    text = "\n".join(rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.fixture
def systems(tmp_path: Path) -> dict[str, Path]:
    return {
        "GAR": write_trec(tmp_path / "gar.gz", {"t1": "3", "d0": "0", "d1": "10", "t0": "01"}),  # splits mixed
        "DPR-PAQ (one)": write_trec(tmp_path / "paq.trec", {"t0": "1", "t1": "3", "t2": "45", "t3": "2"}),
    }


def with_systems(systems: dict[str, Path], *fusions: list[str]) -> EvaluateConfig:
    return EvaluateConfig(**{**CONFIG.model_dump(), "systems": systems, "fusions": fusions})


def test_other_systems_are_rows_of_every_table(collection, folders, systems, tmp_path):
    figures, metrics = evaluated(collection, tmp_path / "out", with_systems(systems), **folders)
    test, dev = metrics["splits"]["test"], metrics["splits"]["dev"]
    assert list(test["systems"]) == [*folders, "DPR-PAQ (one)", "GAR", "fusion"]
    assert list(dev["systems"]) == [*folders, "GAR", "fusion"]
    assert figures["test/GAR/RR@10"] == pytest.approx((1 / 2 + 1 + 0) / 3, abs=1e-6)
    assert figures["test/DPR-PAQ (one)/RR@10"] == pytest.approx((1 + 1 + 1 / 2) / 3, abs=1e-6)
    assert figures["dev/GAR/RR@10"] == pytest.approx(1)
    assert test["questions_without_results"]["GAR"] == 1
    assert metrics["systems"]["DPR-PAQ (one)"]["rows_of_other_questions"] == 1  # t3 has no relevant passage
    difference = test["differences"]["stage2 - GAR"]["RR@10"]["mean"]
    assert difference == pytest.approx(figures["test/stage2/RR@10"] - figures["test/GAR/RR@10"], abs=2e-6)
    for name in ("per_query.parquet", "answers.parquet"):
        assert {"GAR", "DPR-PAQ (one)"} < {*pq.read_table(tmp_path / "out" / name)["system"].to_pylist()}
    assert "DPR-PAQ (one)" in printed(metrics)


def test_paths_and_their_order_do_not_change_the_artifact(collection, folders, systems, tmp_path):
    reordered = {name: path.rename(tmp_path / f"moved{path.suffix}") for name, path in reversed(systems.items())}
    for name, path in reordered.items():
        systems[name].write_bytes(path.read_bytes())
    for out, files in (("one", systems), ("two", reordered)):
        evaluated(collection, tmp_path / out, with_systems(files, ["stage2", "GAR"]), **folders)
    for name in ("metrics.json", "per_query.parquet", "answers.parquet"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_any_runs_can_be_fused_each_with_its_own_reason(collection, folders, systems, tmp_path):
    joined = (["pretrained", "GAR"], ["bm25", "stage2", "GAR"], ["stage2", "DPR-PAQ (one)"], ["bm25", "stage2"])
    figures, metrics = evaluated(collection, tmp_path / "out", with_systems(systems, *joined), **folders)
    assert list(metrics["fusions"]) == ["pretrained + GAR", "bm25 + stage2 + GAR", "stage2 + DPR-PAQ (one)"]
    reasons = {name: chosen["why"] for name, chosen in metrics["fusions"].items()}
    assert reasons["pretrained + GAR"] == "default: 2 dev questions, fewer than 50"
    assert reasons["stage2 + DPR-PAQ (one)"] == "default: one of its runs has no dev questions"
    assert "stage2 + DPR-PAQ (one)" not in metrics["splits"]["dev"]["systems"]
    assert metrics["labels"]["bm25 + stage2 + GAR"] == "BM25 + stage 2 + GAR"
    assert "pretrained + GAR - pretrained" in metrics["splits"]["test"]["differences"]
    assert figures["test/bm25 + stage2 + GAR/R@100"] == pytest.approx(1)
    assert figures["bm25 + stage2 + GAR/weight"] == pytest.approx(1 / 3)
    assert metrics["labels"]["fusion"] == "BM25 + stage 2"


def test_an_adapted_model_is_compared_with_its_start_alone_and_fused(collection, folders, tmp_path):
    config = CONFIG.model_copy(update={"fusions": [["bm25", "model"]]})
    given = {"bm25": folders["bm25"], "model": folders["pretrained"], "adapted": folders["stage2"]}
    _, metrics = evaluated(collection, tmp_path / "out", config, **given)
    assert metrics["dense"] == "adapted"
    assert metrics["labels"]["fusion"] == "BM25 + adapted without questions"
    of_parts = ["fusion - bm25", "fusion - adapted", "bm25 + model - bm25", "bm25 + model - model"]
    expected = ["adapted - model", *of_parts, "fusion - bm25 + model"]
    assert list(metrics["splits"]["test"]["differences"]) == expected
    figures = metrics["splits"]["test"]["systems"]
    difference = metrics["splits"]["test"]["differences"]["fusion - bm25 + model"]["nDCG@10"]
    expected = figures["fusion"]["nDCG@10"]["mean"] - figures["bm25 + model"]["nDCG@10"]["mean"]
    assert difference["mean"] == pytest.approx(expected, abs=1e-9)


def test_fine_tuning_is_compared_with_its_start_also_if_the_start_is_adapted() -> None:
    names = ["bm25", "pretrained", "adapted", "stage1", "stage2", "fusion"]
    assert compared(names, [], {"fusion": ["bm25", "stage2"]}) == [
        ("adapted", "pretrained"),
        ("stage1", "pretrained"),
        ("stage2", "stage1"),
        ("fusion", "bm25"),
        ("fusion", "stage2"),
    ]


@pytest.mark.parametrize(
    ("systems", "fusions", "message"),
    [
        ({"stage1": "x"}, [], r"systems\.stage1 is what the flow calls one of its own rows"),
        ({"Stage 2, round 2": "x"}, [], "systems"),
        ({"Fusion": "x"}, [], r"systems\.Fusion is what"),
        ({"BM25": "x"}, [], r"systems\.BM25 is what"),
        ({"model": "x"}, [], r"systems\.model is what"),
        ({"existing model": "x"}, [], r"systems\.existing model is what"),
        ({"adapted": "x"}, [], r"systems\.adapted is what"),
        ({"a - b": "x"}, [], "should match pattern"),
        ({"a/b": "x"}, [], "should match pattern"),
        ({"GAR": "x"}, [["bm25", "GRA"]], "fusions: no system 'GRA'"),
        ({"GAR": "x"}, [["GAR"]], "at least 2 items"),
        ({"GAR": "x"}, [["GAR", "GAR"]], "a system appears twice in GAR"),
        ({"GAR": "x"}, [["GAR", "bm25"], ["GAR", "bm25"]], "one appears twice"),
    ],
)
def test_ambiguous_and_invalid_names_are_refused(systems, fusions, message):
    with pytest.raises(ValidationError, match=message):
        with_systems(systems, *fusions)


def test_a_fusion_of_a_run_that_the_recipe_does_not_build_is_refused(collection, folders, systems, tmp_path):
    config = with_systems(systems, ["stage2-2", "GAR"])
    with pytest.raises(InputError, match="fusions: this recipe has no run 'stage2-2'; its own are bm25, pretrained"):
        evaluated(collection, tmp_path / "out", config, **folders)
    assert fusion_rows(config, ["bm25", "stage2", "stage2-2"])["stage2-2 + GAR"] == ["stage2-2", "GAR"]


def test_bad_run_files_are_refused(collection, folders, systems, tmp_path):
    twice = write_trec(tmp_path / "twice", {"t0": "121"})
    with pytest.raises(InputError, match="twice:3: this passage appears twice for its question"):
        evaluated(collection, tmp_path / "one", with_systems({"GAR": twice}), **folders)
    unknown = write_trec(tmp_path / "unknown", {"t0": "12345678"})
    with pytest.raises(InputError, match="unknown:6: unknown passage id 'p6'"):
        evaluated(collection, tmp_path / "two", with_systems({"GAR": unknown}), **folders)
    other = write_trec(tmp_path / "other", {"x": "1"})
    with pytest.raises(InputError, match="other: none of its questions is one"):
        evaluated(collection, tmp_path / "three", with_systems({"GAR": other}), **folders)
    (tmp_path / "bad").write_text("one two\n")
    lines = missing(with_systems({**systems, "bad": tmp_path / "bad", "absent": tmp_path / "absent"}))
    assert len(lines) == 1  # the caller reports missing files
    assert lines[0].startswith("evaluate.systems.bad: ")
    assert "bad:1: 6 columns expected" in lines[0]


def test_bad_runs_are_refused(collection, folders, tmp_path):
    rows = pq.read_table(folders["stage2"] / "run.parquet")
    nan = rows.set_column(4, "score", pa.array(np.full(len(rows), np.nan, np.float32)))
    pq.write_table(nan, folders["stage2"] / "run.parquet")
    with pytest.raises(InputError, match="score is NaN"):
        evaluated(collection, tmp_path / "out", **folders)


def test_no_relevant_passage_is_an_error(collection, folders, tmp_path):
    write_table(collection / "qrels.parquet", schemas()["qrels"], [("test", "t3", "p0", 0)])
    with pytest.raises(InputError, match=r"qrels\.parquet: no dev or test question has a run and a relevant passage"):
        evaluated(collection, tmp_path / "out", **folders)


def test_an_existing_model_is_searched_without_questions_to_measure_with(collection, folders, tmp_path):
    """Nothing is measured, and BM25 and the model are fused by default; with questions, a run must have some."""
    given = {"bm25": folders["bm25"], "model": folders["pretrained"], "adapted": folders["stage2"]}
    empty = {name: write_run(tmp_path / f"empty-{name}", {}) for name in given}
    with pytest.raises(InputError, match=r"no dev or test question has a run"):
        evaluated(collection, tmp_path / "no-run", **empty)
    write_table(collection / "qrels.parquet", schemas()["qrels"], [])
    figures, metrics = evaluated(collection, tmp_path / "out", **given)
    default = {"method": "z_score_sum", "weight": 0.5, "chosen_on_dev": False, "why": "default: no dev questions"}
    assert (metrics["splits"], metrics["fusion"], metrics["winner_on_dev"]) == ({}, default, None)
    assert figures == {"fusion/method": "z_score_sum", "fusion/weight": 0.5, "winner_on_dev": None}
    assert (default_system(metrics), shown_split(metrics), tables(metrics)) == ("fusion", None, [])
    how = "BM25 + adapted without questions: z-normalised scores, the first with weight 0.5 (default: no dev questions)"
    assert notes(metrics) == all_notes(metrics) == [NO_QUESTIONS, how]
    one_way = CONFIG.model_copy(update={"fusion_methods": ["weighted_sum"], "fusion_weights": [0.25]})
    assert evaluated(collection, tmp_path / "one", one_way, **given)[1]["fusion"]["why"] == "as requested"
    assert evaluated(collection, tmp_path / "two", model=given["model"])[1]["fusion"] is None


def test_the_printed_table(collection, folders, tmp_path):
    _, metrics = evaluated(collection, tmp_path / "out", **folders)
    text = printed(metrics)
    for part in ("3 questions", "MRR@10", "nDCG@10", "R@100", "BM25 + stage 2", "pre-trained only", ".500 ["):
        assert part in text


def test_weights_outside_0_and_1_are_refused():
    with pytest.raises(ValidationError, match=r"fusion_weights\.0"):
        EvaluateConfig(**{**CONFIG.model_dump(), "fusion_weights": [1.0]})


def test_each_questions_figures_are_kept_to_the_last_bit():
    """Their sums are compared: 1/2 + 1/6 and 1/3 + 1/3 are a tie."""
    table = measure_rows("dev", "bm25", ["q"], {"q": [1 / 3] * len(MEASURES)}, {})
    assert table["RR@10"].to_pylist() == [1 / 3]
