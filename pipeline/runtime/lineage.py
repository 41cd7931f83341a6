"""What the inputs of a stage were built from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """An artifact that a stage's inputs were built from, directly or not."""

    node: str
    stage: str
    digest: str
    code: str
    """Digest of its stage's code."""
    kept: bool
    """Built by other code than the run's, but accepted for it."""
    seconds: float | None
    """Wall clock of its build; None: the store has no record of it."""
    gpus: int | None
    """GPUs that its build held; None: not recorded."""
    versions: dict[str, str]
    """Versions of the libraries that built it."""
    created: str
    """ISO 8601, UTC."""
    notices: tuple[str, ...] = ()
    """A line for each notice about dropped, cut or unknown data in its build (pipeline/notices.py)."""
    precision: str | None = None
    """Type of the products in its build; None: it has no model, or not recorded."""
    questions_per_second: float | None = None
    """Speed of a search on one core or GPU; None: it is no search, or not recorded."""
