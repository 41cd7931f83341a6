"""Run files are fused without a collection."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from writing import put

from flows.recipes.recipe import resolve
from pipeline.data.collection import schemas, write_table
from pipeline.data.run_files import run_file_rows
from pipeline.errors import InputError
from pipeline.evaluate.fusion.choice import ways_of
from pipeline.evaluate.fusion.files import WAYS, fuse_files


def trec(folder: Path, name: str, **lists: str) -> Path:
    """lists: question=passages, each a letter, best first; scores descend from the number of passages."""
    return put(
        folder,
        name,
        *(f"{q} Q0 {p} 1 {len(passages) - n} x" for q, passages in lists.items() for n, p in enumerate(passages)),
    )


def lists_in(path: Path) -> dict[str, str]:
    lists: dict[str, str] = {}
    for _, query_id, passage_id, _, _ in run_file_rows(path):
        lists[query_id] = lists.get(query_id, "") + passage_id
    return lists


def join(*paths: Path, out: Path | None = None, **settings):
    fields = {"qrels": None, "method": None, "weight": None, "relevance": 1, "depth": 1000}
    return fuse_files(paths, out or paths[0].parent / "out", **fields | settings)


def test_without_judgements_all_runs_have_equal_weights(tmp_path):
    first, second, third = (
        trec(tmp_path, name, q=passages) for name, passages in (("one", "abc"), ("two", "cb"), ("three", "bd"))
    )
    fused = join(first, second, third)
    assert (fused.method, fused.weight, fused.chosen_on_dev, fused.measured) == ("z_score_sum", 1 / 3, False, {})
    assert fused.why == "default: no dev questions"
    scores = {passage_id: score for _, _, passage_id, score, _ in run_file_rows(tmp_path / "out")}
    shares_NP = np.array([[1, 0.5, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])  # of a to d
    z_NP = (shares_NP - shares_NP.mean(1)[:, None]) / shares_NP.std(1)[:, None]
    assert [scores[p] for p in "abcd"] == pytest.approx(z_NP.mean(0).tolist())
    assert lists_in(tmp_path / "out") == {"q": "bacd"}


@pytest.mark.parametrize(
    ("settings", "method", "weight", "why"),
    [
        ({"method": "reciprocal_rank"}, "reciprocal_rank", 0.5, "default: no dev questions"),
        ({"weight": 0.3}, "z_score_sum", 0.3, "default: no dev questions"),
        ({"method": "weighted_sum", "weight": 0.3}, "weighted_sum", 0.3, "as requested"),
        ({"judged": "q 0 c 1"}, "z_score_sum", 0.5, "default: 1 dev question, fewer than 50"),
        ({"judged": "q 0 elsewhere 1"}, "z_score_sum", 0.5, "default: 1 dev question, fewer than 50"),
    ],
)
def test_the_default_is_reported_with_the_reason(settings, method, weight, why, tmp_path):
    first, second = trec(tmp_path, "one", q="abc"), trec(tmp_path, "two", q="cb")
    judged = settings.pop("judged", None)
    fused = join(first, second, **settings, qrels=judged and put(tmp_path, "qrels", judged))
    assert (fused.method, fused.weight, fused.chosen_on_dev, fused.why) == (method, weight, False, why)


def test_the_ways_are_those_of_the_recipes():
    assert ways_of(resolve("squad").evaluate) == WAYS


def test_judgements_are_measured_whether_or_not_they_choose(tmp_path):
    first, second = trec(tmp_path, "one", q="abc", r="xyz"), trec(tmp_path, "two", q="cba", r="zx", s="a")
    qrels = put(tmp_path, "qrels", "q 0 c 1", "r 0 z 2", "r 0 x 0", "nobody 0 a 1")
    fused = join(first, second, qrels=qrels)
    table = tmp_path / "qrels.parquet"
    write_table(
        table,
        schemas()["qrels"],
        [("dev", "q", "c", 1), ("dev", "r", "z", 2), ("dev", "nobody", "a", 1), ("test", "q", "a", 1)],
    )
    assert join(first, second, qrels=table) == fused
    assert (fused.questions, fused.judged, fused.unlisted) == (3, 3, 1)  # `nobody` is in no run, `s` not judged
    assert fused.measured == {
        str(first): pytest.approx(2 / 9, abs=1e-6),
        str(second): 0.666667,
        "fused": pytest.approx((1 / 3 + 1 / 2) / 3, abs=1e-6),  # c is equal to a and b, z is behind x
    }
    assert lists_in(tmp_path / "out")["s"] == "a"
    by_hand = join(first, second, qrels=qrels, method="reciprocal_rank", weight=0.1)
    assert (by_hand.weight, by_hand.chosen_on_dev, by_hand.measured["fused"]) == (0.1, False, 0.666667)


def test_judgements_of_many_questions_choose_the_settings_that_are_not_set(tmp_path):
    questions = [f"q{n}" for n in range(60)]
    first = trec(tmp_path, "one", **dict.fromkeys(questions, "abcd"))
    second = trec(tmp_path, "two", **dict.fromkeys(questions, "dcab"))
    qrels = put(tmp_path, "qrels", *(f"{q} 0 d 1" for q in questions))
    fused = join(first, second, qrels=qrels)
    assert fused.chosen_on_dev
    assert fused.weight < 0.5
    assert fused.measured == {str(first): 0.25, str(second): 1, "fused": 1}
    assert fused.why == "better than the default on 60 dev questions, p = .003"
    assert join(first, second, qrels=qrels, method="weighted_sum").method == "weighted_sum"
    by_hand = join(first, second, qrels=qrels, method="reciprocal_rank", weight=0.9)
    assert (by_hand.weight, by_hand.why, by_hand.measured["fused"]) == (0.9, "as requested", 0.25)


def test_grades_below_the_threshold_are_not_relevant(tmp_path):
    first, second = trec(tmp_path, "one", q="ab"), trec(tmp_path, "two", q="ba")
    qrels = put(tmp_path, "qrels", "q 0 a 1", "q 0 b 2")
    assert join(first, second, qrels=qrels, relevance=2).measured[str(second)] == 1
    with pytest.raises(InputError, match="qrels: no question of the runs has a relevant passage in this file"):
        join(first, second, qrels=qrels, relevance=3)


def test_depth_cuts_each_question(tmp_path):
    first, second = trec(tmp_path, "one", q="abc", r="ab"), trec(tmp_path, "two", q="abd", r="b")
    join(first, second, depth=2)
    assert {q: len(ids) for q, ids in lists_in(tmp_path / "out").items()} == {"q": 2, "r": 2}


def test_questions_that_a_run_does_not_have_are_counted(tmp_path):
    first, second = trec(tmp_path, "one", q="ab", r="a"), trec(tmp_path, "two", r="b", s="b")
    fused = join(first, second)
    assert (fused.questions, fused.partial) == (3, 2)
    assert join(first, trec(tmp_path, "three", r="b", q="a")).partial == 0


def test_more_questions_than_one_batch_are_fused(tmp_path):
    lists = {f"q{n}": "ab" if n % 2 else "ba" for n in range(1100)}
    first, second = trec(tmp_path, "one", **lists), trec(tmp_path, "two", **lists)
    join(first, second)
    assert lists_in(tmp_path / "out") == lists


def test_compressed_files_and_files_of_three_columns_are_read(tmp_path):
    compressed = tmp_path / "one.gz"
    compressed.write_bytes(gzip.compress(trec(tmp_path, "one", q="ab").read_bytes()))
    join(compressed, put(tmp_path, "two", "q\tb\t1", "q\ta\t2"), weight=0.9)
    assert lists_in(tmp_path / "out") == {"q": "ab"}


def test_bad_input_is_reported_before_anything_is_written(tmp_path):
    first, second = trec(tmp_path, "one", q="ab"), trec(tmp_path, "two", q="aba")
    for paths, settings, message in (
        ([first], {}, "one: only one run"),
        ([first, first], {}, "one: duplicate run file"),
        ([first, tmp_path / "no"], {}, "no: no such file"),
        ([first, second], {"qrels": tmp_path / "no"}, "no: no such file"),
        ([first, second], {"weight": 1.0}, "--weight 1: must be greater than 0"),
        ([first, second], {}, r"two:\d+: this passage appears twice for its question"),
    ):
        with pytest.raises(InputError, match=message):
            join(*paths, **settings)
    with pytest.raises(InputError, match="its folder does not exist"):
        join(first, second, out=tmp_path / "no" / "out")
    assert not (tmp_path / "out").exists()


def test_input_files_are_neither_overwritten_nor_read_twice(tmp_path):
    first, second = trec(tmp_path, "one", q="ab"), trec(tmp_path, "out.part", q="ba")
    qrels = put(tmp_path, "qrels", "q 0 a 1")
    link = tmp_path / "link"
    link.symlink_to(first)
    for paths, settings, message in (
        ([first, link], {}, "link: duplicate run file"),
        ([first, second], {"out": first}, "--out .*one: would overwrite .*one, an input file"),
        ([first, second], {"out": link}, "--out .*link: would overwrite .*one, an input file"),
        ([first, second], {"out": qrels, "qrels": qrels}, "would overwrite .*qrels"),
        ([first, second], {"out": tmp_path / "out"}, r"would overwrite .*out\.part"),
    ):
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(InputError, match=message):
            join(*paths, **settings)
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_output_that_cannot_be_written_is_reported_in_one_line_and_is_unchanged(tmp_path):
    first, second = trec(tmp_path, "one", q="ab"), trec(tmp_path, "two", q="ba")
    with pytest.raises(InputError, match="--out /dev/full: cannot be written: No space left on device"):
        join(first, second, out=Path("/dev/full"))
    assert Path("/dev/full").is_char_device()
    out = put(tmp_path, "out", "older")
    link = tmp_path / "link"
    link.symlink_to(out)
    blocking = tmp_path / "out.part"
    blocking.mkdir()
    with pytest.raises(InputError, match="link: cannot be written: Is a directory"):
        join(first, second, out=link)
    assert out.read_text() == "older\n"
    blocking.rmdir()
    join(first, second, out=link)
    assert link.is_symlink()
    assert lists_in(out) == {"q": "ab"}
    assert not list(tmp_path.glob("*.part"))
