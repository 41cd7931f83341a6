"""Finds the text files of a folder, and reads the documents in them."""

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pipeline.data.ingest_notices import NOTICES
from pipeline.data.readers.formats import CONVERTED, LIBRARIES, MARKUP, PAGES, Unreadable, charset, converted
from pipeline.data.readers.sections import Document, document, plain
from pipeline.data.readers.text_config import _ending
from pipeline.data.text import text_files
from pipeline.data.text.words import blank
from pipeline.errors import InputError
from pipeline.notices import Examples, keep

if TYPE_CHECKING:
    from pipeline.data.readers.text_config import TextConfig

LEFT_OUT = (
    *("hidden", "other", "empty", "binary", "undecodable", "large", "unconverted", "damaged", "textless"),
    *("unmatched", "link", "special", "asset"),
)
# Endings of pages' parts and other media, which are no documents: nobody is advised to read them.
ASSETS = {
    *("css", "scss", "less", "js", "mjs", "map", "wasm"),
    *("png", "apng", "jpg", "jpeg", "gif", "svg", "svgz", "ico", "bmp", "webp", "avif", "tif", "tiff", "heic"),
    *("woff", "woff2", "ttf", "otf", "eot"),
    *("mp3", "ogg", "oga", "opus", "wav", "flac", "m4a", "mp4", "m4v", "mov", "webm", "ogv", "avi", "mkv"),
}
ALL = "**/*"


@dataclass
class Listing:
    """The files to read, and those that are left out, before or while they are read."""

    config: "TextConfig"
    paths: dict[str, Path]
    """{name in the folder: path} of the files to read."""
    counts: Counter[str]
    """Numbers of files, read and left out by reason."""
    examples: Examples
    """The first names of each reason."""

    def converts(self) -> bool:
        """Returns whether a file is read by a slow converter."""
        return any(_ending(path) in CONVERTED for path in self.paths.values())

    def leave_out(self, name: str, reason: str) -> None:
        """Leaves out a file of the folder, and counts it. Raises InputError if it is the only one."""
        what, advice = NOTICES[f"{reason}_files"]
        if not self.config.path.is_dir():
            why = what.removeprefix("files left out, ")
            raise InputError(f"{self.config.path}: {why}{f'; {advice}' if advice else ''}")
        if self.paths.pop(name, None):
            self.counts["files"] -= 1
        self.counts[f"{reason}_files"] += 1
        keep(self.examples, f"{reason}_files", name)

    def check(self) -> None:
        """Raises InputError if no file is left."""
        if self.paths:
            return
        numbers = {reason: self.counts[f"{reason}_files"] for reason in LEFT_OUT}
        reasons = ", ".join(f"{number} {reason}" for reason, number in numbers.items() if number)
        what = f"{self.config.path}: no text among the files that match ingest.pattern and endings ({reasons})"
        reason = "other" if numbers["other"] else "unconverted" if numbers["unconverted"] else ""
        advice = NOTICES[f"{reason}_files"][1] if reason else ""
        raise InputError(f"{what}; {advice}" if advice else what)


def list_files(config: "TextConfig") -> Listing:
    """Returns the files of the configuration. Raises InputError if no text is among them."""
    return _list_folder(config) if config.path.is_dir() else _list_file(config)


def _list_file(config: "TextConfig") -> Listing:
    name = config.path.name
    listing = Listing(config, {name: config.path}, Counter(files=1), {})
    reason = _no_text(name, config.path, config)
    if reason and (reason in ("large", "unconverted") or _ending(config.path) in (*PAGES, *CONVERTED)):
        listing.leave_out(name, reason)  # the faults of other texts are raised with their line
    return listing


def _list_folder(config: "TextConfig") -> Listing:
    folder, pattern = config.path, config.pattern
    listing = Listing(config, {}, Counter({f"{reason}_files": 0 for reason in LEFT_OUT}), {})
    shows_hidden = any(part.startswith(".") for part in PurePath(pattern).parts)
    matching = _inside(folder, pattern)
    if not matching:
        raise InputError(f"{folder}: no file matches ingest.pattern '{pattern}'")
    unmatched = _inside(folder, ALL).keys() - matching.keys() if pattern != ALL else ()
    for name, path in matching.items():
        if not shows_hidden and _hidden(name):
            reason = "hidden"
        elif not path.is_file():
            reason = "link" if path.is_symlink() else "special"
        elif config.endings and not {_ending(path), _shown_ending(path)} & set(config.endings):
            reason = "asset" if _shown_ending(path) in ASSETS else "other"
        elif not (reason := _no_text_or_damaged(name, path, config)):
            listing.paths[name] = path
            continue
        listing.leave_out(name, reason)
    for name in sorted(name for name in unmatched if not _hidden(name)):
        listing.leave_out(name, "unmatched")
    listing.counts["files"] = len(listing.paths)
    listing.check()
    return listing


def libraries(config: "TextConfig") -> tuple[str, ...]:
    """Returns the distributions that parse the files' formats; those of converters only if these are installed."""
    files = config.path.glob(config.pattern) if config.path.is_dir() else [config.path]
    formats = MARKUP.keys() | (CONVERTED.keys() if converted.installed() else set())
    endings = {_ending(path) for path in files}.intersection(formats, config.endings or formats)
    return tuple(sorted({name for ending in endings for name in LIBRARIES[MARKUP.get(ending, ending)]}))


def _inside(folder: Path, pattern: str) -> dict[str, Path]:
    """Returns {name in the folder: path} of all matches except folders, sorted by name.

    A link to a folder is not followed, and is included.
    """
    found = (path for path in folder.glob(pattern) if not path.is_dir() or path.is_symlink())
    return dict(sorted((path.relative_to(folder).as_posix(), path) for path in found))


