"""The type of configuration fields that name a measure, without importing the libraries that compute it."""

from typing import Annotated

from pydantic import AfterValidator


def _known(name: str) -> str:
    from pipeline.evaluate.measures import known

    return known(name)


Measure = Annotated[str, AfterValidator(_known)]
"""An unknown name is an error; `MRR@10` becomes `RR@10`."""
