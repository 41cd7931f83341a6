"""Run files are evaluated without a collection."""

import bz2
import gzip
import lzma
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner
from writing import put

from flows.cli.main import app
from pipeline.data.qrels import read_qrels
from pipeline.data.run_files import run_file_rows
from pipeline.data.text.text_files import columns, json_list
from pipeline.errors import InputError
from pipeline.evaluate.measures import MEASURES
from pipeline.evaluate.run_files import Counts, Evaluated, evaluate_files
from pipeline.evaluate.shallow import shallow
from pipeline.negatives.from_file import tsv_records
from pipeline.paths import without_common_folder

DATA = Path(__file__).parents[3].parent / "shared" / "data" / "msmarco_pieces"


def evaluated(*paths: Path, qrels: Path, relevance: int = 1) -> Evaluated:
    return evaluate_files(paths, qrels, relevance, "randomisation", samples=100, seed=1)


def mean(result: Evaluated, path: Path, measure: str) -> float:
    return result.systems[str(path)][measure]["mean"]


@pytest.mark.data
@pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not there")
def test_a_published_run_gets_its_published_figures():
    """BM25 on the judged queries of DL 2019: figures of ir-measures 0.4.3 to four digits, relevant from grade 2."""
    run = DATA / "bm25.dl19-judged.run.gz"
    result = evaluated(run, qrels=DATA / "2019qrels-pass.txt", relevance=2)
    published = {"nDCG@10": 0.4795, "RR@100": 0.6416, "R@1000": 0.7553, "AP": 0.2864}
    assert {name: round(mean(result, run, name), 4) for name in published} == published
    assert result.questions == 43


def test_order_is_by_score_and_then_by_line(tmp_path):
    """Ranks are ignored. An order by ids, as in trec_eval, would reverse p3, p2 and p1."""
    qrels = put(tmp_path, "qrels", "q 0 p1 1", "r 0 p2 1")
    rows = ["q Q0 p2 1 1.0 x", "q Q0 p1 2 5.0 x", "r Q0 p3 9 1.0 x", "r Q0 p2 1 1.0 x", "r Q0 p1 1 1.0 x"]
    run = put(tmp_path, "run", *rows)
    result = evaluated(run, qrels=qrels)
    assert mean(result, run, "RR@10") == (1 + 1 / 2) / 2
    marco = put(tmp_path, "run.tsv", "q p1 1", "q p2 2", "r p3 1", "r p2 2")  # MS MARCO's columns
    assert mean(evaluated(marco, qrels=qrels), marco, "RR@10") == (1 + 1 / 2) / 2


def test_ties_do_not_depend_on_the_other_runs(tmp_path):
    qrels = put(tmp_path, "qrels", "q 0 a 1")
    run = put(tmp_path, "run", "q Q0 a 1 1 x", "q Q0 b 1 1 x")
    other = put(tmp_path, "other", "q Q0 b 1 2 x", "q Q0 a 1 1 x")
    assert mean(evaluated(other, run, qrels=qrels), run, "RR@10") == 1.0


def test_differences_are_paired_by_question(tmp_path):
    qrels = put(tmp_path, "qrels", *(f"q{n} 0 a 1" for n in range(4)))
    good = put(tmp_path, "good", *(f"q{n} Q0 a 1 2 x" for n in range(4)))
    poor = put(tmp_path, "poor", "q0 Q0 a 1 2 x", *(f"q{n} Q0 b 1 2 x" for n in range(4)))
    result = evaluated(poor, good, qrels=qrels)
    [difference] = result.differences
    assert (difference.a, difference.b) == (str(good), str(poor))
    figures = difference.measures["Success@5"]
    assert {key: figures[key] for key in ("mean", "p", "p_holm", "wins", "ties", "losses")} == {
        "mean": 0.75, "p": 0.25, "p_holm": 0.25, "wins": 3, "ties": 1, "losses": 0
    }  # fmt: skip
    assert 0.0 <= figures["low"] < 0.75 < figures["high"] <= 1.0


