"""The task that runs a stage, with a real Prefect server."""

import base64
import io
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from rich.console import Console

from artifacts.errors import Damaged
from artifacts.records import Ref
from artifacts.store import Store
from pipeline.errors import InputError
from pipeline.runtime.work import Machine, Metrics, Work, silent
from tasks import page
from tasks.keys import key_of
from tasks.node import Node, Order
from tasks.run import earlier, report_notices, stage
from tasks.stages import STAGES, Stage
from tasks.terminal import shown_in

pytestmark = pytest.mark.usefixtures("letters", "harness")


def order(store: Store, machine: Machine, text: str, **more: Any) -> Order:
    from letters import LetterConfig

    config = LetterConfig(text=text, path=more.pop("path", None))
    return Order(Node("Letter_1", "letter", config), machine, store.root, "test", **more)


def run(one: Order, inputs: Mapping[str, Ref | None]) -> State[Any]:
    @flow
    def around() -> Any:
        return stage(one, inputs, return_state=True)

    return around()


def test_an_artifact_is_built_then_cached(store: Store, machine: Machine) -> None:
    first = run(order(store, machine, "a"), {"before": None})
    assert (first.name, first.type.value) == ("Completed", "COMPLETED")
    ref = first.result()
    assert first.message == ref.digest
    assert (ref.path / "letter").read_text() == "a"
    second = run(order(store, machine, "a"), {"before": None})
    assert (second.name, second.message, second.result()) == ("Cached", ref.digest, ref)


def test_inputs_are_passed_by_name(store: Store, machine: Machine) -> None:
    a = run(order(store, machine, "a"), {"before": None}).result()
    ab = run(order(store, machine, "b"), {"before": a}).result()
    assert (ab.path / "letter").read_text() == "ab"
    assert store.show(ab.digest).inputs == {"before": a.identity}


def test_refresh_builds_what_is_older_than_the_run_again(store: Store, machine: Machine) -> None:
    run(order(store, machine, "a"), {"before": None})
    now = datetime.now(UTC)
    assert run(order(store, machine, "a", refresh_since=now), {"before": None}).name == "Completed"
    # A retry of the same run finds what the run has built.
    assert run(order(store, machine, "a", refresh_since=now), {"before": None}).name == "Cached"
    assert run(order(store, machine, "a", refresh_since=now - timedelta(days=1)), {"before": None}).name == "Cached"


def test_earlier_artifacts_are_whole_and_of_the_same_code(store: Store, machine: Machine) -> None:
    from letters import LetterConfig

    a, b = (run(order(store, machine, text), {"before": None}).result() for text in "ab")
    key = key_of(store, "letter", LetterConfig(text="c", path=None), {})
    assert earlier(store, key, None) == [b.path, a.path]
    assert earlier(store, key, datetime.now(UTC)) == []
    assert earlier(store, replace(key, code={"letters.py": "older"}), None) == []
    (b.path / "letter").unlink()
    assert earlier(store, key, None) == [a.path]


