"""How long work is cut into shards. Only this can change a byte of the result, because sums are built per shard."""

Span = tuple[int, int]
"""First row, row after the last."""


def shard_spans(rows: int, size: int) -> list[Span]:
    """Returns the shards of `size` rows each; the last may be smaller."""
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]
