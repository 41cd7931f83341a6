"""Shows a run on Prefect's page. All of it is best effort: a server that hangs or stopped makes no training fail."""

import base64
import contextlib
import io
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from artifacts.records import Ref
from pipeline.data.parquet import read_parquet
from pipeline.notices import METRIC, read_notices
from pipeline.runtime.work import Progress
from pipeline.training.history_file import history_file
from pipeline.training.loop import loss_columns
from tasks.terminal import figures, number

SECONDS_BETWEEN_UPDATES = 5.0
POINTS = 400
"""Points of a loss curve."""


def best_effort(function: Callable[..., Any], *arguments: Any, seconds: float = 10.0) -> None:
    """Calls `function` in its own thread. Logs its error, or that it has not answered after `seconds`."""
    from prefect import get_run_logger

    failure: list[BaseException] = []

    def call() -> None:
        try:
            function(*arguments)
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=copy_context().run, args=(call,), daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive() or failure:
        why = repr(failure[0]) if failure else f"no answer within {seconds:.0f} s"
        get_run_logger().warning("%s not shown on the page: %s", function.__name__, why)


def show_recipe(details: Mapping[str, Any]) -> None:
    """Shows the complete recipe of a run, and the user's settings, as YAML."""
    import yaml
    from prefect.artifacts import create_markdown_artifact

    text = yaml.safe_dump(dict(details), sort_keys=False, allow_unicode=True)
    create_markdown_artifact(f"```yaml\n{text}```\n", key="recipe", description="The complete recipe")


@contextmanager
def progress_artifact(node: str) -> Iterator[Progress]:
    """Shows the stage's progress; its own thread sends it every few seconds at most."""
    latest: dict[str, Any] = {}
    ended = threading.Event()

    def progress(done: int, total: int | None, unit: str, numbers: Mapping[str, float] | None = None) -> None:
        latest.update(done=done, total=total, text=figures(done, total, unit, numbers))

    def send() -> None:
        from prefect.artifacts import create_progress_artifact, update_progress_artifact

        artifact = None
        over = False
        while not over:
            over = ended.wait(SECONDS_BETWEEN_UPDATES)
            # Progress that was shown is completed; a stage too quick for it has its line in the metrics.
            if not latest or (over and artifact is None):
                continue
            percent = 100.0 * latest["done"] / latest["total"] if latest["total"] else 0.0
            text = f"{node}: {latest['text']}"
            with contextlib.suppress(Exception):
                if artifact is None:
                    artifact = cast(
                        UUID, create_progress_artifact(percent, key=key("progress", node), description=text)
                    )
                else:
                    update_progress_artifact(artifact, progress=percent, description=text)

    thread = threading.Thread(target=copy_context().run, args=(send,), daemon=True)
    thread.start()
    try:
        yield progress
        if latest:  # also if the total was unknown
            latest["total"] = latest["done"]
    finally:
        ended.set()
        thread.join(2.0)


def key(kind: str, node: str) -> str:
    """Prefect's keys are lower-case ASCII letters, digits and single dashes; other letters become their numbers."""
    spelt = re.sub(r"[^\x00-\x7f]", lambda letter: f"-{ord(letter[0]):x}-", f"{kind}-{node}".lower())
    return re.sub(r"[^a-z0-9]+", "-", spelt).strip("-")


def show_metrics(node: str, ref: Ref, how: str, since: float) -> None:
    """Shows a table: built or reused, digest, folder, and the stage's metrics."""
    from prefect.artifacts import create_markdown_artifact

    rows = [
        ("artifact", how),
        ("digest", f"`{ref.digest}`"),
        ("folder", f"`{ref.path}`"),
        ("seconds", round(time.monotonic() - since, 1)),
        *((name, value) for name, value in ref.metrics.items() if value is not None and name != METRIC),
        *((METRIC, line) for line in read_notices(ref.metrics)),
    ]
    table = "\n".join(f"| {escaped_markdown(name)} | {escaped_markdown(value)} |" for name, value in rows)
    create_markdown_artifact(
        f"| {node} | |\n|---|---|\n{table}\n", key=key("metrics", node), description=f"{node}: {how}"
    )


def escaped_markdown(value: object) -> str:
    text = value if isinstance(value, str) else number(value) if isinstance(value, int | float) else str(value)
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def show_loss(node: str, folder: Path) -> None:
    """Shows the training's loss as a picture if the artifact has a history."""
    from prefect.artifacts import create_image_artifact

    history = history_file(folder)
    picture = loss_curve(history) if history else None
    if picture:
        create_image_artifact(data_uri(picture), key=key("loss", node), description=f"{node}: loss by update")


def show_pictures(node: str, folder: Path) -> None:
    """Shows the artifact's pictures, `pictures/NAME.png`, each with its own key."""
    from prefect.artifacts import create_image_artifact

    for path in sorted((folder / "pictures").glob("*.png")):
        name = path.stem.replace("-", " ")
        create_image_artifact(data_uri(path.read_bytes()), key=key(path.stem, node), description=f"{node}: {name}")


def loss_curve(history: Path) -> bytes | None:
    """Returns a PNG of a history's loss columns by step, thinned to means of neighbours; None if it is empty."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    table = read_parquet(history).to_pandas()
    names = loss_columns(table.columns)
    if table.empty or not names:
        return None
    group = table.index // max(len(table) // POINTS, 1)
    thinned = table.groupby(group).mean(numeric_only=True)
    figure = Figure(figsize=(7, 3.5), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    for name in names:
        axes.plot(thinned["step"], thinned[name], label=name, linewidth=1.2)
    axes.set(xlabel="update", ylabel="loss")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()


def data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
