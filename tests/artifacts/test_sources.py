"""Content digests of sources, and their cache."""

import hashlib
import json
import os
import time

import pytest

from artifacts import files, sources
from artifacts.errors import StoreError


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "sources.json"


@pytest.fixture
def folder(tmp_path):
    """Three files, older than the cache requires."""
    for name, text in {"a.txt": "one", "b/c.txt": "two", "b/d.txt": ""}.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "corpus"


@pytest.fixture
def settled(monkeypatch):
    """The cache also keeps the digests of new files."""
    monkeypatch.setattr(sources, "SETTLED_NS", -(10**18))


@pytest.fixture
def hashed(monkeypatch):
    """Names of the files whose bytes were read."""
    names = []
    sha256 = files.sha256

    def spy(path):
        names.append(path.name)
        return sha256(path)

    monkeypatch.setattr(files, "sha256", spy)
    return names


def digest(path, cache):
    return sources.digests({"it": path}, cache)["it"]


def test_the_digest_of_a_file_is_its_sha256_in_any_folder(folder, cache):
    expected = hashlib.sha256(b"one").hexdigest()
    assert digest(folder / "a.txt", cache) == expected
    (folder / "a.txt").rename(folder.parent / "elsewhere")
    assert digest(folder.parent / "elsewhere", cache) == expected


def test_the_digest_of_a_folder_is_that_of_its_names_and_contents(folder, cache):
    first = digest(folder, cache)
    folder = folder.rename(folder.parent / "moved")
    assert digest(folder, cache) == first
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/a.pyc").write_text("x")
    os.utime(folder / "a.txt", (1, 1))
    (folder / "a.txt").chmod(0o600)
    assert digest(folder, cache) == first
    (folder / "b/d.txt").rename(folder / "b/e.txt")
    renamed = digest(folder, cache)
    (folder / "b/e.txt").write_text("x")
    changed = digest(folder, cache)
    (folder / "b/e.txt").unlink()
    assert len({first, renamed, changed, digest(folder, cache)}) == 4


def test_names_with_slashes_are_one_source(folder, cache):
    names = {f"corpus/{path.relative_to(folder)}": path for path in folder.rglob("*.txt")}
    assert sources.digests(names, cache) == {"corpus": digest(folder, cache)}


def test_a_second_digest_reads_no_file(folder, cache, settled, hashed):
    first = digest(folder, cache)
    assert sorted(hashed) == ["a.txt", "c.txt", "d.txt"]
    hashed.clear()
    assert digest(folder, cache) == first
    assert hashed == []


def test_an_edit_is_noticed(folder, cache, settled, hashed):
    first = digest(folder, cache)
    hashed.clear()
    (folder / "a.txt").write_text("ONE")
    assert digest(folder, cache) != first
    assert hashed == ["a.txt"]


def test_an_edit_of_equal_size_and_restored_mtime_is_noticed(folder, cache, settled):
    before = (folder / "a.txt").stat()
    first = digest(folder, cache)
    (folder / "a.txt").write_text("ONE")
    os.utime(folder / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest(folder, cache) != first


def test_the_digest_of_a_new_file_is_not_cached(folder, cache, hashed):
    digest(folder, cache)
    assert not cache.exists()
    digest(folder, cache)
    assert len(hashed) == 6


def test_a_damaged_cache_is_rebuilt(folder, cache, settled, hashed):
    first = digest(folder, cache)
    cache.write_text("{half")
    assert digest(folder, cache) == first
    assert len(json.loads(cache.read_text())) == 3


def test_a_cache_that_cannot_be_written_is_not_needed(folder, tmp_path, settled):
    (tmp_path / "file").write_text("")
    assert digest(folder, tmp_path / "file" / "sources.json") == digest(folder, tmp_path / "sources.json")


def test_links_are_followed_but_not_in_a_loop(folder, cache):
    plain = digest(folder, cache)
    (folder / "loop").symlink_to(folder)
    (folder / "dangling").symlink_to(folder / "nothing")
    (folder / "itself").symlink_to("itself")
    assert digest(folder, cache) == plain
    (folder / "link.txt").symlink_to(folder / "a.txt")
    linked = digest(folder, cache)
    (folder / "link.txt").unlink()
    (folder / "link.txt").write_text("one")
    assert digest(folder, cache) == linked != plain


def test_unreadable_sources_are_reported(folder, cache, tmp_path):
    with pytest.raises(StoreError, match=r"nowhere: no such file or directory"):
        digest(tmp_path / "nowhere", cache)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match=r"pipe: neither a file nor a folder"):
        digest(tmp_path / "pipe", cache)


def test_a_file_that_changes_meanwhile_is_refused(folder, cache, monkeypatch):
    sha256 = files.sha256

    def grow(path):
        result = sha256(path)
        with path.open("a") as file:
            file.write("more")
        return result

    monkeypatch.setattr(files, "sha256", grow)
    with pytest.raises(StoreError, match=r"a\.txt: changed while it was read"):
        digest(folder / "a.txt", cache)


def test_pruning_forgets_removed_files(folder, cache, settled):
    digest(folder, cache)
    (folder / "a.txt").unlink()
    sources.prune(cache)
    assert sorted(json.loads(cache.read_text())) == [str(folder / "b/c.txt"), str(folder / "b/d.txt")]


def test_concurrent_writers_lose_nothing(tmp_path, cache, python):
    script = """
        import sys
        from pathlib import Path
        from artifacts import sources
        sources.SETTLED_NS = -10**18
        for file in sorted(Path(sys.argv[1]).iterdir()):
            sources.digests({"it": file}, Path(sys.argv[2]))
    """
    for writer in range(3):
        (tmp_path / str(writer)).mkdir()
        for number in range(15):
            (tmp_path / str(writer) / str(number)).write_text(f"{writer} {number}")
    processes = [python(script, tmp_path / str(writer), cache) for writer in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    entries = json.loads(cache.read_text())
    assert len(entries) == 45
    for path, entry in entries.items():
        with open(path, "rb") as file:
            assert entry[3] == hashlib.file_digest(file, "sha256").hexdigest()


def test_thousands_of_cached_files_take_a_moment(tmp_path, cache, settled):
    names = {}
    for number in range(2000):
        path = tmp_path / f"corpus/{number % 40}/{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
        names[f"corpus/{number}"] = path
    first = sources.digests(names, cache)
    started = time.process_time()
    assert sources.digests(names, cache) == first
    assert time.process_time() - started < 0.3
