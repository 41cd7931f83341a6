"""Text files, plain or compressed, read line by line; what is wrong with them is said by file and line."""

import codecs
import csv
import gzip
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any, BinaryIO, cast

from pipeline.errors import InputError

ENDINGS = (".gz", ".xz", ".zst")
BEGINNINGS = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
"""Of compressed files, none of which is UTF-8."""
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # begins as UTF-16's does, and so comes before it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order marks, and the encodings that they tell."""
CHUNK = 1 << 20  # bytes read at a time
SHOWN = 30  # characters of a wrong value in a message
FIELD_LIMIT = 1 << 27  # characters of one CSV field; the csv module's own limit is 128 KiB


def missing(paths: Iterable[Path | None], commands: dict[str, list[str]]) -> list[str]:
    """A line for each absent path (None: not asked for), with the `commands` for a file of its name, if known.

    They bring it to the path's folder, and an archive that holds several of the files is named once.
    """
    lines = []
    brought: dict[str, Path] = {}
    for path in paths:
        if path is None or path.exists():
            continue
        line = f"{path} does not exist"
        known = " && ".join(_into(path.parent, command) for command in commands.get(plain_name(path), []))
        if known:
            first = brought.setdefault(known, path)
            line += f": {known}" if first == path else f": comes with {first}"
        lines.append(line)
    return lines


def _into(folder: Path, command: str) -> str:
    """`wget URL` or `tar xzf ARCHIVE ...`, in that folder."""
    there = quote(str(folder))
    if command.startswith("wget "):
        return command.replace("wget ", f"wget -P {there} ", 1)
    return command.replace("tar xzf ", f"tar xzf {there}/", 1) + f" -C {there}"


def plain_name(path: Path) -> str:
    """The file's name without the ending of its compression."""
    return path.stem if path.suffix in ENDINGS else path.name


def find(folder: Path, name: str) -> Path | None:
    """The file `name` of `folder`, plain or compressed."""
    return next((p for ending in ("", *ENDINGS) if (p := folder / (name + ending)).is_file()), None)


@contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """The decompressed bytes. Raises InputError for a file that is absent, cannot be read or is damaged."""
    stream: Any
    try:
        if path.suffix == ".gz":
            stream = gzip.open(path)  # noqa: SIM115 (closed below)
        elif path.suffix == ".xz":
            stream = lzma.open(path)  # noqa: SIM115
        elif path.suffix == ".zst":
            import pyarrow as pa

            stream = BufferedReader(cast(Any, pa.CompressedInputStream(pa.OSFile(str(path)), "zstd")))
        else:
            stream = open(path, "rb")  # noqa: SIM115
        with stream:
            yield stream
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: unreadable archive: {error}") from error
    except OSError as error:
        kind = "unreadable archive" if path.suffix in ENDINGS and error.errno is None else "cannot be read"
        raise InputError(f"{path}: {kind}: {error.strerror or error}") from error


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """The text as bytes in UTF-8, decompressed and without its byte order mark, which may also tell UTF-16 or UTF-32.

    Raises InputError as `open_binary` does. While it is read: for what is not in the encoding that the mark tells.
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
    """A stream in another encoding, read as UTF-8; `line` is the number of the first line that is not yet read."""

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


def lines(path: Path, blank: bool = False) -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its end). Blank lines are passed over unless `blank`.

    Raises InputError for an empty file, invalid UTF-8 (with its line) and whatever `open_text` finds.
    """
    number = 0
    with open_text(path) as stream:
        for number, raw in enumerate(stream, 1):
            try:
                line = raw.decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise _no_text(path, number, raw, f" at byte {error.start + 1} of the line") from None
            if blank or line.strip():
                yield number, line
    if number == 0:
        raise InputError(f"{path}: empty file")


def _no_text(path: Path, line: int, data: bytes, where: str = "") -> InputError:
    """Of a line that is no UTF-8, or of a compressed file whose name does not say so."""
    for (beginning, kind), ending in zip(BEGINNINGS.items(), ENDINGS, strict=True):
        if line == 1 and data.startswith(beginning):
            return InputError(f"{path}: is compressed by {kind}: its name must end in {ending}")
    return InputError(f"{path}:{line}: invalid UTF-8{where}")


