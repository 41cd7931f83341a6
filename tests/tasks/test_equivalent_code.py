"""Older code that builds the same bytes: its artifacts stay valid, and only its."""

from pathlib import Path

import pytest

from artifacts.keys import Equivalent, Key, code_hash, make_key
from artifacts.store import Request, Store
from tasks.equivalent_code import compare, read_table, updated
from tasks.keys import stage_code
from tasks.stages import STAGES

OLD, NEW, NEWEST = ({"pipeline/train.py": name} for name in ("old", "new", "newest"))
NONE = Equivalent()


def key(code: dict[str, str], equivalent: Equivalent = NONE, **config: object) -> Key:
    return make_key("train", code, {"steps": 3, **config}, {}, {}, {}, equivalent)


def built(store: Store, key: Key, text: str = "bytes", name: str = "model.bin") -> Path:
    def make(out: Path, checkpoints: Path) -> dict[str, float]:
        (out / name).write_text(text)
        return {}

    return store.build(Request(key, node="train"), make).ref.path


def never(out: Path, checkpoints: Path) -> dict[str, float]:
    raise AssertionError("is built again")


def test_an_artifact_of_equivalent_code_is_reused(store: Store) -> None:
    path = built(store, key(OLD))
    same = key(NEW, Equivalent(frozenset({code_hash(OLD)})))
    found = store.lookup(same)
    assert found is not None
    assert found.path == path
    again = store.build(Request(same, node="train"), never)
    assert (again.hit, again.kept, again.ref.path) == (True, False, path)
    assert store.record(same.hex) is None  # the older record stays the artifact's history


def test_other_code_and_other_settings_are_not_equivalent(store: Store) -> None:
    built(store, key(OLD))
    assert store.lookup(key(NEW)) is None
    assert store.lookup(key(NEW, Equivalent(frozenset({code_hash(NEWEST)})))) is None
    assert store.lookup(key(NEW, Equivalent(frozenset({code_hash(OLD)})), rate=0.1)) is None


def test_a_renamed_field_is_the_same_field(store: Store) -> None:
    path = built(store, key(OLD, Equivalent(), abs={"beam_width": 8}, unused=1))
    fields = {"abs.beam_width": "batch_scheduling.beam_width", "abs": None, "unused": None}
    same = key(NEW, Equivalent(frozenset({code_hash(OLD)}), fields), batch_scheduling={"beam_width": 8})
    found = store.lookup(same)
    assert found is not None
    assert found.path == path
    other = key(NEW, Equivalent(frozenset({code_hash(OLD)}), fields), batch_scheduling={"beam_width": 9})
    assert store.lookup(other) is None


def test_a_damaged_artifact_of_equivalent_code_is_not_reused(store: Store) -> None:
    path = built(store, key(OLD))
    (path / "model.bin").write_text("other bytes")
    assert store.lookup(key(NEW, Equivalent(frozenset({code_hash(OLD)})))) is None


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("bytes", "model.bin", None),
        ("others", "model.bin", "train: model.bin differs"),
        ("bytes", "weights.bin", "train: model.bin differs"),
    ],
)
def test_only_equal_bytes_enter_the_table(tmp_path: Path, text: str, name: str, problem: str | None) -> None:
    before, after = Store(tmp_path / "before"), Store(tmp_path / "after")
    built(before, key(OLD))
    built(after, key(NEW), text, name)
    found = compare(before.records(), after.records(), [before.objects, after.objects])
    assert found.different == ({} if problem is None else {"train": problem})
    assert found.codes == ({"train": (code_hash(OLD), code_hash(NEW))} if problem is None else {})


def test_older_hashes_lead_to_the_newest_code() -> None:
    table = updated({}, {"train": ("a", "b")})
    assert table == {"train": {"code": {"a": "b"}}}
    assert updated(table, {"train": ("b", "c")}) == {"train": {"code": {"a": "c", "b": "c"}}}
    assert updated(table, {"train": ("b", "b")}) == table
    assert updated(table, {"train": ("x", "y")}) == {"train": {"code": {"x": "y"}}}  # b builds other bytes than y


def test_the_table_leads_to_todays_code() -> None:
    """Fails when a stage's code changes: either its bytes stay equal, and `make equivalent SINCE=COMMIT` writes the
    table again, or its entry is deleted, and its artifacts are built again."""
    stale = {
        stage
        for stage, entry in read_table().items()
        if {*entry.get("code", {}).values()} - {code_hash(stage_code(stage))}
    }
    assert not stale
    assert {*read_table()} <= {*STAGES}
