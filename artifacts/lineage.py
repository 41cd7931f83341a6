"""Everything that artifacts were made from, by the store's records."""

from collections.abc import Collection, Iterable, Iterator, Sequence
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

    @property
    def node(self) -> str:
        """What tells it from others: the key of its record. Equal bytes may have several, each made in its own way."""
        return self.record.key if self.record is not None else self.identity


def ancestry(store: Store, ends: Iterable[Made]) -> list[Made]:
    """What leads to `ends` and these themselves, each record once, after all that it was made from.

    A record names its inputs by their identity and, in newer versions, by their keys. Where several keys gave the same
    bytes, the record stands for an input that was read; see `_Chooser`. None stands for one that it led to: no record
    is made from itself.
    """
    ends = list(ends)
    chooser = _Chooser(store.records(), {end.record.key for end in ends if end.record is not None})
    found: dict[str, Made] = {}
    path: dict[str, tuple[Made, Iterator[tuple[str, str]]]] = {}

    def enter(made: Made) -> None:
        path[made.node] = made, iter(made.record.inputs.items() if made.record is not None else ())

    for end in ends:
        if end.node not in found:
            enter(end)
        while path:  # not by recursion: a chain may be longer than Python's stack
            node, (made, inputs) = next(reversed(path.items()))
            given = next(inputs, None)
            if given is None:
                found[node] = made
                del path[node]
            elif made.record is not None:
                parameter, identity = given
                before = Made(parameter, identity, chooser.choose(made.record, parameter, path.keys(), found.keys()))
                if before.node not in found:
                    enter(before)
    return list(found.values())


class _Chooser:
    """Finds the record that stands for an input, among those that gave its bytes."""

    def __init__(self, records: Sequence[Record], ends: set[str]) -> None:
        self.records = {record.key: record for record in records}
        self.ends = ends
        self.of_identity: dict[str, list[Record]] = {}
        for record in records:
            self.of_identity.setdefault(record.identity, []).append(record)

    def choose(self, reader: Record, parameter: str, path: Collection[str], done: Collection[str]) -> Record | None:
        """The record of the input `parameter` of `reader`; None where the store has none that can be meant.

        First comes what the run itself names of the same node, then the record that was read, then those of the same
        recipe, of these the newest. `path`: keys of the reader and of what leads from it to the end; what cannot be
        made without these is none of its inputs. `done`: keys that are in the lineage already.
        """
        read = (reader.input_keys or {}).get(parameter)
        node = self.records[read].node if read in self.records else None

        def order(record: Record) -> tuple[bool, bool, bool]:
            stands_for_it = record.key in self.ends and node in (None, record.node)
            return not stands_for_it, record.key != read, record.recipe != reader.recipe

        given = sorted(self.of_identity.get(reader.inputs[parameter], []), key=order)
        if not given:
            return None
        if given[0].key in done:
            return given[0]
        # Where what came first has lost its record, only what was read, or was there before, is believed.
        believed = [r for r in given if r.key not in path and (r.key == read or r.created < reader.created)]
        if len(given) == 1 and believed:
            return given[0]
        makeable = self._makeable(path)
        return next((r for r in given if r.key in done or r.key in makeable), next(iter(believed), None))

    def _makeable(self, without: Collection[str]) -> set[str]:
        """Keys of the records that can be made, step by step, without those in `without`."""
        waiting: dict[str, set[str]] = {}
        readers: dict[str, list[str]] = {}
        for key, record in self.records.items():
            if key not in without:
                waiting[key] = {identity for identity in record.inputs.values() if identity in self.of_identity}
                for identity in waiting[key]:
                    readers.setdefault(identity, []).append(key)
        ready = [key for key, inputs in waiting.items() if not inputs]
        made: set[str] = set()
        while ready:
            made.add(key := ready.pop())
            identity = self.records[key].identity
            for reader in readers.pop(identity, []):
                waiting[reader].discard(identity)
                if not waiting[reader]:
                    ready.append(reader)
        return made
