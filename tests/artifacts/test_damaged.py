"""Inputs are hashed before they are read; artifacts that may be built from damaged ones are set aside with them."""

import json
import os
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from artifacts import files, objects, records, runs, schema
from artifacts.errors import Damaged
from artifacts.explain import explain
from artifacts.lineage import BuiltArtifact, ancestry
from artifacts.store import Hooks, Request, Store
from artifacts.verify import verify


def flip(path, bit=0, at=None):
    """Flips one bit of the byte `at`, by default the middle one; the file's times do not change."""
    data, before = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2 if at is None else at] ^= 1 << bit
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def unchecked(store, key):
    """Turns a record into one of an older version, whose builds did not check their inputs."""
    path = store.keys / f"{key.hex}.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({name: fields[name] for name in fields if name not in ("checked", "sha256")}))


@pytest.fixture
def reads():
    """A function that returns a maker, which copies what it reads."""

    def maker(ref):
        def make(out, checkpoints):
            (out / "copy").write_bytes(b"of " + (ref.path / "model.bin").read_bytes())
            return {}

        return make

    return maker


@pytest.fixture
def chain(store, key, writes, reads):
    """[ingest, evaluate, report], each built from the one before; `build(n)` builds the n-th again."""
    keys, refs = [key(stage="ingest", inputs={})], []

    def build(n):
        if n == 0:
            return store.build(Request(keys[0], node="ingest"), writes("passages"))
        inputs = {"before": refs[n - 1]}
        fields = {"node": ("ingest", "evaluate", "report")[n], "reads": inputs}
        return store.build(Request(keys[n], **fields), reads(refs[n - 1]) if n == 1 else writes("page"))

    for n in range(3):
        if n:
            keys.append(key(stage=f"stage{n}", inputs={"before": refs[n - 1].identity}))
        refs.append(build(n).ref)
    return keys, refs, build


def test_a_build_records_what_it_hashed(store, chain, key, writes):
    keys, refs, _ = chain
    assert [store.record(k.hex).checked for k in keys] == [{}, {"before": refs[0].digest}, {"before": refs[1].digest}]
    store.build(Request(key(stage="other"), node="a"), writes())
    assert store.record(key(stage="other").hex).checked is None  # no inputs to hash were passed


@pytest.mark.parametrize("bit", [0, 4, 7])
@pytest.mark.parametrize("name", ["model.bin", "sub/words.txt", "manifest.json"])
def test_a_build_from_damaged_bytes_is_refused_until_they_are_built_again(store, chain, key, writes, name, bit):
    _, refs, build = chain
    flip(refs[0].path / name, bit)
    another = key(stage="another", inputs={"before": refs[0].identity})
    with pytest.raises(Damaged, match=rf"ingest \(objects/{refs[0].digest[:12]}\): {name} was changed: set aside$"):
        store.build(Request(another, node="a", reads={"before": refs[0]}), writes())
    assert store.lookup(another) is None
    again = build(0)
    assert not again.hit
    assert again.ref == refs[0]
    assert not store.build(Request(another, node="a", reads={"before": refs[0]}), writes()).hit
    assert build(1).hit, "it read good bytes: they were checked"


def test_damage_while_a_stage_reads_is_noticed_too(store, chain, key):
    _, refs, _ = chain

    def make(out, checkpoints):
        flip(refs[0].path / "model.bin")
        (out / "wrong").write_bytes((refs[0].path / "model.bin").read_bytes())
        return {}

    with pytest.raises(Damaged, match=r"model\.bin was changed"):
        store.build(
            Request(key(stage="a", inputs={"before": refs[0].identity}), node="a", reads={"before": refs[0]}), make
        )
    assert list(store.work.iterdir()) == []


def test_an_object_is_hashed_once_per_process(store, chain, monkeypatch):
    refs = chain[1]
    hashed, real = [], files.sha256
    monkeypatch.setattr(files, "sha256", lambda path: hashed.append(path.name) or real(path))
    monkeypatch.setattr(objects, "SETTLED_NS", -(10**10))
    store.check([refs[0], refs[0]])
    Store(store.root).check([refs[0]])
    assert sorted(hashed) == ["model.bin", "words.txt"]
    os.utime(refs[0].path / "model.bin")
    store.check([refs[0]])
    assert len(hashed) == 4


