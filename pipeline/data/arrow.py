"""Arrays of pyarrow to and from NumPy. pyarrow's own conversions import pandas, which takes longer than an answer.

Shapes: N values.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow


def text_array(texts: Sequence[str]) -> "pyarrow.Array":
    """Returns texts of at most 2 GiB in all as an array of type string."""
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    edges = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def integer_array(number_N: np.ndarray) -> "pyarrow.Array":
    """Returns integers as an array of type int64, without a copy if they have this type."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(number_N), [None, pa.py_buffer(np.ascontiguousarray(number_N, "i8"))])


def integers(array: Any) -> np.ndarray:
    """Returns the values of an integer array without nulls, int64 [N]."""
    return np.from_dlpack(array).astype(np.int64)
