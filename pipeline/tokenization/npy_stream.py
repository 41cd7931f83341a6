"""A .npy file of one dimension that grows, for data that does not fit in memory."""

from pathlib import Path

import numpy as np


class Flat:
    """Appends to PATH as .npy. The header, which gives the length, is put right on `close`."""

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.length = 0
        self._file = path.open("wb")
        self._write_header()

    def write(self, values: np.ndarray) -> None:
        """Append `values`, [n], as the file's type."""
        self._file.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def close(self) -> None:
        """Until then the file reads as empty."""
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        # NumPy pads the header so that the first dimension may grow in place: its size is the same for any length.
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)
