"""Packs that are refused before the store sees them."""

import hashlib
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from packs import everything, indexed, members, rewritten, write_members

from artifacts import archive
from artifacts.errors import StoreError
from artifacts.keys import canonical
from artifacts.pack import pack
from artifacts.runs import Run
from artifacts.store import Store
from artifacts.unpack import unpack


@pytest.fixture
def refused(store: Store, run: Run, tmp_path: Path) -> Callable[..., str]:
    """Imports a file, as `make(good pack, path)` writes it, into a store that must not change; gives the line."""
    good = tmp_path / "good.tar.zst"
    pack(store, run, good)
    target = Store(tmp_path / "target")
    target.prepare()
    (target.runs / "mine.json").write_text("{}")
    before = everything(target.root)

    def imported(make: Callable[[Path, Path], None]) -> str:
        make(good, tmp_path / "bad.tar.zst")
        with pytest.raises(StoreError) as told:
            unpack(target, tmp_path / "bad.tar.zst")
        assert everything(target.root) == before
        assert list(target.work.iterdir()) == []
        assert "\n" not in str(told.value)
        return str(told.value)

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


def test_what_is_no_pack_is_refused(refused, tmp_path):
    assert "cannot be unpacked" in refused(lambda good, bad: bad.write_bytes(b"hello " * 999))

    def no_tar(good: Path, bad: Path) -> None:
        with pa.CompressedOutputStream(str(bad), "zstd") as packed:
            packed.write(b"hello " * 999)

    assert "not a tar archive" in refused(no_tar)
    assert "no pack of a run: it begins with x" in refused(lambda good, bad: write_members(bad, [("x", b"y")]))
    assert "format 2; this version reads 1" in refused(
        lambda good, bad: write_members(bad, indexed(members(good), format=2))
    )
    with pytest.raises(StoreError, match=r"nosuch: no such file"):
        unpack(Store(tmp_path / "new"), tmp_path / "nosuch")
    with pytest.raises(StoreError, match="is a directory"):
        unpack(Store(tmp_path / "new"), tmp_path)
    assert not (tmp_path / "new").exists()


def test_a_refused_pack_leaves_no_store_where_there_was_none(store, run, tmp_path):
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
    # Nor when the index does not tell.
    line = refused(lambda good, bad: write_members(bad, [*members(good)[:3], (name, b"x")]))
    assert f"holds {name} of 1 bytes where its index has" in line


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_and_devices_are_refused(refused, kind):
    def change(info: tarfile.TarInfo) -> None:
        if info.name.startswith("objects/"):
            info.type, info.linkname, info.size = kind, "/etc/passwd", 0

    assert "is no plain file" in refused(lambda good, bad: write_members(bad, members(good), change))


def test_more_or_less_than_the_index_says_is_refused(refused):
    assert "holds more than its index says" in refused(
        lambda good, bad: write_members(bad, [*members(good), ("objects/x/y", b"z")])
    )
    assert "holds nothing of 0 bytes where" in refused(lambda good, bad: write_members(bad, members(good)[:-1]))

    def bomb(good: Path, bad: Path) -> None:
        given = members(good)
        write_members(bad, [*given[:-1], (given[-1][0], bytes(1 << 24))])

    assert "of 16,777,216 bytes where its index has" in refused(bomb)

    def after_its_end(good: Path, bad: Path) -> None:
        with pa.CompressedInputStream(str(good), "zstd") as stream, pa.CompressedOutputStream(str(bad), "zstd") as out:
            out.write(stream.read() + bytes(1 << 20))

    assert "more follows its end" in refused(after_its_end)

    def huge(good: Path, bad: Path) -> None:
        given = members(good)
        index = json.loads(given[0][1])
        index["members"][-1][1] = 1 << 60
        write_members(bad, [("pack.json", canonical(index)), *given[1:]])

    assert "GiB are free" in refused(huge)


def test_members_that_disagree_are_refused(refused, run):
    def with_member(start: str, change: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
        def make(good: Path, bad: Path) -> None:
            given = members(good)
            at = next(i for i, (name, _) in enumerate(given) if name.startswith(start))
            given[at] = given[at][0], change(given[at][1])
            write_members(bad, indexed(given))

        return make

    stage1, bm25 = run.nodes["stage1"], run.nodes["bm25"]
    record, objects = f"keys/{stage1.key}", f"objects/{stage1.digest}"
    assert "is not of what it says" in refused(with_member(record, lambda d: d.replace(b'"steps": 3', b'"steps": 4')))
    assert "is no record" in refused(with_member(record, lambda d: d.replace(b'"seconds": ', b'"seconds": "x", "s": ')))
    assert "is no record" in refused(with_member(record, lambda d: b"[" * 100_000))
    other = hashlib.sha256(b"other").hexdigest().encode()
    changed = with_member(record, lambda d: d.replace(stage1.digest.encode(), other))
    assert "runs/" in refused(changed)
    model = f"{objects}/model.bin"
    assert "model.bin has 2304001 bytes, not 2304000" in refused(with_member(model, lambda d: d + b"x"))
    assert "not those of its manifest.json" in refused(with_member(model, lambda d: b"x" + d[1:]))
    assert "manifest.json was changed" in refused(
        with_member(f"{objects}/manifest", lambda d: d.replace(b"m", b"n", 1))
    )
    outside = with_member("runs/", lambda d: rewritten(d, bm25.digest, "../../../../etc"))
    assert "has an artifact of bm25 that the pack's records do not have" in refused(outside)
    assert "is no record of a run of that name" in refused(with_member("runs/", lambda d: d.replace(b"tiny", b"tony")))
    assert "is no record of a run" in refused(with_member("runs/", lambda d: b"null"))
    lost = f"objects/{bm25.digest}"
    assert "is missing" in refused(
        lambda good, bad: write_members(bad, indexed([m for m in members(good) if not m[0].startswith(lost)]))
    )
    twice = lambda good, bad: write_members(bad, indexed([*members(good), members(good)[-1]]))  # noqa: E731
    assert "names a file twice" in refused(twice)
    assert "leaves out what is not in the run" in refused(
        lambda good, bad: write_members(bad, indexed(members(good), without=["0" * 64]))
    )


def test_sizes_beyond_what_tars_first_form_holds(tmp_path):
    """8 GiB and more: the header's other way to write numbers, read without the content."""
    info = tarfile.TarInfo("objects/x/index")
    info.size = 27 << 30
    header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")
    with pa.CompressedOutputStream(str(tmp_path / "big"), "zstd") as packed:
        packed.write(header)
    with archive.opened(tmp_path / "big") as reader:
        assert reader.header() == ("objects/x/index", 27 << 30)