def columns(path: Path, count: int, separator: str | None = "\t") -> Iterator[tuple[str, list[str]]]:
    """(place, the `count` columns) of each line. `separator` None: any white space.

    Raises InputError for another number of columns.
    """
    for number, line in lines(path):
        fields = line.split(separator)
        if len(fields) != count:
            raise InputError(f"{path}:{number}: {count} columns expected, {len(fields)} found")
        yield f"{path}:{number}", fields


def quoted_columns(path: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """As `columns`, tab-separated, where fields may stand in double quotes (the csv module's rules, as DPR reads)."""
    csv.field_size_limit(FIELD_LIMIT)
    reached = [0]

    def texts() -> Iterator[str]:
        for number, line in lines(path):
            reached[0] = number
            yield line + "\n"

    try:
        for fields in csv.reader(texts(), delimiter="\t"):
            if len(fields) != count:
                raise InputError(f"{path}:{reached[0]}: {count} columns expected, {len(fields)} found")
            yield f"{path}:{reached[0]}", fields
    except csv.Error as error:
        raise InputError(f"{path}:{reached[0]}: {error}") from None


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of each line. Raises InputError for invalid JSON and for what is no object."""
    for number, line in lines(path):
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{number}: invalid JSON: {error.msg} at character {error.colno}") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}:{number}: invalid JSON: {_beyond(error)}") from None
        if not isinstance(value, dict):
            raise InputError(f"{path}:{number}: a JSON object expected, {type(value).__name__} found")
        yield f"{path}:{number}", value


def json_list(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of each element of a file that is one JSON list of objects. Memory: the largest element.

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
                raise InputError(f"{path}:{line + error.lineno - 1}: invalid JSON: {error.msg}") from None
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}:{line}: invalid JSON: {_beyond(error)}") from None
            yield f"{path}:{line}", value
            line += buffer.count("\n", 0, end)
            buffer, expected = buffer[end:], ",]"
    if expected:
        raise InputError(f"{path}:{line}: invalid JSON: the file ends where {' or '.join(expected)} is expected")


def _beyond(error: Exception) -> str:
    """What the json module refuses though it is JSON."""
    return "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"


def _decoded(path: Path) -> Iterator[str]:
    """The file's text in pieces. Raises InputError for an empty file and for invalid UTF-8, with its line."""
    decode, line = codecs.getincrementaldecoder("utf-8")(), 1
    with open_text(path) as stream:
        chunk = stream.read(CHUNK)
        if not chunk:
            raise InputError(f"{path}: empty file")
        while True:
            try:
                text = decode.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                line += error.object.count(b"\n", 0, error.start)
                raise _no_text(path, line, error.object) from None
            if not chunk:
                return
            if text:  # none where a character is cut in two
                yield text
            line += text.count("\n")
            chunk = stream.read(CHUNK)


def text_of(place: str, row: dict[str, Any], key: str, required: bool = True) -> str:
    """The string at `key`; a number is written out; absent and not `required`: empty. Raises InputError."""
    value = row.get(key)
    if value is None and not required:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{place}: no text in field '{key}'" if value is None else f"{place}: field '{key}' is no text")


def strings_of(place: str, row: dict[str, Any], key: str) -> list[str]:
    """The list of strings at `key`; absent or null: empty. Raises InputError."""
    values = row.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{place}: field '{key}' is no list of strings")
    return values


def is_plain(number: str) -> bool:
    """Whether a number is written as files have it: Python itself also reads `1_0`, and the digits of other scripts."""
    return number.isascii() and "_" not in number


def integer(place: str, value: str, name: str = "relevance") -> int:
    """`value` as an integer of 32 bits, as the table of judgements holds. Raises InputError, which calls it `name`."""
    shown = value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
    try:
        if not is_plain(value):
            raise ValueError
        number = int(value)
    except ValueError:
        raise InputError(f"{place}: {name} {shown!r} is not an integer") from None
    if not -(2**31) <= number < 2**31:
        raise InputError(f"{place}: {name} {shown!r} does not fit 32 bits")
    return number
