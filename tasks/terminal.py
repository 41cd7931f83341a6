"""Output of a run in the terminal: a progress bar for the current stage, and one line for each finished one."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table

from pipeline.runtime.work import Progress, silent
from tasks.printable import guard_consoles

guard_consoles()
TERMINAL: ContextVar[Console | None] = ContextVar("TERMINAL", default=None)
"""Where lines are shown. None (as in a worker): nowhere; Prefect's log has them."""
NOTICES: ContextVar[dict[str, str] | None] = ContextVar("NOTICES", default=None)
"""{a notice that is shown: the node that reported it first}, of this command. None: no terminal."""

SILENT = ("step", "skipped", "tokens")
"""Figures of a training that are not shown while it runs."""
QUIET = (*SILENT, "seconds_left")
"""Figures that the bar leaves out: it shows the remaining time itself."""
SECONDS_BETWEEN_LINES = 60.0
"""Least seconds between two lines of a running stage, if the output is not a terminal."""
LIBRARY = logging.getLogger("pipeline")
LIBRARY.setLevel(logging.INFO)
HANDLERS_LOCK = threading.Lock()
"""Held while the handlers change."""
WIDEST = 10_000
"""More characters than a table's line ever has."""


@contextmanager
def shown_in(console: Console) -> Iterator[None]:
    token, shown = TERMINAL.set(console), NOTICES.set({})
    try:
        yield
    finally:
        NOTICES.reset(shown)
        TERMINAL.reset(token)


def first_to_report(notice: str, node: str) -> str:
    """Returns the node that reported this notice first in the terminal; `node` itself if no other one did."""
    shown = NOTICES.get()
    return node if shown is None else shown.setdefault(notice, node)


def print_line(text: str) -> None:
    """Prints one line of rich's markup."""
    console = TERMINAL.get()
    if console is not None:
        console.print(text, highlight=False, soft_wrap=True)


def print_whole(table: Table, console: Console) -> None:
    """Prints a table with all figures, even beyond the edge of a narrow terminal. Columns with a `min_width` wrap."""
    console.print(UncroppedTable(table), crop=False)


@dataclass(frozen=True)
class UncroppedTable:
    """A table that is as wide as its content."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrowest, shown = copy(self.table), copy(self.table)
        narrowest.columns = [replace(column, max_width=column.min_width) for column in self.table.columns]
        shown.columns = [
            replace(column, no_wrap=column.min_width is None, overflow="fold") for column in self.table.columns
        ]
        least = Measurement.get(console, options.update_width(WIDEST), narrowest).maximum
        yield from console.render(shown, options.update_width(max(options.max_width, least)))


@contextmanager
def bar(node: str) -> Iterator[Progress]:
    """Shows a progress bar that disappears when the stage ends; without a terminal, a line from time to time."""
    console = TERMINAL.get()
    if console is None:
        yield silent
    elif console.is_terminal:
        columns = (
            TextColumn("  [bold]{task.fields[node]:<18}"),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[counts]}"),
            TextColumn("[dim]{task.fields[numbers]}", table_column=Column(ratio=1, no_wrap=True)),  # the rest
            TimeRemainingColumn(),
            TextColumn("[dim]left"),
        )
        with Bars(*columns, console=console, transient=True, expand=True) as bars:
            task = bars.add_task(node, total=None, node=node, counts="", numbers="")

            def move(done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
                bars.update(
                    task,
                    completed=done,
                    total=total,
                    counts=count_text(done, total, unit),
                    numbers=brief_numbers(numbers, QUIET),
                )

            yield move
    else:
        yield lines(node, lambda text: print_line(f"  {text}"))


def lines(node: str, write: Callable[[str], None]) -> Progress:
    """Writes a line from time to time."""
    last = time.monotonic()

    def line(done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            write(f"{node}: {figures(done, total, unit, numbers)}")

    return line


def figures(done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None) -> str:
    """`85/243 updates · loss 5.21 · 12,300 tokens/s`."""
    return " · ".join(part for part in (count_text(done, total, unit), brief_numbers(numbers)) if part)


def count_text(done: int, total: int | None, unit: str) -> str:
    return f"{done:,} {unit}" if total is None else f"{done:,}/{total:,} {unit}"


def brief_numbers(numbers: Mapping[str, float] | None, without: Collection[str] = SILENT) -> str:
    """`loss 5.21 · 12,300 tokens/s · MFU 41 % · 5 min left`."""
    return " · ".join(figure(name, value) for name, value in (numbers or {}).items() if name not in without)


def figure(name: str, value: float) -> str:
    if name.endswith("_per_second"):
        return f"{number(value)} {name.removesuffix('_per_second')}/s"
    if name == "seconds_left":
        return f"{duration(value)} left"
    if name in ("mfu", "padding"):
        return f"{name.replace('mfu', 'MFU')} {100 * value:.3g} %"
    return f"{name.replace('_', ' ')} {number(value)}"


def number(value: float) -> str:
    """Returns four digits; larger numbers get commas."""
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:.4g}"
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def rough_duration(seconds: float) -> str:
    """One digit: ~20 min."""
    units = (("s", 1, 95), ("min", 60, 95), ("h", 3600, 36), ("days", 86_400, float("inf")))
    counts = ((float(f"{seconds / length:.0e}"), unit, most) for unit, length, most in units)
    count, unit = next((count, unit) for count, unit, most in counts if count < most)
    return f"~{max(count, 1.0):,.0f} {unit}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


@contextmanager
def log_lines(say: Callable[[str], None]) -> Iterator[None]:
    """Passes each line that this thread logs in the library, from level INFO on, to `say`.

    Nodes run at the same time in threads; a stage logs in the thread that calls its function.
    """
    thread = threading.get_ident()

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == thread:
                say(record.getMessage())

    handler = Lines()
    change_handlers(LIBRARY.addHandler, handler)
    try:
        yield
    finally:
        change_handlers(LIBRARY.removeHandler, handler)


def change_handlers(function: Callable[[logging.Handler], None], handler: logging.Handler) -> None:
    """Adds or removes a handler. While there is one, Prefect's root handler does not show the lines a second time."""
    with HANDLERS_LOCK:
        function(handler)
        LIBRARY.propagate = not LIBRARY.handlers
