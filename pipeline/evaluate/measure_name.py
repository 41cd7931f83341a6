"""The type of fields that name a measure, without the libraries that compute them."""

from typing import Annotated

from pydantic import AfterValidator


def _known(name: str) -> str:
    from pipeline.evaluate.measures import known

    return known(name)


Measure = Annotated[str, AfterValidator(_known)]
"""Is refused where it is not known; `MRR@10` becomes `RR@10`."""
