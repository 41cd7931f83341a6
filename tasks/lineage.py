"""The lineage that a stage receives (`Stage.lineage`): everything that its inputs were built from."""

import hashlib
from collections.abc import Mapping

from artifacts.keys import canonical
from artifacts.lineage import BuiltArtifact, ancestry
from artifacts.records import Record, Ref
from artifacts.store import Store
from pipeline.notices import read_notices
from pipeline.runtime.lineage import Step


def steps(store: Store, inputs: Mapping[str, Ref | None]) -> list[Step]:
    """Returns `inputs` and all artifacts that they were built from, each once and after its own inputs.

    An artifact without a record in the store is a step without figures.
    """
    ends = [BuiltArtifact(name, ref.identity, store.record(ref.key)) for name, ref in inputs.items() if ref is not None]
    return [step(store, m.record) if m.record else unknown(m) for m in ancestry(store, ends)]


def unknown(made: BuiltArtifact) -> Step:
    return Step(made.name, "", made.identity, "", False, None, None, {}, "")


def step(store: Store, record: Record) -> Step:
    return Step(
        node=record.node,
        stage=record.stage,
        digest=record.digest,
        code=code_of(store, record),
        kept=record.kept_from is not None,
        seconds=record.seconds,
        gpus=record.gpus,
        precision=record.precision,
        versions=record.versions,
        created=building_record(store, record).created,
        notices=tuple(read_notices(record.metrics)),
        questions_per_second=search_speed(record),
    )


def search_speed(record: Record) -> float | None:
    """Returns the questions per second of a search, of one core or GPU."""
    found = record.metrics.get("questions_per_second")
    return float(found) if isinstance(found, int | float) else None


def code_of(store: Store, record: Record) -> str:
    """Returns a digest of the code that built it; for a kept artifact this is the older code."""
    return hashlib.sha256(canonical(building_record(store, record).code)).hexdigest()


def building_record(store: Store, record: Record) -> Record:
    """Returns the record of the build: for a kept artifact the oldest existing record that it was kept from."""
    seen = {record.key}
    while record.kept_from is not None and record.kept_from not in seen:  # changed and reverted code gives a cycle
        older = store.record(record.kept_from)
        if older is None:
            break
        record = older
        seen.add(record.key)
    return record
