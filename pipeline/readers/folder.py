"""Which files of a folder hold text, and the documents in them."""

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pipeline import files
from pipeline.errors import InputError
from pipeline.readers.sections import Document, document, plain

if TYPE_CHECKING:
    from pipeline.readers.text import TextConfig

MARKUP = {"md": "markdown", "markdown": "markdown", "html": "html", "htm": "html"}
LEFT_OUT = ("hidden", "other", "empty", "binary", "undecodable")


def listing(config: "TextConfig") -> tuple[dict[str, Path], Counter[str]]:
    """{name in the folder: path} of the texts, and how many files were passed over, by reason.

    Raises InputError where no text is left.
    """
    if not config.path.is_dir():
        return {config.path.name: config.path}, Counter(files=1)
    counts = Counter({f"{reason}_files": 0 for reason in LEFT_OUT})
    shows_hidden = any(part.startswith(".") for part in PurePath(config.pattern).parts)
    matching = {path.relative_to(config.path): path for path in config.path.glob(config.pattern) if path.is_file()}
    paths = {}
    for relative, path in sorted((name.as_posix(), path) for name, path in matching.items()):
        if not shows_hidden and any(part.startswith(".") for part in PurePath(relative).parts):
            counts["hidden_files"] += 1
        elif config.endings and _ending(path) not in config.endings:
            counts["other_files"] += 1
        elif reason := _no_text(relative, path):
            counts[f"{reason}_files"] += 1
        else:
            paths[relative] = path
    if not matching:
        raise InputError(f"{config.path}: no file matches ingest.pattern '{config.pattern}'")
    if not paths:
        reasons = ", ".join(f"{counts[f'{reason}_files']} {reason}" for reason in LEFT_OUT if counts[f"{reason}_files"])
        raise InputError(f"{config.path}: no text among the files that match ingest.pattern and endings ({reasons})")
    counts["files"] = len(paths)
    return paths, counts


def _no_text(name: str, path: Path) -> str:
    """Why the file is no text in UTF-8, or its name is not; empty where both are.

    JSONL is not looked into: its faults are errors.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return "undecodable"
    decode = codecs.getincrementaldecoder("utf-8")()
    with files.open_binary(path) as stream:
        chunk = stream.read(files.CHUNK)
        if not chunk:
            return "empty"
        if _ending(path) == "jsonl":
            return ""
        while chunk:
            if b"\0" in chunk:
                return "binary"
            try:
                decode.decode(chunk)
            except UnicodeDecodeError:
                return "undecodable"
            chunk = stream.read(files.CHUNK)
    return "undecodable" if decode.getstate()[0] else ""


def _ending(path: Path) -> str:
    """As `ingest.endings` names it: of a name without a dot all of it, such as makefile."""
    return files.plain_name(path).rpartition(".")[2].lower()


def documents_of(paths: dict[str, Path], config: "TextConfig") -> Iterator[tuple[str, Document]]:
    """(place, document) of the `paths`, by their names in the folder.

    A document's id is that name, white space in it percent-encoded, with the document's number where lines are
    documents. Raises InputError for what is wrong with a file, with its line.
    """
    from pipeline.readers import markdown

    for file, path in paths.items():
        name = re.sub(r"\s", lambda space: quote(space[0]), file)
        ending = _ending(path)
        # Empty for a name without a dot, of which `_ending` gives all.
        shown_ending = PurePath(files.plain_name(path)).suffix.lower().removeprefix(".")
        of_file = {"file": file, "folder": file.rpartition("/")[0], "ending": shown_ending}
        if ending == "jsonl":
            for number, (place, row) in enumerate(files.json_lines(path), 1):
                document_id = files.text_of(place, row, config.id_key) if config.id_key else f"{name}:{number}"
                title = files.text_of(place, row, config.title_key, required=False) if config.title_key else ""
                found = plain(document_id, title, files.text_of(place, row, config.text_key))
                yield place, _with(found, of_file | row, config)
        elif ending not in MARKUP and config.documents == "lines":
            for number, line in files.lines(path):
                yield f"{path}:{number}", _with(plain(f"{name}:{number}", "", line), of_file, config)
        else:
            text = "\n".join(line for _, line in files.lines(path, blank=True))
            found = _document(name, files.plain_name(path).rsplit(".", 1)[0], text, MARKUP.get(ending))
            front = markdown.metadata(text) if MARKUP.get(ending) == "markdown" and config.metadata else {}
            yield str(path), _with(found, of_file | front, config)


def _with(found: Document, metadata: dict[str, Any], config: "TextConfig") -> Document:
    """The document with the metadata asked for; of the rest the names, so that a message can tell them."""
    if not config.metadata:
        return found
    return found._replace(metadata={k: value if k in config.metadata else None for k, value in metadata.items()})


def _document(document_id: str, name: str, text: str, markup: str | None) -> Document:
    from pipeline.readers import html, markdown

    if markup == "markdown":
        title, blocks = markdown.blocks(text)
    elif markup == "html":
        title, blocks = html.blocks(text.encode())
    else:
        return plain(document_id, name, text)
    return document(document_id, title, name, blocks)
