"""Everything that an artifact was made from, by the store's records."""

import hashlib
from collections.abc import Mapping

from artifacts.keys import canonical
from artifacts.records import Record, Ref
from artifacts.store import Store
from pipeline.report.lineage import Step


def steps(store: Store, inputs: Mapping[str, Ref | None]) -> list[Step]:
    """The artifacts that lead to `inputs` and these themselves, each once, after all that it was made from.

    A record tells its inputs by their identity. Where several keys gave the same bytes, the record of the same recipe
    stands for them, else the newest. What the store has no record of any more is a step without figures.
    """
    of_identity: dict[str, list[Record]] = {}
    for record in store.records():
        of_identity.setdefault(record.identity, []).append(record)
    found: dict[str, Step] = {}

    def visit(name: str, identity: str, record: Record | None) -> None:
        if identity in found:
            return
        if record is None:
            found[identity] = Step(name, "", identity, "", False, None, None, {}, "")
            return
        for parameter, before in record.inputs.items():
            visit(parameter, before, one_of(of_identity.get(before, []), record.recipe))
        found[identity] = step(store, record)

    for name, ref in inputs.items():
        if ref is not None:
            visit(name, ref.identity, store.record(ref.key))
    return list(found.values())


def one_of(records: list[Record], recipe: str | None) -> Record | None:
    same = [record for record in records if record.recipe == recipe]
    return next(iter(same or records), None)


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
        created=made(store, record).created,
    )


def code_of(store: Store, record: Record) -> str:
    """A digest of the code that made it, which for a kept artifact is the older one's."""
    return hashlib.sha256(canonical(made(store, record).code)).hexdigest()


def made(store: Store, record: Record) -> Record:
    """The record of the making: of a kept artifact that which it was kept from, as far as it is there."""
    older = store.record(record.kept_from) if record.kept_from else None
    return record if older is None else made(store, older)
