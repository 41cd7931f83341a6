"""Nothing is written into a store by hand: `gc` may remove it."""

from pathlib import Path

import pytest

from artifacts.errors import StoreError
from artifacts.outside import check_outside, store_around
from artifacts.packs.pack import pack


def test_a_path_within_a_store_is_found_also_by_a_link(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    (root / "format.json").write_text('{"format": 1}')
    (tmp_path / "link").symlink_to(root)
    assert [store_around(path) for path in (root, root / "a" / "b", tmp_path / "link" / "a")] == [root] * 3
    assert store_around(tmp_path) is None
    assert store_around(tmp_path / "storeroom") is None
    with pytest.raises(StoreError, match=f"^--out x: inside the store {root}; choose a folder outside$"):
        check_outside(root / "a", "--out x")


@pytest.mark.parametrize("text", ['{"singleQuote": true}', "[1]", "", '{"format": "long"}'])
def test_the_format_file_of_another_program_makes_no_store(tmp_path: Path, text: str) -> None:
    (tmp_path / "format.json").write_text(text)
    assert store_around(tmp_path / "out") is None


def test_a_pack_within_a_store_is_refused(store, run) -> None:
    with pytest.raises(StoreError, match=f"inside the store {store.root}; choose a folder outside"):
        pack(store, run, store.objects / "mine.tar.zst")
    assert not (store.objects / "mine.tar.zst").exists()
