"""Groups of passages with almost equal texts, as ingest finds them (minhash.py) and others use them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.data.parquet import write_parquet
from pipeline.data.stored import read_table

FILE = "near_duplicates.parquet"


@dataclass(frozen=True)
class Groups:
    """The texts that have an almost equal one, by number."""

    row_U: np.ndarray
    """Ascending. int64."""
    first_U: np.ndarray
    """The first text of each one's group. int64."""

    def __len__(self) -> int:
        return len(self.row_U)

    @property
    def count(self) -> int:
        """The number of groups."""
        return int((self.row_U == self.first_U).sum())

    def first(self, row_R: np.ndarray) -> np.ndarray:
        """Returns the first text of each one's group; of a text without a group, the text itself."""
        if not len(self):
            return row_R
        place_R = np.searchsorted(self.row_U, row_R).clip(max=len(self) - 1)
        return np.where(self.row_U[place_R] == row_R, self.first_U[place_R], row_R)

    def others(self, row: int) -> np.ndarray:
        """Returns the other texts of a text's group, ascending."""
        first = self.first(np.array([row]))
        start, stop = (
            np.searchsorted(self.first_U, first, side, sorter=self._by_group)[0] for side in ("left", "right")
        )
        group = self.row_U[self._by_group[start:stop]]
        return group[group != row]

    @cached_property
    def _by_group(self) -> np.ndarray:
        return np.argsort(self.first_U, kind="stable")


def write_groups(collection: Path, groups: Groups) -> None:
    """Writes a row for each passage with an almost equal one: its row number, and that of its group's first passage."""
    import pyarrow as pa

    table = pa.table({"row": groups.row_U.astype(np.int64), "first_row": groups.first_U.astype(np.int64)})
    write_parquet(table, collection / FILE)


def read_groups(collection: Path) -> Groups:
    """Reads the groups; none if ingest did not look for them."""
    path = collection / FILE
    if not path.exists():
        return Groups(*np.zeros((2, 0), np.int64))
    table = read_table(path)
    return Groups(table["row"].to_numpy(), table["first_row"].to_numpy())
