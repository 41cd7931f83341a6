"""Finds artifacts that were built from a damaged artifact."""

from collections.abc import Sequence
from datetime import datetime

from artifacts import dates
from artifacts.records import Record


def suspects(records: Sequence[Record], digest: str, whole: datetime | None) -> list[Record]:
    """Returns records that may have been built from damaged bytes of the object `digest`, oldest first.

    `whole`: when it was last found whole; None: never. Builds before that read good bytes, and so did builds that
    checked their inputs before and after reading (`Record.checked`). Everything built from a suspect is a suspect too.
    """
    everything = [record for record in records if record.digest != digest]
    # The digest too: the record may be removed before the object.
    of_object = {digest, *(record.identity for record in records if record.digest == digest)}
    suspected = {
        record.key: record
        for record in everything
        if record.checked is None
        and of_object & {*record.inputs.values()}
        and (whole is None or dates.moment(record.created) >= whole)
    }
    while True:
        # If a record that is no suspect has the same identity, its bytes are good.
        good = {record.identity for record in everything if record.key not in suspected}
        bad = {record.identity for record in suspected.values()} - good
        more = [r for r in everything if r.key not in suspected and bad & {*r.inputs.values()}]
        if not more:
            return sorted(suspected.values(), key=lambda record: dates.moment(record.created))
        suspected |= {record.key: record for record in more}
