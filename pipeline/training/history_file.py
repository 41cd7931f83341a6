"""Where a training's history lies in its artifact."""

from pathlib import Path


def history_file(folder: Path) -> Path | None:
    """history.parquet of a training's artifact; of an untied model that of its question encoder, which both share.

    None where the artifact has none.
    """
    places = (folder / "history.parquet", folder / "query" / "history.parquet")
    return next((path for path in places if path.is_file()), None)
