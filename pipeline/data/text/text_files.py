"""Reads text files, plain or compressed, line by line; errors name file and line."""

import codecs
import gzip
import json
import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO, cast

from pipeline.errors import InputError
from pipeline.notices import one_line
from pipeline.paths import absolute_path

ENDINGS = (".gz", ".xz", ".zst")
BEGINNINGS = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""First bytes of compressed files; none of them is valid UTF-8."""
UNREAD = {re.compile(rb"BZh[1-9]1AY&SY"): "compressed by bzip2", re.compile(rb"PK\x03\x04"): "a zip archive"}
"""First bytes of formats that are not decompressed here; they may look like a line of text."""
OTHER_ENDS = "save it with LF or CRLF, as by `tr '\\r' '\\n'`"
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is the beginning of this one
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""{byte order mark: encoding}."""
CHUNK = 1 << 20  # bytes read at a time

Location = Path | str
"""A local file, or an address that fsspec opens and decompresses, such as `hf://...` or `zip://...::...`."""


class UnreadableArchive(InputError):
    """A compressed file that is damaged, cut off, or not compressed as its ending says."""


KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe (FIFO), which can be read only once",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""Names of what is not a file."""


def fault(path: Path, folder: bool = False, pipe: bool = False) -> str:
    """Returns why `path` cannot be read as a file; empty if it can.

    `folder`: also accept a folder. `pipe`: also accept an open pipe, such as that of `<(zcat run.gz)`; a named pipe is
    rejected, because reading it blocks until another process writes to it.
    """
    try:
        mode = stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return "is a link whose target does not exist" if path.is_symlink() else "does not exist"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    accepted = {stat.S_IFREG} | ({stat.S_IFDIR} if folder else set())
    is_open = pipe and mode == stat.S_IFIFO and not path.resolve().exists()
    if mode not in accepted and not is_open:
        expected = "a file or folder" if folder else "a file"
        return f"is {KINDS.get(mode, 'not a file')}; {expected} is expected"
    if not os.access(path, os.R_OK):
        return "cannot be read: permission denied"
    return ""


def check_file(path: Path) -> None:
    """Raises InputError unless the path is a readable file or an open pipe (see `fault`)."""
    if wrong := fault(path, pipe=True):
        raise InputError(f"{absolute_path(path)}: {'no such file' if wrong == 'does not exist' else wrong}")


def wrong_beginning(field: str, path: Path, read: Callable[[Path], Iterable[Any]], folder: bool = False) -> list[str]:
    """Returns a line, with the field's name, for an error in the beginning of a file. `read` yields its rows.

    Empty without an error, and for an absent file, which the flow itself reports.
    """
    wrong = fault(path, folder)
    if "does not exist" in wrong:
        return []
    try:
        if not wrong:
            next(iter(read(path)), None)
    except InputError as error:
        return [f"{field}: {error}"]
    return [f"{field}: {absolute_path(path)} {wrong}"] if wrong else []


def missing(paths: Iterable[Path | None], commands: dict[str, list[str]], folders: bool = True) -> list[str]:
    """Returns a line for each path that is absent or not a file, with the `commands` for a file of its name.

    The commands download the file to the path's folder; an archive with several of the files is named once. A None
    in `paths` is skipped. `folders`: also accept folders.
    """
    lines = []
    first_of_command: dict[str, Path] = {}
    for path in paths:
        wrong = "" if path is None else fault(path, folders)
        if path is None or not wrong:
            continue
        line = f"{absolute_path(path)} {wrong}"
        if "does not exist" not in wrong:
            lines.append(line)
            continue
        command = " && ".join(_into(path.parent, part) for part in commands.get(plain_name(path), []))
        if command:
            first = first_of_command.setdefault(command, path)
            line += f": {command}" if first == path else f": comes with {first}"
        lines.append(line)
    return lines


def _into(folder: Path, command: str) -> str:
    """Returns `wget URL` or `tar xzf ARCHIVE ...` for that folder."""
    target = quote(str(folder))
    if command.startswith("wget "):
        return command.replace("wget ", f"wget -P {target} ", 1)
    return command.replace("tar xzf ", f"tar xzf {target}/", 1) + f" -C {target}"


def plain_name(path: Path) -> str:
    """Returns the file's name without the ending of its compression."""
    return path.stem if path.suffix in ENDINGS else path.name


def find(folder: Path, name: str) -> Path | None:
    """Returns the path of `name` in `folder`, plain or compressed, even if it is not a file. None: absent."""
    return next((p for ending in ("", *ENDINGS) if os.path.lexists(p := folder / (name + ending))), None)