def test_a_file_written_just_before_it_was_hashed_is_hashed_again(store, chain):
    store.check([chain[1][0]])
    assert not objects.hashed(chain[1][0].path)


@pytest.mark.parametrize("by", ["verify", "a build"])
def test_an_artifact_of_an_older_version_is_set_aside_with_its_damaged_input(store, chain, key, writes, by):
    keys, refs, build = chain
    unchecked(store, keys[1])
    flip(refs[0].path / "model.bin")
    if by == "verify":
        assert verify(store) == [
            f"objects/{refs[0].digest[:12]}: model.bin was changed",
            f"evaluate (objects/{refs[1].digest[:12]}) may be built from damaged bytes: set aside",
            f"report (objects/{refs[2].digest[:12]}) may be built from damaged bytes: set aside",
        ]
    else:
        another = key(stage="another", inputs={"before": refs[0].identity})
        with pytest.raises(Damaged, match=r"evaluate \(.*\) may be built from damaged bytes: set aside; report "):
            store.build(Request(another, node="a", reads={"before": refs[0]}), writes())
    assert [build(n).hit for n in range(3)] == [False] * 3
    assert [store.lookup(k).digest for k in keys] == [ref.digest for ref in refs]
    assert verify(store) == []


@pytest.mark.parametrize("record", ["removed", "noise", "another's"])
def test_artifacts_built_from_damage_are_set_aside_without_the_damaged_record_too(store, chain, record):
    keys, refs, _ = chain
    unchecked(store, keys[1])
    path = store.keys / f"{keys[0].hex}.json"
    if record == "removed":
        path.unlink()
    else:
        path.write_bytes(b"{" if record == "noise" else (store.keys / f"{keys[2].hex}.json").read_bytes())
    flip(refs[0].path / "model.bin")
    lines = verify(store)
    assert f"evaluate (objects/{refs[1].digest[:12]}) may be built from damaged bytes: set aside" in lines
    assert f"report (objects/{refs[2].digest[:12]}) may be built from damaged bytes: set aside" in lines


@pytest.mark.parametrize("to", ["nowhere", "a folder", "a file"])
def test_a_link_instead_of_a_suspect_artifact_is_set_aside_and_not_followed(store, chain, tmp_path, to):
    keys, refs, _ = chain
    unchecked(store, keys[1])
    foreign = tmp_path / "foreign"
    if to == "a folder":
        refs[1].path.rename(foreign)
    else:
        shutil.rmtree(refs[1].path)
    if to == "a file":
        foreign.write_text("kept")
    refs[1].path.symlink_to(foreign)
    flip(refs[0].path / "model.bin")
    store.condemn(refs[0].digest, refs[0].path.lstat().st_ino)
    assert not os.path.lexists(refs[1].path)
    assert foreign.exists() == (to != "nowhere")
    assert len(list(store.broken.iterdir())) == 5


def cut(ref):
    os.truncate(ref.path / "model.bin", 1)


def flip_first(ref):
    flip(first_file(ref))


def cut_first(ref):
    os.truncate(first_file(ref), 1)


def first_file(ref):
    return next(path for path in sorted(ref.path.rglob("*")) if path.is_file() and path.name != "manifest.json")


def lose_all(ref):
    shutil.rmtree(ref.path)


def lose(ref):
    (ref.path / "sub/words.txt").unlink()


def lose_manifest(ref):
    (ref.path / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (cut, "model.bin has 1 bytes, not 8"),
        (lose, "sub/words.txt is missing"),
        (lose_manifest, "manifest.json is missing"),
    ],
)
def test_damage_that_a_lookup_finds_is_reported_with_all_that_is_set_aside(store, chain, writes, damage, problem):
    keys, refs, build = chain
    unchecked(store, keys[1])
    damage(refs[0])
    messages = []
    assert not store.build(Request(keys[0], node="ingest"), writes("passages"), Hooks(on_damage=messages.append)).hit
    assert messages == [
        f"{store.root}: ingest (objects/{refs[0].digest[:12]}): {problem}: set aside; "
        f"evaluate (objects/{refs[1].digest[:12]}) may be built from damaged bytes: set aside; "
        f"report (objects/{refs[2].digest[:12]}) may be built from damaged bytes: set aside"
    ]
    assert [build(n).hit for n in (1, 2)] == [False, False]


