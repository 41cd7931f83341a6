"""What the flow checks on its way."""

from pathlib import Path

import pytest

from artifacts.records import Ref
from flows.dag import nodes
from flows.flow import check_questions
from flows.recipe import resolve
from flows.selection import up_to
from pipeline.errors import InputError


def collection(**metrics: int) -> Ref:
    return Ref("ingest", "key", "digest", "digest", Path("nowhere"), metrics)


def test_without_training_questions_fine_tuning_fails_before_pre_training() -> None:
    dag = nodes(resolve("tiny"))
    with pytest.raises(InputError, match="stage1: the collection has no training questions"):
        check_questions(collection(passages=5, test_queries=3), dag)
    check_questions(collection(passages=5, train_queries=1), dag)
    check_questions(collection(passages=5), up_to(dag, "cocondenser"))
