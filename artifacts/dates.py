"""Dates of records; some were written by a wrong clock."""

import time
from datetime import UTC, datetime, timedelta

AHEAD = timedelta(minutes=10)
"""Largest accepted clock difference between machines that share a store."""


def moment(created: str) -> datetime:
    """Returns a record's time; the earliest possible time if the record has none."""
    try:
        time_of_record = datetime.fromisoformat(created)
    except (TypeError, ValueError):
        return datetime.min.replace(tzinfo=UTC)
    return time_of_record if time_of_record.tzinfo else time_of_record.replace(tzinfo=UTC)


def is_future(created: str) -> bool:
    """Whether a record is dated in the future, so that its date cannot be trusted."""
    return moment(created) > datetime.now(UTC) + AHEAD


def age(created: str) -> tuple[bool, datetime]:
    """Returns a sort key: newest is greatest, dates in the future are least."""
    return not is_future(created), moment(created)


def last_use(mtime: float) -> float:
    """Returns a file's time of last use in seconds; 0 if it is in the future."""
    return mtime if mtime <= time.time() + AHEAD.total_seconds() else 0.0
