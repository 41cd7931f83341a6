"""Finds the text files of a folder, and reads the documents in them."""

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pipeline.data.ingest_notices import OTHER_ENDINGS
from pipeline.data.readers.sections import Document, document, plain
from pipeline.data.readers.text_config import _ending
from pipeline.data.text import text_files
from pipeline.errors import InputError
from pipeline.notices import Examples, keep

if TYPE_CHECKING:
    from pipeline.data.readers.text_config import TextConfig

MARKUP = {"md": "markdown", "markdown": "markdown", "html": "html", "htm": "html"}
LEFT_OUT = ("hidden", "other", "empty", "binary", "undecodable", "unmatched", "link", "special")
ALL = "**/*"


def listing(config: "TextConfig") -> tuple[dict[str, Path], Counter[str], Examples]:
    """Returns {name in the folder: path} of the text files, the counts of skipped files by reason, and first examples.

    Raises InputError if no text is left.
    """
    examples: Examples = {}
    if not config.path.is_dir():
        return {config.path.name: config.path}, Counter(files=1), examples
    counts = Counter({f"{reason}_files": 0 for reason in LEFT_OUT})
    shows_hidden = any(part.startswith(".") for part in PurePath(config.pattern).parts)
    matching = _inside(config.path, config.pattern)
    unmatched = _inside(config.path, ALL).keys() - matching.keys() if config.pattern != ALL else ()
    paths = {}
    for relative, path in matching.items():
        if not shows_hidden and _hidden(relative):
            reason = "hidden"
        elif not path.is_file():
            reason = "link" if path.is_symlink() else "special"
        elif config.endings and not {_ending(path), _shown_ending(path)} & set(config.endings):
            reason = "other"
        elif not (reason := _no_text(relative, path)):
            paths[relative] = path
            continue
        counts[f"{reason}_files"] += 1
        keep(examples, f"{reason}_files", relative)
    for relative in sorted(name for name in unmatched if not _hidden(name)):
        counts["unmatched_files"] += 1
        keep(examples, "unmatched_files", relative)
    if not matching:
        raise InputError(f"{config.path}: no file matches ingest.pattern '{config.pattern}'")
    if not paths:
        reasons = ", ".join(f"{counts[f'{reason}_files']} {reason}" for reason in LEFT_OUT if counts[f"{reason}_files"])
        what = f"{config.path}: no text among the files that match ingest.pattern and endings ({reasons})"
        raise InputError(f"{what}; {OTHER_ENDINGS}" if counts["other_files"] else what)
    counts["files"] = len(paths)
    return paths, counts, examples


def _inside(folder: Path, pattern: str) -> dict[str, Path]:
    """Returns {name in the folder: path} of all matches except folders, sorted by name.

    A link to a folder is not followed, and is included.
    """
    found = (path for path in folder.glob(pattern) if not path.is_dir() or path.is_symlink())
    return dict(sorted((path.relative_to(folder).as_posix(), path) for path in found))


def _hidden(relative: str) -> bool:
    return any(part.startswith(".") for part in PurePath(relative).parts)


def _no_text(name: str, path: Path) -> str:
    """Returns why the file is not text in UTF-8 (or UTF-16 with its mark) or its name is not UTF-8; empty if both are.

    The content of JSONL is not checked: its faults are errors.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return "undecodable"
    decode = codecs.getincrementaldecoder("utf-8")()
    with text_files.open_text(path) as stream:
        try:
            chunk = stream.read(text_files.CHUNK)
            if not chunk:
                return "empty"
            if _ending(path) == "jsonl":
                return ""
            while chunk:
                if b"\0" in chunk:
                    return "binary"
                decode.decode(chunk)
                chunk = stream.read(text_files.CHUNK)
        except UnicodeDecodeError:
            return "undecodable"
    return "undecodable" if decode.getstate()[0] else ""


def _shown_ending(path: Path) -> str:
    """Returns the ending as `_ending` does, but empty for a name without a dot."""
    return PurePath(text_files.plain_name(path)).suffix.lower().removeprefix(".")


def documents_of(paths: dict[str, Path], config: "TextConfig") -> Iterator[tuple[str, Document]]:
    """Yields (place, document) of the files. `paths`: {name in the folder: path}.

    A document's id is the name with white space and control characters percent-encoded; if lines are documents, the
    document's number follows. Raises InputError for a faulty file, with its line.
    """
    from pipeline.data.readers import markdown

    for file, path in paths.items():
        name = re.sub(r"[\s\x00-\x1f\x7f-\x9f]", lambda match: quote(match[0]), file)  # `check_id` rejects these
        ending = _ending(path)
        of_file = {"file": file, "folder": file.rpartition("/")[0], "ending": _shown_ending(path)}
        if ending == "jsonl":
            for number, (place, row) in enumerate(text_files.json_lines(path), 1):
                document_id = text_files.text_of(place, row, config.id_key) if config.id_key else f"{name}:{number}"
                title = text_files.text_of(place, row, config.title_key, required=False) if config.title_key else ""
                found = plain(document_id, title, text_files.text_of(place, row, config.text_key))
                yield place, _with(found, of_file | row, config)
        elif ending not in MARKUP and config.documents == "lines":
            for number, line in text_files.table_lines(path):
                yield f"{path}:{number}", _with(plain(f"{name}:{number}", "", line), of_file, config)
        else:
            text = "\n".join(line for _, line in text_files.lines(path, blank=True))
            found = _document(name, text_files.plain_name(path).rsplit(".", 1)[0], text, MARKUP.get(ending))
            front = markdown.metadata(text) if MARKUP.get(ending) == "markdown" and config.metadata else {}
            yield str(path), _with(found, of_file | front, config)


def _with(found: Document, metadata: dict[str, Any], config: "TextConfig") -> Document:
    """Returns the document with the configured metadata; of other fields only the names, for error messages."""
    if not config.metadata:
        return found
    return found._replace(metadata={k: value if k in config.metadata else None for k, value in metadata.items()})


def _document(document_id: str, name: str, text: str, markup: str | None) -> Document:
    from pipeline.data.readers import html, markdown

    if markup == "markdown":
        title, blocks = markdown.blocks(text)
    elif markup == "html":
        title, blocks = html.blocks(text.encode())
    else:
        return plain(document_id, name, text)
    return document(document_id, title, name, blocks)