def test_a_stage_that_requests_earlier_artifacts_gets_them(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from letters import letter

    earlier_paths = []

    def recording(config: Any, before: Path | None, work: Work) -> Metrics:
        earlier_paths.append(list(work.earlier))
        return letter(config, before, work)

    for requested in (True, False):
        monkeypatch.setitem(STAGES, "letter", Stage(recording, earlier=requested))
        for text in "ab":
            run(order(store, machine, f"{text}{requested}"), {"before": None})
    assert [len(paths) for paths in earlier_paths] == [0, 1, 0, 0]


def test_a_users_mistake_is_raised_unchanged(store: Store, machine: Machine) -> None:
    with pytest.raises(InputError, match=r"letter\.text: bad"):
        run(order(store, machine, "bad"), {"before": None})
    assert not store.records()


def test_a_run_reports_where_a_killed_training_resumes(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    monkeypatch.setattr("tasks.run.print_line", printed.append)
    with pytest.raises(InterruptedError):
        run(order(store, machine, "killed"), {"before": None})
    assert not printed
    assert run(order(store, machine, "killed"), {"before": None}).name == "Completed"
    assert "Letter_1: resumes from update 700" in printed[0]


def test_a_notice_is_shown_each_time(store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    monkeypatch.setattr("tasks.run.print_line", printed.append)
    for _ in range(2):
        run(order(store, machine, "odd"), {"before": None})
    notices = [line for line in printed if "letters" in line]
    assert ["odd \\[letters]" in line for line in notices] == [True, False] * 2
    assert ["few letters" in line for line in notices] == [False, True] * 2


def test_notices_that_a_later_node_repeats_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("tasks.run.report_line", lines.append)
    with shown_in(Console(file=io.StringIO())):
        report_notices("ingest", ["empty: 1", "copies: 2"])
        report_notices("ingest-whole", ["empty: 1", "copies: 3"])
    assert lines == [
        *("ingest: empty: 1", "ingest: copies: 2"),
        *("ingest-whole: copies: 3", "ingest-whole: 1 notice as for ingest"),
    ]


def test_log_lines_of_a_stage_are_shown_with_its_name(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from letters import letter

    def with_a_line(config: Any, before: Path | None, work: Work) -> Metrics:
        logging.getLogger("pipeline.runtime.gpu_ranks").info("%d of 8 GPUs", 2)
        return letter(config, before, work)

    printed: list[str] = []
    monkeypatch.setattr("tasks.run.print_line", printed.append)
    monkeypatch.setitem(STAGES, "letter", Stage(with_a_line))
    for _ in range(2):  # the second from the store
        run(order(store, machine, "a"), {"before": None})
    assert [line for line in printed if "GPUs" in line] == ["  [yellow]Letter_1: 2 of 8 GPUs[/]"]


def test_a_broken_artifact_is_named_and_built_again(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = run(order(store, machine, "a"), {"before": None}).result()
    (ref.path / "letter").unlink()
    printed: list[str] = []
    monkeypatch.setattr("tasks.run.print_line", printed.append)
    again = run(order(store, machine, "a"), {"before": None})
    assert f"objects/{ref.digest[:12]}): letter is missing: set aside; it is built again" in printed[0]
    assert again.name == "Completed"
    assert (again.result().path / "letter").read_text() == "a"


def test_a_stage_reads_no_damaged_input(store: Store, machine: Machine) -> None:
    a = run(order(store, machine, "a"), {"before": None}).result()
    (a.path / "letter").write_text("b")
    with pytest.raises(Damaged, match=r"letter \(objects/\w+\): letter was changed: set aside"):
        run(order(store, machine, "c"), {"before": a}).result()
    again = run(order(store, machine, "a"), {"before": None})
    assert (again.name, again.result()) == ("Completed", a)
    ac = run(order(store, machine, "c"), {"before": a}).result()
    assert (ac.path / "letter").read_text() == "ac"
    assert store.show(ac.digest).checked == {"before": a.digest}


def test_the_page_shows_digest_and_metrics(store: Store, machine: Machine) -> None:
    ref = run(order(store, machine, "on the page"), {"before": None}).result()
    with get_client(sync_client=True) as client:
        response = client.request(
            "POST", "/artifacts/latest/filter", json={"artifacts": {"key": {"any_": ["metrics-letter-1"]}}}
        )
    text = response.json()[0]["data"]
    assert ref.digest in text
    assert "| letters | 11 |" in text
    assert "a \\| b &lt;script>" in text
    assert "nothing" not in text


def test_the_page_shows_the_pictures_of_an_artifact(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from letters import letter

    def drawn(config: Any, before: Path | None, work: Work) -> Metrics:
        (work.out / "pictures").mkdir()
        for name in ("ladder-rr-10", "questions"):
            (work.out / "pictures" / f"{name}.png").write_bytes(b"\x89PNG of " + name.encode())
        return letter(config, before, work)

    monkeypatch.setitem(STAGES, "letter", Stage(drawn))
    run(order(store, machine, "pictures"), {"before": None})
    keys = ["ladder-rr-10-letter-1", "questions-letter-1"]
    with get_client(sync_client=True) as client:
        artifacts = client.request(
            "POST", "/artifacts/latest/filter", json={"artifacts": {"key": {"any_": keys}}}
        ).json()
    shown = {one["key"]: base64.b64decode(one["data"].removeprefix("data:image/png;base64,")) for one in artifacts}
    assert shown == {keys[0]: b"\x89PNG of ladder-rr-10", keys[1]: b"\x89PNG of questions"}
    assert {one["description"] for one in artifacts} == {"Letter_1: ladder rr 10", "Letter_1: questions"}


def test_a_stage_that_requests_its_lineage_gets_it(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from letters import letter

    a = run(order(store, machine, "a"), {"before": None}).result()
    received = []

    def recording(config: Any, before: Path | None, work: Work, lineage: Any) -> Metrics:
        received.extend(lineage)
        return letter(config, before, work)

    monkeypatch.setitem(STAGES, "letter", Stage(recording, identity="key", lineage=True, gpu=True))
    ref = run(order(store, machine, "b"), {"before": a}).result()
    assert [(step.node, step.digest, step.gpus) for step in received] == [("Letter_1", a.digest, 0)]
    assert ref.identity == ref.key
    on_gpus = machine.model_copy(update={"device": "auto"})
    monkeypatch.setattr("tasks.run.gpus", lambda: [0, 1, 2])
    on_three = run(order(store, on_gpus, "c"), {"before": None}).result()
    on_many = run(order(store, on_gpus.model_copy(update={"torchrun": ["--nnodes=2"]}), "d"), {"before": None}).result()
    assert [store.record(one.key).gpus for one in (ref, on_three, on_many)] == [0, 3, None]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "expected"), [({"gpu": True}, "bfloat16"), ({"gpu": True, "float32": True}, "float32"), ({}, None)]
)
def test_the_record_has_the_precision_of_a_model(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch, kind: dict[str, bool], expected: str | None
) -> None:
    from letters import letter

    seen = []

    def seeing(config: Any, before: Path | None, work: Work) -> Metrics:
        seen.append(work.machine.precision)
        return letter(config, before, work)

    monkeypatch.setattr("pipeline.runtime.bfloat16.speedup", lambda: 2.0)
    monkeypatch.setitem(STAGES, "letter", Stage(seeing, **kind))
    ref = run(order(store, machine.model_copy(update={"precision": "auto"}), "a"), {"before": None}).result()
    assert store.record(ref.key).precision == expected  # type: ignore[union-attr]
    assert seen == [expected or "auto"]


def test_a_resumed_training_reports_that_it_keeps_its_precision(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr("tasks.run.report_line", lines.append)
    monkeypatch.setattr("pipeline.runtime.bfloat16.speedup", lambda: 2.0)
    saved = {"device": "cpu", "precision": "bfloat16", "step": 3}
    monkeypatch.setattr("tasks.run.saved_state", lambda checkpoints: saved)
    monkeypatch.setattr("pipeline.runtime.launch.saved_state", lambda checkpoints: saved)
    monkeypatch.setitem(STAGES, "letter", replace(STAGES["letter"], gpu=True))
    run(order(store, machine, "a"), {"before": None}).result()
    line = "Letter_1: keeps bfloat16, the precision of its checkpoint"
    assert line in lines


def test_a_slow_precision_is_reported(store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr("tasks.run.report_line", lines.append)
    monkeypatch.setattr("pipeline.runtime.bfloat16.speedup", lambda: 0.4)
    monkeypatch.setitem(STAGES, "letter", replace(STAGES["letter"], gpu=True))
    run(order(store, machine.model_copy(update={"precision": "bfloat16"}), "a"), {"before": None}).result()
    line = "machine.precision: bfloat16 is 0.4 times as fast as float32 on this processor"
    assert lines == [f"Letter_1: {line}"]


def test_the_seconds_count_only_the_work_of_the_stage(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the wait for a GPU nor the time that trackers need at the end."""
    from letters import letter

    @contextmanager
    def turn(device: str, on_wait: Any) -> Iterator[None]:
        time.sleep(1.5)
        yield

    @contextmanager
    def live(*arguments: Any) -> Iterator[Any]:
        yield silent
        time.sleep(1.5)

    def works(config: Any, before: Path | None, work: Work) -> Metrics:
        time.sleep(0.1)
        return letter(config, before, work)

    monkeypatch.setitem(STAGES, "letter", Stage(works, gpu=True))
    monkeypatch.setattr("tasks.run.turn_on_gpus", turn)
    monkeypatch.setattr("tasks.run.tracking.tracked_progress", live)
    ref = run(order(store, machine, "a"), {"before": None}).result()
    assert 0.1 <= store.record(ref.key).seconds < 1.5  # type: ignore[union-attr]


def test_a_stage_that_takes_turns_holds_the_gpu_only_while_it_computes(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a stage that waits for a server for hours would keep other runs off the GPU."""
    from letters import letter

    events: list[str] = []

    @contextmanager
    def turn(device: str, on_wait: Any) -> Iterator[None]:
        events.append("taken")
        yield
        events.append("free")

    def works(config: Any, before: Path | None, work: Work) -> Metrics:
        events.append("waits")
        with work.gpu_turn():
            events.append("computes")
        return letter(config, before, work)

    monkeypatch.setitem(STAGES, "letter", Stage(works, gpu=True, takes_turns=True))
    monkeypatch.setattr("tasks.run.turn_on_gpus", turn)
    run(order(store, machine, "a"), {"before": None}).result()
    assert events == ["waits", "taken", "computes", "free"]


@pytest.mark.parametrize("total", [4, None])
def test_the_progress_on_the_page_reaches_its_end(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    shown: list[float] = []
    started = threading.Event()

    def create(percent: float, **fields: Any) -> int:
        shown.append(percent)
        started.set()
        return 1

    monkeypatch.setattr(page, "SECONDS_BETWEEN_UPDATES", 0.2)
    monkeypatch.setattr("prefect.artifacts.create_progress_artifact", create)
    monkeypatch.setattr(
        "prefect.artifacts.update_progress_artifact", lambda _, progress, **fields: shown.append(progress)
    )
    with page.progress_artifact("letter") as progress:
        progress(1, total, "letters", None)
        assert started.wait(60)
        monkeypatch.setattr(page, "SECONDS_BETWEEN_UPDATES", 60.0)
        progress(4, total, "letters", None)
    assert (shown[0], shown[-1]) == (25.0 if total else 0.0, 100.0)


def test_a_page_that_hangs_or_fails_stops_nothing(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(*arguments: Any) -> None:
        time.sleep(60)

    def fail(*arguments: Any) -> None:
        raise OSError("the server is gone")

    monkeypatch.setattr(page, "show_metrics", hang)
    monkeypatch.setattr(page, "show_loss", fail)
    original = page.best_effort
    monkeypatch.setattr(page, "best_effort", lambda *arguments: original(*arguments, seconds=0.5))
    started = time.monotonic()
    assert run(order(store, machine, "a"), {"before": None}).name == "Completed"
    assert time.monotonic() - started < 20


def test_a_loss_curve_is_drawn_from_the_history(tmp_path: Path) -> None:
    import pandas as pd

    table = pd.DataFrame({"step": range(1, 1001), "loss": [5.0 / (i + 1) for i in range(1000)], "skipped": 0})
    table.to_parquet(tmp_path / "history.parquet")
    picture = page.loss_curve(tmp_path / "history.parquet")
    assert picture
    assert picture.startswith(b"\x89PNG")
    table.drop(columns="loss").to_parquet(tmp_path / "history.parquet")
    assert page.loss_curve(tmp_path / "history.parquet") is None