@contextmanager
def open_binary(path: Location) -> Iterator[BinaryIO]:
    """Opens the decompressed bytes.

    Raises InputError for a file that is absent or cannot be read, and UnreadableArchive.
    """
    stream: Any
    suffix = path.suffix if isinstance(path, Path) else ""
    if isinstance(path, Path):
        check_file(path)
    try:
        if isinstance(path, str):
            import fsspec

            stream = fsspec.open(path, "rb")
        elif suffix == ".gz":
            stream = gzip.open(path)  # noqa: SIM115 (closed below)
        elif suffix == ".xz":
            stream = lzma.open(path)  # noqa: SIM115
        elif suffix == ".zst":
            import pyarrow as pa

            stream = BufferedReader(cast(Any, pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")))
        else:
            stream = open(path, "rb")  # noqa: SIM115
        with stream as opened:
            yield opened
    except FileNotFoundError:
        raise InputError(f"{absolute_path(path)}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{absolute_path(path)}: is a folder; a file is expected") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UnreadableArchive(f"{path}: unreadable archive: {error}") from error
    except OSError as error:
        if suffix in ENDINGS and error.errno is None:
            raise UnreadableArchive(f"{path}: unreadable archive: {error}") from error
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextmanager
def open_text(path: Location) -> Iterator[BinaryIO]:
    """Opens the text as UTF-8, decompressed, without byte order mark. The mark may also announce UTF-16 or UTF-32.

    Raises InputError as `open_binary` does, and during reading for bytes that are invalid in the mark's encoding.
    """
    with open_binary(path) as stream:
        buffered = BufferedReader(cast(Any, stream), CHUNK)
        start = buffered.peek(4)
        mark, encoding = next(((m, name) for m, name in MARKS.items() if start.startswith(m)), (b"", "utf-8"))
        if encoding == "utf-8":
            buffered.read(len(mark))
            yield buffered
            return
        recoded = _Recoded(buffered, encoding)
        try:
            yield BufferedReader(cast(Any, recoded), CHUNK)
        except UnicodeDecodeError:
            raise InputError(f"{path}:{recoded.line}: invalid {encoding.upper()}, here or below") from None


class _Recoded(RawIOBase):
    """A stream in another encoding, read as UTF-8. `line`: number of the first line that is not yet read."""

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self.stream, self.decoder = stream, codecs.getincrementaldecoder(encoding)()
        self.ready, self.line, self.ended = b"", 1, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready and not self.ended:
            chunk = self.stream.read(CHUNK)
            self.ended = not chunk
            self.ready = self.decoder.decode(chunk, final=self.ended).encode()
            self.line += self.ready.count(b"\n")
        part, self.ready = self.ready[: len(buffer)], self.ready[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def lines(path: Location, blank: bool = False, ends: bool = False) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line). `ends`: keep the line end. `blank`: keep blank lines.

    Raises InputError for an empty file, for invalid UTF-8 (with its line), and as `open_text` does.
    """
    number = 0
    with open_text(path) as stream:
        for number, raw in enumerate(stream, 1):
            if number == 1:
                _check_unpacked(path, raw)
            try:
                line = raw.decode()
            except UnicodeDecodeError as error:
                raise InputError(f"{path}:{number}: invalid UTF-8 at byte {error.start + 1} of the line") from None
            if blank or line.strip():
                yield number, line if ends else line.rstrip("\r\n")
    if number == 0:
        raise InputError(f"{path}: empty file")


def _check_unpacked(path: Location, beginning: bytes) -> None:
    """Raises InputError for a compressed file whose ending does not match, and for an unsupported compression."""
    for (known, kind), ending in zip(BEGINNINGS.items(), ENDINGS, strict=True):
        if beginning.startswith(known):
            raise InputError(f"{path}: is compressed by {kind}: its name must end in {ending}")
    for pattern, kind in UNREAD.items():
        if pattern.match(beginning):
            raise InputError(f"{path}: is {kind}: unpack it, or compress it as {', '.join(ENDINGS)}")


def table_lines(path: Location, blank: bool = False, ends: bool = False) -> Iterator[tuple[int, str]]:
    """Yields the `lines` of a file whose lines are rows. Raises InputError also for lines that end with CR only."""
    for number, line in lines(path, blank, ends=True):
        if number == 1 and not line.endswith("\n") and "\r" in line.rstrip("\r"):
            raise InputError(f"{path}: its lines end with CR only; {OTHER_ENDS}")
        yield number, line if ends else line.rstrip("\r\n")


def columns(path: Path, count: int, separator: str | None = "\t") -> Iterator[tuple[str, list[str]]]:
    """Yields (place, the `count` columns) of each line. `separator` None: spaces and tabs.

    Raises InputError for another number of columns.
    """
    for number, line in table_lines(path):
        fields = line.split(separator) if separator else split_line(line)
        if len(fields) != count:
            raise InputError(f"{path}:{number}: {count} columns expected, {len(fields)} found")
        yield f"{path}:{number}", fields


def json_rows(path: Location) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the rows of `json_list` if the file begins with a bracket, otherwise those of `json_lines`."""
    with open_text(path) as stream:
        is_list = stream.read(1 << 10).lstrip(b" \t\r\n").startswith(b"[")
    return (json_list if is_list else json_lines)(path)


def json_lines(path: Location) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, object) of each line. Raises InputError for invalid JSON and for a value that is not an object."""
    for number, line in lines(path):
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{number}: invalid JSON: {_fault(error)} at character {error.colno}") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number}: invalid JSON: {_beyond(error)}") from None
        if not isinstance(value, dict):
            raise InputError(f"{path}:{number}: a JSON object expected, {type(value).__name__} found")
        yield f"{path}:{number}", value


def json_list(path: Location) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, object) of each element of a file that is one JSON list of objects. Memory: the largest element.

    Raises InputError as `json_lines` does.
    """
    decoder = json.JSONDecoder()
    buffer, line, expected = "", 1, "["
    for chunk in chain(_decoded(path), [""]):
        buffer += chunk
        while True:
            body = buffer.lstrip()
            line += buffer.count("\n", 0, len(buffer) - len(body))
            buffer = body
            if not buffer:
                break
            if buffer[0] in expected:
                expected = {"[": "{]", ",": "{", "]": ""}.get(buffer[0], expected)
            else:
                raise InputError(f"{path}:{line}: invalid JSON: {' or '.join(expected) or 'the end'} expected")
            if buffer[0] != "{":
                buffer = buffer[1:]
                continue
            try:
                value, end = decoder.raw_decode(buffer)
            except json.JSONDecodeError as error:
                cut_off = error.pos > len(buffer) - 16 or error.msg.startswith("Unterminated string")
                if chunk and cut_off:
                    break
                raise InputError(f"{path}:{line + error.lineno - 1}: invalid JSON: {_fault(error)}") from None
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}:{line}: invalid JSON: {_beyond(error)}") from None
            yield f"{path}:{line}", value
            line += buffer.count("\n", 0, end)
            buffer, expected = buffer[end:], ",]"
    if expected:
        raise InputError(f"{path}:{line}: invalid JSON: the file ends where {' or '.join(expected)} is expected")