@pytest.mark.parametrize("name", ["model.bin", "sub/words.txt", "manifest.json"])
def test_damage_that_a_build_of_equal_bytes_finds_is_reported(store, chain, writes, name):
    keys, refs, _ = chain
    flip(refs[0].path / name)
    messages = []
    store.build(
        Request(keys[0], node="ingest", refresh_since=datetime.now(UTC)),
        writes("passages"),
        Hooks(on_damage=messages.append),
    )
    assert messages == [f"{store.root}: ingest (objects/{refs[0].digest[:12]}): {name} was changed: set aside"]
    assert verify(store) == []


def test_artifacts_built_before_the_last_verification_are_kept(store, chain):
    keys, refs, build = chain
    unchecked(store, keys[1])
    assert verify(store) == []
    flip(refs[0].path / "model.bin")
    assert verify(store) == [f"objects/{refs[0].digest[:12]}: model.bin was changed"]
    assert [build(n).hit for n in range(3)] == [False, True, True]


@pytest.mark.parametrize("how", [flip_first, cut_first, lose_all], ids=["changed", "cut", "lost"])
def test_a_damaged_artifact_is_not_listed_but_explained_until_it_is_built_again(store, chain, how):
    keys, refs, build = chain
    how(refs[1])
    [line] = verify(store)
    assert line.startswith(f"keys/{keys[1].hex}" if how is lose_all else f"objects/{refs[1].digest[:12]}: copy ")
    assert [record.node for record in store.records()] == ["report", "ingest"]
    assert verify(store) == []
    assert explain(store, keys[1], "evaluate") == ["was set aside: damaged, lost, or built from damaged bytes"]
    [lost, _] = ancestry(store, [BuiltArtifact("report", refs[2].identity, store.record(keys[2].hex))])
    assert (lost.name, lost.record) == ("before", None)
    assert [build(n).hit for n in range(3)] == [True, False, True]
    assert explain(store, keys[1], "evaluate") == []
    whole = ancestry(store, [BuiltArtifact("report", refs[2].identity, store.record(keys[2].hex))])
    assert [artifact.record and artifact.record.node for artifact in whole] == ["ingest", "evaluate", "report"]


@pytest.mark.parametrize("kept", [False, True])
def test_every_key_of_a_damaged_object_is_set_aside_with_it(store, key, writes, kept):
    first, second = key(code={"a": "1"}), key(code={"a": "2"})
    ref = store.build(Request(first, node="one"), writes()).ref
    assert store.build(Request(second, node="two", keep=kept), writes()).hit == kept
    flip_first(ref)
    assert verify(store) == [f"objects/{ref.digest[:12]}: model.bin was changed"]
    assert store.records() == verify(store) == []
    assert not store.build(Request(second, node="two", keep=True), writes()).hit


def test_an_object_built_again_meanwhile_is_kept(store, key, writes, monkeypatch):
    ref = store.build(Request(key(), node="one"), writes()).ref
    flip_first(ref)
    condemn = store.condemn

    def late(digest, inode):
        condemn(digest, inode)  # by a run, which builds the object again before verify reaches it
        assert not store.build(Request(key(), node="one"), writes()).hit
        return condemn(digest, inode)

    monkeypatch.setattr(store, "condemn", late)
    assert verify(store) == [f"objects/{ref.digest[:12]}: model.bin was changed"]
    assert [record.node for record in store.records()] == ["one"]
    assert verify(store) == []


def test_an_object_that_another_key_built_from_good_bytes_stays(store, chain, key, writes):
    keys, refs, _ = chain
    unchecked(store, keys[2])
    same = store.build(Request(key(stage="same", inputs={}), node="same", reads={}), writes("page")).ref
    flip(refs[1].path / "copy")
    assert len(verify(store)) == 2
    assert same.digest == refs[2].digest
    assert store.lookup(key(stage="same", inputs={})) == same
    assert store.lookup(keys[2]) is None


CHANGED = {
    "identity": "0" * 64,
    "metrics": {"RR@10": 0.9},
    "seconds": 1e6,
    "created": "2020-01-01T00:00:00+00:00",
    "digest": "0" * 64,
    "checked": None,
}


