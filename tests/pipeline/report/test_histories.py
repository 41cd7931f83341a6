"""Reading a checkpoint's files to draw a training by epochs."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import InputError
from pipeline.report.trainings import dev_by_epoch, entropies, loss_by_epoch


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


@pytest.mark.parametrize("side", ["", "query"])
def test_losses_are_at_the_finished_epochs(tmp_path, side):
    losses, skipped = [4.0, 3.0, 2.0, 1.0], [0.0, 1.0, 0.0, 0.0]
    write(tmp_path / side / "history.parquet", step=[1, 2, 3, 4], loss=losses, skipped=skipped)
    assert loss_by_epoch(tmp_path, 2) == ([0.5, 1.5, 2.0], [4.0, 2.0, 1.0])
    assert loss_by_epoch(tmp_path, 1) == ([0.25, 0.75, 1.0], [4.0, 2.0, 1.0])
    # A number that does not fit is no error: a picture must not stop a table.
    assert loss_by_epoch(tmp_path, 3) == ([0.75, 2.25, 3.0], [4.0, 2.0, 1.0])


def test_missing_files_give_none(tmp_path):
    assert loss_by_epoch(tmp_path, 2) is None
    assert dev_by_epoch(tmp_path) is None


def test_dev_mrr_is_read_after_each_epoch(tmp_path):
    write(tmp_path / "validation.parquet", epoch=[1, 2], step=[10, 20], **{"RR@10": [0.25, 0.5]})
    assert dev_by_epoch(tmp_path) == ([1.0, 2.0], [0.25, 0.5])


def test_entropies_are_read_by_layer(tmp_path):
    models = ["pretrained", "pretrained", "stage1", "stage1"]
    write(tmp_path / "attention.parquet", model=models, layer=[1, 2, 1, 2], entropy=[4.0, 3.0, 2.0, 1.0])
    assert entropies(tmp_path) == {"pretrained": [4.0, 3.0], "stage1": [2.0, 1.0]}
    (tmp_path / "attention.parquet").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"attention\.parquet: cannot be read"):
        entropies(tmp_path)