def test_questions_without_results_count_as_zero_and_are_counted(tmp_path):
    qrels = put(tmp_path, "qrels", "q 0 a 1", "r 0 a 1", "s 0 a 0")
    run = put(tmp_path, "run", "q Q0 a 1 2 x", "q Q0 b 2 1 x", "s Q0 a 1 1 x", "unknown Q0 a 1 1 x")
    result = evaluated(run, qrels=qrels)
    assert (result.questions, result.questions_without_relevant) == (2, 1)
    assert result.counts == {
        str(run): Counts(
            4, rows_of_other_questions=2, questions_without_results=1, cut_at=2, shallow=shallow(2, MEASURES)
        )
    }
    assert mean(result, run, "RR@10") == 0.5


def test_binary_measures_use_the_relevance_threshold_and_ndcg_uses_grades(tmp_path):
    qrels = put(tmp_path, "qrels", "q 0 a 1", "q 0 b 2")
    run = put(tmp_path, "run", "q Q0 a 1 2 x", "q Q0 b 2 1 x")
    low, high = (evaluated(run, qrels=qrels, relevance=threshold) for threshold in (1, 2))
    assert (mean(low, run, "RR@10"), mean(high, run, "RR@10")) == (1.0, 0.5)
    assert mean(low, run, "nDCG@10") == mean(high, run, "nDCG@10") < 1


def test_bad_files_are_reported_in_one_line(tmp_path):
    qrels = put(tmp_path, "qrels", "q 0 a 1")
    good = put(tmp_path, "good", "q Q0 a 1 1 x")

    def assert_refused(line: str, *rows: str, **settings) -> None:
        run = put(tmp_path, "run", *rows)
        with pytest.raises(InputError, match=line):
            evaluated(run, **{"qrels": qrels} | settings)

    assert_refused(
        r"run:3: this passage appears twice for its question$", "q Q0 a 1 3 x", "q Q0 b 2 2 x", "q Q0 a 3 1 x"
    )
    for score in ("nan", "inf", "best"):
        assert_refused(f"run:2: score '{score}' is not a number", "q Q0 a 1 3 x", f"q Q0 b 2 {score} x")
    for score in ("1_0", "１"):
        assert_refused(f"run:2: score '{score}' is not written as", "q Q0 a 1 3 x", f"q Q0 b 2 {score} x")
    for rank in ("x", "1_0", "1.5", "nan", "9" * 5000):
        assert_refused(
            f"run:2: rank '{rank[:9]}.*' (is not an integer|does not fit)", "q Q0 a 1 3 x", f"q Q0 b {rank} 2 x"
        )
        assert_refused(f"run:2: rank '{rank[:9]}.*' (is not an integer|does not fit)", "q a 1", f"q b {rank}")
    for rank in ("0", "-1"):
        assert_refused(f"run:2: rank {rank}, but ranks count from 1$", "q a 1", f"q b {rank}")
    assert_refused(r"run:4: this rank appears twice for its question$", "q a 1", "r a 1", "r b 2", "q b 1")
    assert_refused(r"run: empty file$")
    assert_refused(r"run: only blank lines$", "", " ")
    assert_refused(r"run: none of its questions has a relevant passage in .*qrels$", "other Q0 a 1 1 x")
    irrelevant = put(tmp_path, "irrelevant", "q 0 a 0")
    assert_refused(r"irrelevant: no question has a passage of relevance 1 or more$", "q Q0 a 1 1 x", qrels=irrelevant)
    with pytest.raises(InputError, match="good: duplicate run file"):
        evaluated(good, tmp_path / "." / "good", qrels=qrels)
    with pytest.raises(InputError, match=": is a folder; a file is expected"):
        evaluated(tmp_path, qrels=qrels)
    assert_refused("empty: no judgements$", "q Q0 a 1 1 x", qrels=put(tmp_path, "empty", "query-id\tcorpus-id\tscore"))


