"""Everything that artifacts were made from, by the store's records."""

from collections.abc import Iterable
from dataclasses import dataclass

from artifacts.records import Record
from artifacts.store import Store


@dataclass(frozen=True)
class Made:
    name: str
    """What its user calls it: the parameter that it was given as, or the name that `ancestry` was given."""
    identity: str
    record: Record | None
    """None where the store has no record of it any more."""


def ancestry(store: Store, ends: Iterable[Made]) -> list[Made]:
    """What leads to `ends` and these themselves, each identity once, after all that it was made from.

    A record tells its inputs by their identity. Where several keys gave the same bytes, the record of the same recipe
    stands for them, else the newest.
    """
    of_identity: dict[str, list[Record]] = {}
    for record in store.records():
        of_identity.setdefault(record.identity, []).append(record)
    found: dict[str, Made] = {}

    def visit(made: Made) -> None:
        if made.identity in found:
            return
        if made.record is not None:
            for parameter, before in made.record.inputs.items():
                visit(Made(parameter, before, _one_of(of_identity.get(before, []), made.record.recipe)))
        found[made.identity] = made

    for end in ends:
        visit(end)
    return list(found.values())


def _one_of(records: list[Record], recipe: str | None) -> Record | None:
    same = [record for record in records if record.recipe == recipe]
    return next(iter(same or records), None)
