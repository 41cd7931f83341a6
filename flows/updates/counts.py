"""What an update has read and encoded."""

from collections.abc import Mapping
from datetime import datetime

from artifacts.records import Ref
from artifacts.store import Store
from pipeline.formatting import counted


def update_counts(store: Store, refs: Mapping[str, Ref], started: datetime) -> dict[str, int]:
    """Counts of documents, passages and shards of an update. `started`: with time zone."""
    ingest = refs.get("ingest-whole") or refs["ingest"]
    encode = refs.get("encode-whole") or refs["encode-model"]
    record = store.record(encode.key)
    is_new = record is not None and datetime.fromisoformat(record.created) >= started
    shards = encode.metrics["shards"]
    reused = encode.metrics["shards_reused"] if is_new else shards  # an older artifact has the counts of its own build
    counts = {name: ingest.metrics[name] for name in ("documents", "passages")}
    return {**counts, "shards": shards, "shards_encoded": shards - reused, "shards_reused": reused}


def update_summary(counts: Mapping[str, int]) -> str:
    """One line with the counts of `update_counts`."""
    texts = ", ".join(counted(counts[name], name) for name in ("documents", "passages"))
    shards = f"{counts['shards_encoded']:,} of {counted(counts['shards'], 'shards')} encoded again"
    return f"{texts}: {shards}, {counts['shards_reused']:,} reused"
