"""How long work is cut into shards: the one thing about shards that can change a byte, as sums go by them."""

Span = tuple[int, int]
"""First row, row after the last."""


def shard_spans(rows: int, size: int) -> list[Span]:
    """The shards of `size` rows each."""
    return [(start, min(start + size, rows)) for start in range(0, rows, size)]
