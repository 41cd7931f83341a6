"""What was built from an artifact that turns out to be damaged."""

from collections.abc import Sequence
from datetime import datetime

from artifacts import dates
from artifacts.records import Record


def suspects(records: Sequence[Record], digest: str, whole: datetime | None) -> list[Record]:
    """Records of what may have been made of damaged bytes of the object `digest`, oldest first.

    `whole`: when it was last found whole; None: never. What was made before that read good bytes, and so did a build
    that checked its inputs before and after it read them (`Record.checked`). What was made of a suspect is one too,
    whenever that was and however carefully it was read.
    """
    everything = [record for record in records if record.digest != digest]
    # The digest too: the object may outlive its record.
    of_object = {digest, *(record.identity for record in records if record.digest == digest)}
    found = {
        record.key: record
        for record in everything
        if record.checked is None
        and of_object & {*record.inputs.values()}
        and (whole is None or dates.moment(record.created) >= whole)
    }
    while True:
        # An identity that a record beyond suspicion has too is that of good bytes.
        good = {record.identity for record in everything if record.key not in found}
        bad = {record.identity for record in found.values()} - good
        more = [r for r in everything if r.key not in found and bad & {*r.inputs.values()}]
        if not more:
            return sorted(found.values(), key=lambda record: dates.moment(record.created))
        found |= {record.key: record for record in more}
