"""Packs that are refused before the store sees them."""

import hashlib
import json
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from packs import everything, indexed, members, unsigned, write_members

from artifacts import objects
from artifacts.errors import StoreError
from artifacts.keys import canonical
from artifacts.packs import archive, staging
from artifacts.packs.pack import pack
from artifacts.packs.unpack import unpack
from artifacts.runs import RunRecord
from artifacts.store import Store


@pytest.fixture
def refused(store: Store, run: RunRecord, tmp_path: Path) -> Callable[..., str]:
    """Imports the file that `make(good pack, path)` writes into a store that must not change; returns the message."""
    good = tmp_path / "good.tar.zst"
    pack(store, run, good)
    target = Store(tmp_path / "target")
    target.prepare()
    (target.runs / "mine.json").write_text("{}")
    before = everything(target.root)

    def imported(make: Callable[[Path, Path], None]) -> str:
        make(good, tmp_path / "bad.tar.zst")
        with pytest.raises(StoreError) as error:
            unpack(target, tmp_path / "bad.tar.zst")
        assert everything(target.root) == before
        assert list(target.work.iterdir()) == []
        assert "\n" not in str(error.value)
        return str(error.value)

    return imported


def test_a_pack_cut_short_is_refused(refused):
    size = None
    for share in (0, 0.001, 0.1, 0.5, 0.9, 0.999):

        def cut(good: Path, bad: Path, share: float = share) -> None:
            nonlocal size
            size = good.stat().st_size
            bad.write_bytes(good.read_bytes()[: int(size * share)])

        assert "bad.tar.zst: " in refused(cut)


def test_a_flipped_bit_is_refused_wherever_it_is(refused):
    for place in range(17):

        def flip(good: Path, bad: Path, place: int = place) -> None:
            data = bytearray(good.read_bytes())
            data[len(data) * place // 17] ^= 1 << (place % 8)
            bad.write_bytes(data)

        assert "bad.tar.zst: " in refused(flip)


def test_other_files_are_refused(refused, tmp_path):
    assert "cannot be decompressed" in refused(lambda good, bad: bad.write_bytes(b"hello " * 999))

    def no_tar(good: Path, bad: Path) -> None:
        with pa.CompressedOutputStream(str(bad), "zstd") as packed:
            packed.write(b"hello " * 999)

    assert "not a tar archive" in refused(no_tar)
    assert "not a pack of a run: it begins with x" in refused(lambda good, bad: write_members(bad, [("x", b"y")]))
    assert "format 2; this version reads 1" in refused(
        lambda good, bad: write_members(bad, indexed(members(good), format=2))
    )
    with pytest.raises(StoreError, match=r"nosuch: no such file"):
        unpack(Store(tmp_path / "new"), tmp_path / "nosuch")
    with pytest.raises(StoreError, match="is a directory"):
        unpack(Store(tmp_path / "new"), tmp_path)
    assert not (tmp_path / "new").exists()


def test_a_refused_pack_creates_no_store(store, run, tmp_path):
    good, bad = tmp_path / "good.tar.zst", tmp_path / "bad.tar.zst"
    pack(store, run, good)
    first = next(name for name, _ in members(good) if name.startswith("keys/"))
    write_members(bad, [(name, b"x" * len(data) if name == first else data) for name, data in members(good)])
    (tmp_path / "mine").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for root in (tmp_path / "new", tmp_path / "deep" / "er", tmp_path / "mine"):
        with pytest.raises(StoreError, match=f"{first} was changed"):
            unpack(Store(root), bad)
        assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"/link: file exists$"):
        unpack(Store(tmp_path / "link"), good)


@pytest.mark.parametrize(
    "name",
    ["objects/{0}/../../../escaped", "/escaped", "objects/../escaped", "runs/../x.json", "broken/x", "keys/x.json"],
)
def test_names_that_lead_elsewhere_are_refused(refused, name):
    name = name.format("a" * 64)
    line = refused(lambda good, bad: write_members(bad, indexed([*members(good), (name, b"x")])))
    assert line.endswith(f"pack.json names {name}, which has no place in a store")
    # Also if the index does not name the file.
    line = refused(lambda good, bad: write_members(bad, [*members(good)[:3], (name, b"x")]))
    assert f"holds {name} of 1 bytes, but its index has" in line


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_and_devices_are_refused(refused, kind):
    def change(info: tarfile.TarInfo) -> None:
        if info.name.startswith("objects/"):
            info.type, info.linkname, info.size = kind, "/etc/passwd", 0

    assert "is not a plain file" in refused(lambda good, bad: write_members(bad, members(good), change))


