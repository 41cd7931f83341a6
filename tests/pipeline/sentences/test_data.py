"""The reader on STS-b's own files."""

import pytest
from machines import make_machine

from flows.sentences.recipe import resolve_sentences
from pipeline.runtime.work import Work, silent
from pipeline.sentences import tables
from pipeline.sentences.tables import sentence_table

pytestmark = pytest.mark.data


def test_the_files_of_stsb_are_read(shared_data, tmp_path) -> None:
    settings = [f"table.{split}={shared_data}/stsb/sts-{split}.csv" for split in ("train", "dev", "test")]
    config = resolve_sentences("stsb", settings).table
    metrics = sentence_table(config, Work(tmp_path, tmp_path, make_machine(), silent))
    assert [metrics[split] for split in ("train", "dev", "test")] == [5749, 1500, 1379]
    rows = tables.read_split(tmp_path, "train").to_pylist()
    assert rows[0] == {
        "line": 1, "sentence1": "A plane is taking off.", "sentence2": "An air plane is taking off.", "score": 1.0
    }  # fmt: skip
    assert sum('"' in row["sentence1"] or '"' in row["sentence2"] for row in rows) == 252
    assert {row["score"] for row in rows} >= {0.0, 0.5, 1.0}