def _fault(error: json.JSONDecodeError) -> str:
    """Returns the json module's message without the " at" or " starting at" that a position follows."""
    return error.msg.removesuffix(" at").removesuffix(" starting")


def _beyond(error: Exception) -> str:
    """Returns why the json module rejects valid JSON."""
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def _decoded(path: Location) -> Iterator[str]:
    """Yields the file's text in pieces. Raises InputError for an empty file and for invalid UTF-8, with its line."""
    decode, line = codecs.getincrementaldecoder("utf-8")(), 1
    with open_text(path) as stream:
        chunk = stream.read(CHUNK)
        if not chunk:
            raise InputError(f"{path}: empty file")
        _check_unpacked(path, chunk)
        while True:
            try:
                text = decode.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                line += error.object.count(b"\n", 0, error.start)
                raise InputError(f"{path}:{line}: invalid UTF-8") from None
            if not chunk:
                return
            if text:  # empty if the chunk ends inside a character
                yield text
            line += text.count("\n")
            chunk = stream.read(CHUNK)


def text_of(place: str, row: dict[str, Any], key: str, required: bool = True) -> str:
    """Returns the string at `key`, or an integer's digits; empty if absent and not `required`. Otherwise InputError.

    Other numbers, true and false are errors too: how the file writes them is no longer known.
    """
    value = row.get(key)
    if value is None and not required:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise InputError(f"{place}: no text in field '{key}'")
    found = f", but {value}: write it in quotes" if isinstance(value, float | bool) else ""
    raise InputError(f"{place}: field '{key}' is not text{found}")


def strings_of(place: str, row: dict[str, Any], key: str) -> list[str]:
    """Returns the list of strings at `key`; empty if absent or null. Raises InputError for another value."""
    values = row.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{place}: field '{key}' is not a list of strings")
    return values


def split_line(line: str) -> list[str]:
    """Splits a line at spaces and tabs. Other white space stays in the words, and `ids.check_id` rejects it."""
    return [word for word in line.replace("\t", " ").split(" ") if word]


def is_plain(number: str) -> bool:
    """Returns whether a number has the usual form: Python also parses `1_0` and the digits of other scripts."""
    return number.isascii() and "_" not in number


def integer(place: str, value: str, name: str) -> int:
    """Returns `value` as a 32-bit integer. Raises InputError, which calls it `name`."""
    shown_value = one_line(value)
    try:
        if not is_plain(value):
            raise ValueError
        number = int(value)
    except ValueError:
        raise InputError(f"{place}: {name} '{shown_value}' is not an integer") from None
    if not -(2**31) <= number < 2**31:
        raise InputError(f"{place}: {name} '{shown_value}' does not fit into 32 bits")
    return number