def _hidden(relative: str) -> bool:
    return any(part.startswith(".") for part in PurePath(relative).parts)


def _no_text_or_damaged(name: str, path: Path, config: "TextConfig") -> str:
    """Returns the reason as `_no_text` does. An archive that cannot be read is damaged; of JSONL it is an error."""
    try:
        return _no_text(name, path, config)
    except text_files.UnreadableArchive:
        if _ending(path) == "jsonl":
            raise
        return "damaged"


def _no_text(name: str, path: Path, config: "TextConfig") -> str:
    """Returns why the file is not read, or its name is not UTF-8; empty if it is.

    The content of JSONL is not checked: its faults are errors. Of files to convert, only the size is; the rest when
    they are read. At most `max_file_mb` of a document are decompressed.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return "undecodable"
    ending = _ending(path)
    if ending in CONVERTED and not converted.installed():
        return "unconverted"
    largest = config.max_file_mb * 1_000_000
    whole = ending in MARKUP or config.documents == "files"
    if ending in CONVERTED or ending in PAGES:
        with text_files.open_binary(path) as stream:
            content = stream.read(largest + 1)
        return _no_page(content, largest, ending)
    decode, length = codecs.getincrementaldecoder("utf-8")(), 0
    with text_files.open_text(path) as stream:
        try:
            chunk = stream.read(text_files.CHUNK)
            if not chunk:
                return "empty"
            if ending == "jsonl":
                return ""
            while chunk:
                length += len(chunk)
                if whole and length > largest:
                    return "large"
                if b"\0" in chunk:
                    return "binary"
                decode.decode(chunk)
                chunk = stream.read(text_files.CHUNK)
        except UnicodeDecodeError:
            return "undecodable"
    return "undecodable" if decode.getstate()[0] else ""


def _no_page(content: bytes, largest: int, ending: str) -> str:
    if len(content) > largest:
        return "large"
    if not content or content in text_files.MARKS:
        return "empty"
    if ending in CONVERTED:
        try:
            return "large" if ending != "pdf" and converted.exceeds(content, largest) else ""
        except Unreadable:
            return "damaged"
    try:
        return "binary" if "\0" in charset.decode(content) else ""
    except UnicodeError:
        return "binary" if b"\0" in content else "undecodable"


def _shown_ending(path: Path) -> str:
    """Returns the ending as `_ending` does, but empty for a name without a dot."""
    return PurePath(text_files.plain_name(path)).suffix.lower().removeprefix(".")


def documents_of(listing: Listing) -> Iterator[tuple[str, Document]]:
    """Yields (place, document) of the files, and leaves out those that turn out to be damaged or without text.

    A document's id is the name with white space and control characters percent-encoded; if lines are documents, the
    document's number follows. Raises InputError for a faulty file, with its line, and if no file is left.
    """
    config = listing.config
    for file, path in list(listing.paths.items()):
        name = re.sub(r"[\s\x00-\x1f\x7f-\x9f]", lambda match: quote(match[0]), file)  # `check_id` rejects these
        ending = _ending(path)
        of_file = {"file": file, "folder": file.rpartition("/")[0], "ending": _shown_ending(path)}
        if ending == "jsonl":
            for number, (place, row) in enumerate(text_files.json_lines(path), 1):
                document_id = text_files.text_of(place, row, config.id_key) if config.id_key else f"{name}:{number}"
                title = text_files.text_of(place, row, config.title_key, required=False) if config.title_key else ""
                found = plain(document_id, title, text_files.text_of(place, row, config.text_key))
                yield place, _with(found, of_file | row, config)
        elif ending not in MARKUP and ending not in CONVERTED and config.documents == "lines":
            for number, line in text_files.table_lines(path):
                yield f"{path}:{number}", _with(plain(f"{name}:{number}", "", line), of_file, config)
        else:
            try:
                found, front = _document(name, path, config)
            except Unreadable:
                listing.leave_out(file, "damaged")
                continue
            if all(blank(section.text) for section in found.sections):
                listing.leave_out(file, "textless")
                continue
            yield str(path), _with(found, of_file | front, config)
    listing.check()


def _with(found: Document, metadata: dict[str, Any], config: "TextConfig") -> Document:
    """Returns the document with the configured metadata; of other fields only the names, for error messages."""
    if not config.metadata:
        return found
    return found._replace(metadata={k: value if k in config.metadata else None for k, value in metadata.items()})


def _document(document_id: str, path: Path, config: "TextConfig") -> tuple[Document, dict[str, Any]]:
    """Returns (the document of a whole file, its front matter by key).

    Raises InputError for a file that is not text, and Unreadable.
    """
    from pipeline.data.readers.formats import asciidoc, html, markdown, restructured

    ending, name = _ending(path), text_files.plain_name(path).rsplit(".", 1)[0]
    if ending in PAGES or ending in CONVERTED:
        with text_files.open_binary(path) as stream:
            content = stream.read()
        found = html.blocks(charset.decode(content)) if ending in PAGES else converted.blocks(content, ending)
        return document(document_id, found[0], name, found[1]), {}
    text = "\n".join(line for _, line in text_files.lines(path, blank=True))
    if ending not in MARKUP:
        return plain(document_id, name, text), {}
    parse = {"markdown": markdown.blocks, "restructured": restructured.blocks, "asciidoc": asciidoc.blocks}
    title, blocks = parse[MARKUP[ending]](text)
    front = markdown.metadata(text) if MARKUP[ending] == "markdown" and config.metadata else {}
    return document(document_id, title, name, blocks), front
