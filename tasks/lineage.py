"""What the report tells of everything that a run was made from."""

import hashlib
from collections.abc import Mapping

from artifacts.keys import canonical
from artifacts.lineage import BuiltArtifact, ancestry
from artifacts.records import Record, Ref
from artifacts.store import Store
from pipeline.notices import read_notices
from pipeline.report.lineage import Step


def steps(store: Store, inputs: Mapping[str, Ref | None]) -> list[Step]:
    """The artifacts that lead to `inputs` and these themselves, each once, after all that it was made from.

    What the store has no record of any more is a step without figures.
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
        versions=record.versions,
        created=building_record(store, record).created,
        notices=tuple(read_notices(record.metrics)),
    )


def code_of(store: Store, record: Record) -> str:
    """A digest of the code that made it, which for a kept artifact is the older one's."""
    return hashlib.sha256(canonical(building_record(store, record).code)).hexdigest()


def building_record(store: Store, record: Record) -> Record:
    """The record of the making: of a kept artifact that which it was kept from, as far as it is there."""
    seen = {record.key}
    while record.kept_from is not None and record.kept_from not in seen:  # code changed there and back is a ring
        older = store.record(record.kept_from)
        if older is None:
            break
        record = older
        seen.add(record.key)
    return record
