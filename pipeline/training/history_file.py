"""The path of a training's history in its artifact."""

from pathlib import Path


def history_file(folder: Path) -> Path | None:
    """Returns the path of history.parquet in a training's artifact, or None if there is none.

    For an untied model it is the copy of its question encoder; both encoders have the same history.
    """
    places = (folder / "history.parquet", folder / "query" / "history.parquet")
    return next((path for path in places if path.is_file()), None)