def test_files_that_do_not_match_the_index_are_refused(refused):
    assert "holds more files than its index" in refused(
        lambda good, bad: write_members(bad, [*members(good), ("objects/x/y", b"z")])
    )
    assert "holds nothing of 0 bytes, but" in refused(lambda good, bad: write_members(bad, members(good)[:-1]))

    def bomb(good: Path, bad: Path) -> None:
        entries = members(good)
        write_members(bad, [*entries[:-1], (entries[-1][0], bytes(1 << 24))])

    assert "of 16,777,216 bytes, but its index has" in refused(bomb)

    def after_its_end(good: Path, bad: Path) -> None:
        with pa.CompressedInputStream(str(good), "zstd") as stream, pa.CompressedOutputStream(str(bad), "zstd") as out:
            out.write(stream.read() + bytes(1 << 20))

    assert "has data after its end" in refused(after_its_end)

    def huge(good: Path, bad: Path) -> None:
        entries = members(good)
        index = json.loads(entries[0][1])
        index["members"][-1][1] = 1 << 60
        write_members(bad, [("pack.json", canonical(index)), *entries[1:]])

    assert "GiB are free" in refused(huge)


def test_members_that_contradict_each_other_are_refused(refused, run):
    def with_member(start: str, change: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
        def make(good: Path, bad: Path) -> None:
            entries = unsigned(members(good))
            at = next(i for i, (name, _) in enumerate(entries) if name.startswith(start))
            entries[at] = entries[at][0], change(entries[at][1])
            write_members(bad, indexed(entries))

        return make

    stage1, bm25 = run.nodes["stage1"], run.nodes["bm25"]
    record, its_files = f"keys/{stage1.key}", f"objects/{stage1.digest}"
    assert "own inputs" in refused(with_member(record, lambda d: d.replace(b'"steps": 3', b'"steps": 4')))
    assert "is not a record" in refused(
        with_member(record, lambda d: d.replace(b'"seconds": ', b'"seconds": "x", "s": '))
    )
    assert "is not a record" in refused(with_member(record, lambda d: b"[" * 100_000))
    other = hashlib.sha256(b"other").hexdigest().encode()
    changed = with_member(record, lambda d: d.replace(stage1.digest.encode(), other))
    assert "runs/" in refused(changed)
    model = f"{its_files}/model.bin"
    assert "model.bin has 2304001 bytes, not 2304000" in refused(with_member(model, lambda d: d + b"x"))
    assert "do not match its manifest.json" in refused(with_member(model, lambda d: b"x" + d[1:]))
    assert "manifest.json was changed" in refused(
        with_member(f"{its_files}/manifest", lambda d: d.replace(b"m", b"n", 1))
    )
    outside = with_member("runs/", lambda d: d.replace(bm25.digest.encode(), b"../../../../etc"))
    assert "is not a record of a run: nodes.bm25.digest: " in refused(outside)
    foreign = with_member("runs/", lambda d: d.replace(bm25.digest.encode(), other))
    assert "has an artifact of bm25 that is not in the pack's records" in refused(foreign)
    assert "is not a record of a run of that name" in refused(
        with_member("runs/", lambda d: d.replace(b"tiny", b"tony"))
    )
    assert "is not a record of a run" in refused(with_member("runs/", lambda d: b"null"))
    lost = f"objects/{bm25.digest}"
    assert "is missing" in refused(
        lambda good, bad: write_members(bad, indexed([m for m in members(good) if not m[0].startswith(lost)]))
    )
    twice = lambda good, bad: write_members(bad, indexed([*members(good), members(good)[-1]]))  # noqa: E731
    assert "names a file twice" in refused(twice)
    assert "leaves out artifacts that are not in the run" in refused(
        lambda good, bad: write_members(bad, indexed(members(good), without=["0" * 64]))
    )


def test_sizes_beyond_the_usual_form_of_tar_are_read(tmp_path):
    """From 8 GiB on, a header has numbers in another form. Only the header is read here."""
    info = tarfile.TarInfo("objects/x/index")
    info.size = 27 << 30
    header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")
    with pa.CompressedOutputStream(str(tmp_path / "big"), "zstd") as packed:
        packed.write(header)
    with archive.open_archive(tmp_path / "big") as reader:
        assert reader.header() == ("objects/x/index", 27 << 30)


def changed(start: str, change: Callable[[dict], None]) -> Callable[[Path, Path], None]:
    """A pack whose first file that begins with `start` has changed JSON, with the right digest in the index."""

    def make(good: Path, bad: Path) -> None:
        entries = unsigned(members(good))
        at = next(i for i, (name, _) in enumerate(entries) if name.startswith(start))
        value = json.loads(entries[at][1])
        change(value)
        entries[at] = entries[at][0], json.dumps(value).encode()
        write_members(bad, indexed(entries))

    return make


VALUES = {
    "not a number": ({"seconds": float("nan")}, "seconds: it should be a finite number"),
    "infinite": ({"seconds": float("inf")}, "seconds: it should be a finite number"),
    "negative": ({"seconds": -0.5}, "seconds: it should be greater than or equal to 0"),
    "year 99999": ({"created": "99999-01-01T00:00:00+00:00"}, "created: "),
    "beyond the last year": ({"created": "9999-12-31T23:59:59-23:59"}, "created: is not a time of the years 1 to 9999"),
    "before the first year": ({"created": "0001-01-01T00:00:00+14:00"}, "created: is not a time of the years 1 to"),
    "no zone": ({"created": "2026-11-22T00:00:00"}, "created: has no time zone"),
    "huge": ({"bytes": 10**40}, "bytes: it should be less than"),
    "true": ({"bytes": True}, "bytes: it should be a valid integer"),
    "list of metrics": ({"metrics": [1]}, "metrics: it should be an object"),
    "nested metric": ({"metrics": {"loss": {"a": 1}}}, "metrics: loss is neither a number nor a text"),
    "metric that is not finite": ({"metrics": {"loss": float("nan")}}, "metrics: loss is not a finite number"),
    "huge metric": ({"metrics": {"loss": 10**300}}, "metrics: loss is a number beyond 64 bits"),
    "control characters": ({"node": "\x1b[2Jstage1"}, "node: holds a control character"),
    "line break": ({"recipe": "a\nb"}, "recipe: holds a control character"),
    "no name": ({"stage": ""}, "stage: "),
    "long name": ({"node": "n" * 300}, "node: "),
    "digest that leads elsewhere": ({"digest": "../../../../etc"}, "digest: "),
    "key of an input": ({"input_keys": {"tokens": "../x"}}, "input_keys.tokens: "),
    "kept from nowhere": ({"kept_from": "yesterday"}, "kept_from: "),
}


@pytest.mark.parametrize("name", VALUES)
def test_invalid_values_of_a_record_are_refused(refused, name):
    values, line = VALUES[name]
    assert f"is not a record: {line}" in refused(changed("keys/", lambda record: record.update(values)))


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"a":' * 5_000, b"9" * 5_000, b'{"key": "\\ud800"}', b"\xff", b'{"config": ' + b"[" * 500],
)
@pytest.mark.parametrize(("start", "line"), [("keys/", "is not a record: "), ("runs/", "is not a record of a run: ")])
def test_records_that_are_no_json_are_refused(refused, start, line, text):
    def make(good: Path, bad: Path) -> None:
        entries = members(good)
        write_members(bad, indexed([(name, text if name.startswith(start) else data) for name, data in entries]))

    assert line in refused(make)


RUNS = {
    "no recipe": ({"details": {}}, "does not contain its recipe"),
    "recipe of another type": ({"details": {"recipe": "tiny"}}, "does not contain its recipe"),
    "details of another type": ({"details": []}, "is not a record of a run: details: "),
    "overflowing": ({"created": "9999-12-31T23:00:00-05:00"}, "is not a record of a run: created: "),
    "nodes of another type": ({"nodes": {"a": 1}}, "is not a record of a run: nodes.a: "),
    "control characters": ({"name": "ti\x1bny"}, "is not a record of a run: name: "),
    "another name": ({"name": "tony"}, "is not a record of a run of that name"),
    "long name": ({"name": "n" * 226}, "is not a record of a run: name: "),
}


@pytest.mark.parametrize("name", RUNS)
def test_invalid_values_of_a_run_are_refused(refused, name):
    values, line = RUNS[name]
    assert line in refused(changed("runs/", lambda run: run.update(values)))


NAMES = {
    "NUL": "a\0b",
    "line break": "a\nb",
    "ESC": "a\x1b[2Jb",
    "half a character": "a\udcffb",
    "above": "../../escaped",
    "here": "./a",
    "absolute": "/etc/passwd",
    "nothing between": "a//b",
    "no name": "",
    "a folder": "a/",
    "a part of 256 bytes": "a" * 256,
    "letters of two bytes": "ä" * 128,
    "5,000 bytes": "/".join(["a" * 99] * 50),
    "40 folders": "/".join("a" * 40),
}


@pytest.mark.parametrize("name", NAMES)
def test_file_names_that_no_store_can_hold_are_refused(refused, run, name):
    """In the index of the pack, and in the manifest of an object with a right digest."""
    digest = run.nodes["stage1"].digest
    bad = f"objects/{digest}/{NAMES[name]}"

    def in_index(good: Path, path: Path) -> None:
        entries = members(good)
        index = json.loads(entries[0][1])
        index["members"].append([bad, 1, "0" * 64])
        write_members(path, [("pack.json", canonical(index)), *entries[1:]])

    line = refused(in_index)
    assert "pack.json" in line
    assert line.isprintable()
    line = objects.problem(*manifest(run, [NAMES[name]]), deep=False)
    assert line.startswith("manifest.json ")
    assert line.isprintable()


def manifest(run: RunRecord, names: list[str], **more: Any) -> tuple[Path, str]:
    """An object whose manifest has these names, and its digest."""
    files = [{"name": name, "size": 1, "sha256": "0" * 64, **more} for name in names]
    data = json.dumps({"files": files}).encode()
    digest = hashlib.sha256(data).hexdigest()
    folder = run.nodes["stage1"].path.parent / digest
    folder.mkdir()
    (folder / "manifest.json").write_bytes(data)
    return folder, digest


MANIFESTS: dict[str, Any] = {
    "no object": [],
    "null": None,
    "a number": 5,
    "no files": {},
    "files of another type": {"files": {"a": 1}},
    "an empty list": {"files": []},
    "a name alone": {"files": [{"name": "a"}]},
    "a size of another type": {"files": [{"name": "a", "size": "1", "sha256": "0" * 64}]},
    "a negative size": {"files": [{"name": "a", "size": -1, "sha256": "0" * 64}]},
    "a huge size": {"files": [{"name": "a", "size": 10**30, "sha256": "0" * 64}]},
    "no digest": {"files": [{"name": "a", "size": 1, "sha256": "../x"}]},
    "twice": {"files": [{"name": "a", "size": 1, "sha256": "0" * 64}] * 2},
    "a file and a folder": {"files": [{"name": name, "size": 1, "sha256": "0" * 64} for name in ("a/b", "a")]},
    "its own name": {"files": [{"name": "manifest.json", "size": 1, "sha256": "0" * 64}]},
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_invalid_manifests_with_a_right_digest_are_refused(refused, run, name):
    digest = run.nodes["bm25"].digest
    data = json.dumps(MANIFESTS[name]).encode()
    other = hashlib.sha256(data).hexdigest()

    def make(good: Path, bad: Path) -> None:
        entries = [
            (n.replace(digest, other), d.replace(digest.encode(), other.encode())) for n, d in unsigned(members(good))
        ]
        renamed = [(n, data if n == f"objects/{other}/manifest.json" else d) for n, d in entries]
        write_members(bad, indexed(renamed))

    line = refused(make)
    assert f"objects/{other[:12]}: manifest.json " in line


def test_an_index_that_would_need_much_memory_is_refused(refused):
    """The memory is limited: the figures at pack.LONGEST_INDEX are those of an index with all that it may have."""
    lines = {
        "of 8,388,700 bytes": b" " * 8_388_700,
        "is not the index of a pack": b'{"a":[' + b"[]," * 2_700_000 + b"0]}",
        "pack.json: Invalid JSON: recursion limit": b'{"a":' + b"[" * 8_000_000,
        "pack.json: without.0: ": canonical(
            {
                "format": 1,
                "recipe": "x",
                "created": "2026-01-01T00:00:00Z",
                "without": ["x" * 60] * 90_000,
                "members": [],
            }
        ),
    }
    for line, data in lines.items():
        tracemalloc.start()
        assert line in refused(lambda good, bad, data=data: write_members(bad, [("pack.json", data)]))
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
        tracemalloc.stop()


def test_more_records_than_a_run_has_are_refused(refused, monkeypatch):
    monkeypatch.setattr(staging, "LONGEST_LINEAGE", 1000)
    assert "bytes of records, more than the 1,000 of a run" in refused(
        lambda good, bad: bad.write_bytes(good.read_bytes())
    )


@pytest.mark.parametrize("limit", ["LONGEST_INDEX", "LONGEST_LINEAGE"])
def test_no_pack_is_written_that_could_not_be_read(store, run, tmp_path, monkeypatch, limit):
    monkeypatch.setattr("artifacts.packs.pack." + limit, 100)
    with pytest.raises(StoreError, match=r"are too many for a pack"):
        pack(store, run, tmp_path / "run.tar.zst")
    assert list(tmp_path.glob("*.zst")) == []


def test_a_pack_that_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(StoreError, match=r"fifo: not a file$"):
        unpack(Store(tmp_path / "new"), tmp_path / "fifo")
    with pytest.raises(StoreError, match="the path is not UTF-8"):
        unpack(Store(tmp_path / "new"), Path(os.fsdecode(b"/tmp/\xff.tar.zst")))
