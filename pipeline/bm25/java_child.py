"""Describes how a process for Java failed."""

import subprocess
from collections.abc import Mapping
from typing import IO, Any

from pipeline.errors import InputError, JavaFailed
from pipeline.runtime.processes import ending


def check_child(child: subprocess.Popen[str], answer: Mapping[str, Any], stderr: IO[str]) -> None:
    """Raises InputError or JavaFailed, with a one-line message, if the finished process failed."""
    if "input_error" in answer:
        raise InputError(answer["input_error"])
    if "error" in answer:
        raise JavaFailed(f"BM25 failed: {answer['error']}")
    if "result" not in answer:
        raise JavaFailed(f"BM25 failed in its Java process, {ending(child.returncode)}: {last_line(stderr)}")


def last_line(stderr: IO[str]) -> str:
    stderr.seek(0)
    lines = [line.strip() for line in stderr if line.strip()]
    return lines[-1] if lines else "it left no message"