@pytest.mark.parametrize("field", CHANGED)
def test_a_changed_field_of_a_record_is_found(store, chain, field):
    keys = chain[0]
    path = store.keys / f"{keys[1].hex}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: CHANGED[field]}))
    assert verify(store) == [f"keys/{keys[1].hex}.json: was changed"]
    assert store.lookup(keys[1]) is None
    assert verify(store) == []


def test_an_identity_in_an_older_record_that_is_not_the_content_is_found(store, chain):
    keys = chain[0]
    unchecked(store, keys[1])
    path = store.keys / f"{keys[1].hex}.json"
    path.write_text(path.read_text().replace('"identity": "', '"identity": "0'))
    assert verify(store) == [f"keys/{keys[1].hex}.json: was changed"]


@pytest.mark.parametrize(
    ("field", "value"), [("inputs", ["x"]), ("config", None), ("code", float("nan")), ("config", {"a": float("nan")})]
)
def test_invalid_values_in_an_older_record_are_reported_in_one_line(store, chain, field, value):
    keys = chain[0]
    unchecked(store, keys[1])
    path = store.keys / f"{keys[1].hex}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    assert verify(store) == [f"keys/{keys[1].hex}.json: was changed"]


def test_every_flipped_bit_of_a_record_is_noticed_or_changes_nothing(store, chain):
    keys = chain[0]
    path = store.keys / f"{keys[1].hex}.json"
    whole, fields = path.read_bytes(), records.read_record(path)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        assert records.read_record(path) in (None, fields), at


@pytest.mark.parametrize(
    ("field", "value"),
    [("metrics", {"loss": float("nan")}), ("config", {"a": [float("inf")]}), ("seconds", -float("inf"))],
)
def test_a_record_with_values_that_json_lacks_is_not_written(store, chain, field, value):
    record = replace(store.record(chain[0][1].hex), **{field: value})
    with pytest.raises(ValueError, match=rf"^the record of evaluate cannot be written: {field}: Out of range float"):
        store.write(record)
    assert store.record(record.key) != record


@pytest.mark.parametrize(
    "fields", [{}, {"a": [1, 2.5, None], "b": {"c": "é\ud800"}}, {"loss": float("inf"), "1": True}]
)
def test_signed_json_is_read_as_written(fields):
    assert json.loads(schema.without_digest(schema.signed_json(fields))) == fields
    with pytest.raises(ValueError, match="changed"):
        schema.without_digest(schema.signed_json(fields).replace(b"{", b'{"z": 1,', 1).replace(b",\n}", b"\n}"))


@pytest.mark.parametrize(
    "read",
    [schema.without_digest, records.parse_record, lambda data: runs.parse_run(Store(Path("store")), data)],
    ids=["signed", "record", "run"],
)
def test_json_that_is_nested_deeply_gives_a_value_error(read):
    """From some depth on, Python 3.11 can read JSON but not write it; later versions can do both."""
    problems = set()
    for depth in range(900, 1010):
        data = b'{"sha256": "0", "a": ' + b"[" * depth + b"]" * depth + b"}"
        try:
            read(data)
        except ValueError as error:
            problems.add(str(error))
    assert "was changed" in problems
    assert ("is nested too deeply" in problems) == (sys.version_info < (3, 12))


@pytest.mark.parametrize("days", [1, 365, 36500])
def test_a_record_of_the_future_counts_as_the_oldest_and_is_reported(store, chain, days):
    keys = chain[0]
    path = store.keys / f"{keys[0].hex}.json"
    fields = json.loads(schema.without_digest(path.read_bytes()))
    then = datetime.now(UTC) + timedelta(days=days)
    path.write_bytes(schema.signed_json(fields | {"created": then.isoformat()}))
    assert [record.key for record in store.records()][-1] == keys[0].hex
    assert verify(store) == [
        f"keys/{path.name}: dated in the future ({then.isoformat()[:19]}), counts as older than all others; "
        "remove it when you no longer need it"
    ]
    assert store.lookup(keys[0]) is not None
    assert not store.build(Request(keys[0], node="ingest", refresh_since=datetime.now(UTC)), chain_maker).hit


def chain_maker(out, checkpoints):
    (out / "new").write_text("new")
    return {}
