"""The lineage of artifacts: everything that they were built from, by the store's records."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from artifacts.records import Record
from artifacts.store import Store


@dataclass(frozen=True)
class BuiltArtifact:
    name: str
    """The name that its reader uses: the parameter of a stage, or the name passed to `ancestry`."""
    identity: str
    record: Record | None
    """None if the store no longer has its record."""

    @property
    def node(self) -> str:
        """Its unique name: the key of its record. Equal bytes may have several keys, each of another build."""
        return self.record.key if self.record is not None else self.identity


def ancestry(store: Store, ends: Iterable[BuiltArtifact]) -> list[BuiltArtifact]:
    """Returns `ends` and everything that led to them, each record once and after all of its inputs.

    A record names its inputs by identity and, in newer versions, by key. If several keys gave the same bytes,
    `_Chooser` picks the record of the input. A record never counts as an input of itself, directly or not.
    """
    ends = list(ends)
    chooser = _Chooser(store.records(), {end.record.key for end in ends if end.record is not None})
    finished: dict[str, BuiltArtifact] = {}
    path: dict[str, tuple[BuiltArtifact, Iterator[tuple[str, str]]]] = {}

    def enter(artifact: BuiltArtifact) -> None:
        path[artifact.node] = artifact, iter(artifact.record.inputs.items() if artifact.record is not None else ())

    for end in ends:
        if end.node not in finished:
            enter(end)
        while path:  # no recursion: a chain may be longer than Python's stack
            node, (artifact, inputs) = next(reversed(path.items()))
            next_input = next(inputs, None)
            if next_input is None:
                finished[node] = artifact
                del path[node]
            elif artifact.record is not None:
                parameter, identity = next_input
                record = chooser.choose(artifact.record, parameter, path.keys(), finished.keys())
                parent = BuiltArtifact(parameter, identity, record)
                if parent.node not in finished:
                    enter(parent)
    return list(finished.values())


class _Chooser:
    """Finds the record of an input among all records with its bytes."""

    def __init__(self, records: Sequence[Record], ends: set[str]) -> None:
        self.records = {record.key: record for record in records}
        self.ends = ends
        self.of_identity: dict[str, list[Record]] = {}
        for record in records:
            self.of_identity.setdefault(record.identity, []).append(record)

    def choose(self, reader: Record, parameter: str, path: Collection[str], done: Collection[str]) -> Record | None:
        """Returns the record of the input `parameter` of `reader`; None if the store has no possible record.

        Order of preference: the run's own record of the same node, the record that was read, records of the same
        recipe, the newest. `path`: keys of the reader and of what leads from it to the end; a record that cannot be
        built without these is no input of the reader. `done`: keys that are already in the lineage.
        """
        read = (reader.input_keys or {}).get(parameter)
        node = self.records[read].node if read in self.records else None

        def order(record: Record) -> tuple[bool, bool, bool]:
            of_run = record.key in self.ends and node in (None, record.node)
            return not of_run, record.key != read, record.recipe != reader.recipe

        candidates = sorted(self.of_identity.get(reader.inputs[parameter], []), key=order)
        if not candidates:
            return None
        if candidates[0].key in done:
            return candidates[0]
        # If the original record is lost, only the record that was read, or an older one than its reader, is possible.
        possible = [r for r in candidates if r.key not in path and (r.key == read or r.created < reader.created)]
        if len(candidates) == 1 and possible:
            return candidates[0]
        buildable = self._buildable(path)
        return next((r for r in candidates if r.key in done or r.key in buildable), next(iter(possible), None))

    def _buildable(self, without: Collection[str]) -> set[str]:
        """Returns keys of the records that can be built, step by step, without those in `without`."""
        waiting: dict[str, set[str]] = {}
        readers: dict[str, list[str]] = {}
        for key, record in self.records.items():
            if key not in without:
                waiting[key] = {identity for identity in record.inputs.values() if identity in self.of_identity}
                for identity in waiting[key]:
                    readers.setdefault(identity, []).append(key)
        ready = [key for key, inputs in waiting.items() if not inputs]
        built: set[str] = set()
        while ready:
            built.add(key := ready.pop())
            identity = self.records[key].identity
            for reader in readers.pop(identity, []):
                waiting[reader].discard(identity)
                if not waiting[reader]:
                    ready.append(reader)
        return built
