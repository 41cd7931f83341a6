"""An export appears complete or not at all, and replaces only an earlier export."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import InputError
from pipeline.export.folder import MARK, check_out, mark, whole

ROOT = Path(__file__).resolve().parents[3]


def write(out: Path, text: str) -> None:
    with whole(out, overwrite=True) as folder:
        (folder / "part").mkdir()
        (folder / "part" / "file").write_text(text)
        mark(folder, {"recipe": "one"})
        assert not (out / "part" / "file").exists() or (out / "part" / "file").read_text() != text


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_export_appears_when_it_is_complete(tmp_path):
    write(tmp_path / "out", "one")
    assert file_names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "part" / "file").read_text() == "one"


def test_an_empty_folder_is_filled_and_an_export_replaced(tmp_path):
    (tmp_path / "out").mkdir()
    check_out(tmp_path / "out", overwrite=False)
    write(tmp_path / "out", "one")
    check_out(tmp_path / "out", overwrite=True)
    write(tmp_path / "out", "two")
    assert file_names(tmp_path) == ["out"]
    assert file_names(tmp_path / "out") == [MARK, "part"]
    assert (tmp_path / "out" / "part" / "file").read_text() == "two"


def test_a_folder_that_is_no_export_is_not_replaced(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "letters.txt").touch()
    with pytest.raises(InputError, match=r"out: not empty; --overwrite replaces an earlier export$"):
        check_out(out, overwrite=False)
    with pytest.raises(InputError, match=r"out: not an earlier export \(it has no export.json\); --overwrite"):
        check_out(out, overwrite=True)
    with pytest.raises(InputError, match=r"letters.txt: a file, not a folder$"):
        check_out(out / "letters.txt", overwrite=True)


ADDED = ["notes.txt", ".hidden", "part/deeper/notes", "empty/", "part/link"]


@pytest.mark.parametrize("name", ADDED)
def test_an_export_with_added_files_is_not_replaced(tmp_path, name):
    out = tmp_path / "out"
    write(out, "one")
    added = out / name
    added.parent.mkdir(exist_ok=True)
    if name.endswith("/"):
        added.mkdir()
    elif name.endswith("link"):
        added.symlink_to(tmp_path)
    else:
        added.touch()
    first = out / name.removesuffix("/notes")  # a folder that the user added is named before its contents
    line = f"^{first}: not a file of the earlier export; --overwrite replaces nothing; move the file away first$"
    with pytest.raises(InputError, match=line):
        check_out(out, overwrite=True)
    with pytest.raises(InputError, match=line):
        write(out, "two")
    assert os.path.lexists(added)
    assert (out / "part" / "file").read_text() == "one"


def test_files_added_while_an_export_is_written_stay(tmp_path):
    out = tmp_path / "out"
    write(out, "one")
    with pytest.raises(InputError, match="notes: not a file of the earlier export"), whole(out, True):
        (out / "notes").touch()
    assert file_names(out) == [MARK, "notes", "part"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": 3}', '{"files": [3]}', "[" * 9999])
def test_an_export_that_does_not_list_its_files_is_not_replaced(tmp_path, content):
    (tmp_path / MARK).write_text(content)
    line = "export.json: does not list the files of the earlier export; --overwrite replaces nothing; remove"
    with pytest.raises(InputError, match=line):
        check_out(tmp_path, overwrite=True)


def test_a_name_too_long_for_the_folder_next_to_it_is_refused(tmp_path):
    with pytest.raises(OSError, match="name too long"):
        check_out(tmp_path / ("x" * 250), overwrite=False)


def test_a_failed_export_leaves_nothing(tmp_path):
    write(tmp_path / "out", "one")

    def interrupted(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), whole(tmp_path / "out", True) as folder:
        interrupted(folder)
    assert file_names(tmp_path) == ["out"]
    assert (tmp_path / "out" / "part" / "file").read_text() == "one"


KILLED = """
import os, signal, sys
from pathlib import Path
from pipeline.export.folder import whole
with whole(Path(sys.argv[1]), False) as folder:
    (folder / "half").mkdir()
    (folder / "half" / "file").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_export_does_not_appear_and_the_next_one_cleans_up(tmp_path):
    out = tmp_path / "out"
    completed = subprocess.run([sys.executable, "-c", KILLED, str(out)], cwd=ROOT)
    assert completed.returncode == -signal.SIGKILL
    assert file_names(tmp_path) == [".out.partial"]
    write(out, "one")
    assert file_names(tmp_path) == ["out"]
    assert file_names(out) == [MARK, "part"]


def test_a_kill_between_the_renames_loses_no_earlier_export(tmp_path):
    out = tmp_path / "out"
    write(out, "one")
    out.rename(tmp_path / ".out.earlier")
    (tmp_path / ".out.partial").mkdir()
    with pytest.raises(ValueError, match="fails"), whole(out, True):
        raise ValueError("fails")
    assert file_names(tmp_path) == ["out"]
    assert (out / "part" / "file").read_text() == "one"


def test_two_exports_at_once_do_not_mix(tmp_path):
    with whole(tmp_path / "out", False) as folder:
        (folder / "mine").touch()
        with pytest.raises(InputError, match="out: another export is writing it"), whole(tmp_path / "out", False):
            raise AssertionError
        assert file_names(folder) == ["mine"]
    assert file_names(tmp_path / "out") == ["mine"]


def test_a_folder_that_appears_meanwhile_is_not_replaced(tmp_path):
    out = tmp_path / "out"

    def meanwhile() -> None:
        with whole(out, False):
            out.mkdir()
            (out / "theirs").write_text("theirs")

    with pytest.raises(InputError, match="out: not empty"):
        meanwhile()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "theirs"]
