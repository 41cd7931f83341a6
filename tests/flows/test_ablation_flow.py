"""What the flow of an ablation does between its parts."""

from pathlib import Path

import pytest
from searched import write_collection

from artifacts.records import Ref
from flows.ablation_file import load
from flows.ablation_flow import check_sizes
from flows.union import Needs, union
from pipeline.errors import InputError


def needs(size: int) -> list[Needs]:
    tiny = load("tiny").model_copy(update={"sizes": [size]})
    return union(tiny, [*tiny.rows]).needs


def test_sizes_are_compared_with_questions_not_with_judgements(tmp_path: Path) -> None:
    judged = [("train", "q0", "p0", 1), ("train", "q0", "p1", 1), ("train", "q1", "p0", 1), ("train", "q2", "p0", 0)]
    questions = [(name, "train", "question") for name in ("q0", "q1", "q2")]
    passages = [(f"p{n}", f"p{n}", "", "text") for n in range(2)]
    made = write_collection(tmp_path / "collection", passages, questions, judged)
    ingest = Ref("ingest", "key", "digest", "digest", made, {"train_relevant": 3})
    check_sizes(ingest, needs(2))
    with pytest.raises(InputError, match="sizes: 3 training questions asked for, but the collection has 2;"):
        check_sizes(ingest, needs(3))