def test_a_compressed_file_without_its_ending_is_reported_with_the_right_name(tmp_path):
    qrels = put(tmp_path, "qrels", "q 0 a 1")
    for compress, ending in ((gzip.compress, "gzip: .* .gz"), (lzma.compress, "xz: .* .xz")):
        (tmp_path / "run").write_bytes(compress(b"q Q0 a 1 1 x\n"))
        with pytest.raises(InputError, match=f"run: is compressed by {ending}$"):
            evaluated(tmp_path / "run", qrels=qrels)
    with pa.CompressedOutputStream(str(tmp_path / "run"), "zstd") as file:
        file.write(b"q Q0 a 1 1 x\n")
    with pytest.raises(InputError, match=r"run: is compressed by zstd: its name must end in \.zst$"):
        evaluated(tmp_path / "run", qrels=qrels)
    (tmp_path / "list").write_bytes(gzip.compress(b"[{}]"))
    with pytest.raises(InputError, match="list: is compressed by gzip"):
        list(json_list(tmp_path / "list"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bz2.compress(b"q Q0 a 1 1 x\n"), "compressed by bzip2"),
        (b"BZh91AY&SY\n\xff", "compressed by bzip2"),  # the invalid byte is after the first line
        (b"PK\x03\x04\x14\0\0\0\x08\0\xff", "a zip archive"),
    ],
)
def test_an_unsupported_compression_is_reported(content, message, tmp_path):
    path = tmp_path / "run.packed"
    path.write_bytes(content)
    for read in (run_file_rows, read_qrels, json_list):
        with pytest.raises(InputError, match=rf"packed: is {message}: unpack it, or compress it as \.gz, \.xz, \.zst$"):
            [*read(path)]


@pytest.mark.parametrize("read", [run_file_rows, read_qrels, partial(columns, count=3), tsv_records])
def test_lines_that_end_with_cr_only_are_reported_as_in_csv(read, tmp_path):
    path = put(tmp_path, "table", "q\tp\t1\rq\tr\t2\r", end="")
    with pytest.raises(InputError, match="table: its lines end with CR only; save it with LF or CRLF, as by `tr "):
        [*read(path)]


def test_ranks_of_a_trec_run_are_ignored(tmp_path):
    qrels = put(tmp_path, "qrels", "q 0 b 1")
    run = put(
        tmp_path, "run", *(f"q Q0 {p} {rank} {n} x" for n, (p, rank) in enumerate([("a", 0), ("b", -1), ("c", 0)]))
    )
    assert mean(evaluated(run, qrels=qrels), run, "RR@10") == 1 / 2
    ranks = put(tmp_path, "gaps.tsv", "q a 9", "q b 4")  # as in a run that was cut, in any order
    assert mean(evaluated(ranks, qrels=qrels), ranks, "RR@10") == 1.0


def test_names_that_hold_a_minus_are_distinguished(tmp_path):
    qrels = put(tmp_path, "qrels", "q 0 a 1", "q 0 b -1")
    result = evaluated(*(put(tmp_path, name, "q Q0 a 1 1 x") for name in ("c", "b - c", "a", "a - b")), qrels=qrels)
    assert len({(Path(pair.a).name, Path(pair.b).name) for pair in result.differences}) == 6
    assert {mean(result, tmp_path / name, "RR@10") for name in ("c", "b - c", "a", "a - b")} == {1.0}


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["judged/runs/a.trec", "judged/runs/b.trec"], ["a.trec", "b.trec"]),
        (["mine/run.trec", "yours/run.trec"], ["mine/run.trec", "yours/run.trec"]),
        (["runs/a/x.trec", "runs/b.trec"], ["a/x.trec", "b.trec"]),
        (["../runs/a.trec"], ["a.trec"]),
        (["/tmp/a.trec", "b.trec"], ["/tmp/a.trec", "b.trec"]),
    ],
)
def test_tables_name_files_without_their_common_folder(paths, names):
    assert without_common_folder(paths) == names


def test_the_command_shows_short_names(tmp_path):
    qrels = put(tmp_path, "qrels", "q 0 a 1")
    runs = [put(tmp_path, name, "q Q0 a 1 1 x") for name in ("first.trec", "second.trec")]
    shown = CliRunner().invoke(app, ["evaluate", *map(str, runs), "--qrels", str(qrels)]).stdout
    assert "second.trec − first.trec" in shown
    assert str(tmp_path) not in shown
