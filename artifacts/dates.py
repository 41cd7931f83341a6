"""Dates of records, some of which were written by a clock that was wrong."""

import time
from datetime import UTC, datetime, timedelta

AHEAD = timedelta(minutes=10)
"""By which the clocks of machines that share a store may differ."""


def moment(created: str) -> datetime:
    """The time that a record gives; the first of all where it gives none."""
    try:
        found = datetime.fromisoformat(created)
    except (TypeError, ValueError):
        return datetime.min.replace(tzinfo=UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def is_future(created: str) -> bool:
    """Whether a record is dated later than now, so that its date says nothing."""
    return moment(created) > datetime.now(UTC) + AHEAD


def age(created: str) -> tuple[bool, datetime]:
    """To sort by: the newest is the greatest, and what is dated in the future is the least."""
    return not is_future(created), moment(created)


def last_use(mtime: float) -> float:
    """A file's time of last use, in seconds; 0 where it lies in the future."""
    return mtime if mtime <= time.time() + AHEAD.total_seconds() else 0.0
