"""Advice for a collection that is too small for a configuration: settings that the failed check accepts."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from shlex import quote
from typing import Any, TypeVar

from pipeline.config import Config
from pipeline.errors import InputError

C = TypeVar("C", bound=Config)
Changes = Mapping[str, Any]
"""{field of a section: new value}."""


class Unfit(InputError):
    """A configuration that does not fit the collection, and the `--set` options that make it fit."""

    def __init__(self, problem: str, options: Sequence[str]) -> None:
        self.problem, self.options = problem, options
        super().__init__(f"{problem}; take {' '.join(options)}" if options else f"{problem}; no value fits")


def option(field: str, value: Any) -> str:
    """Returns an option such as `--set stage1.batch_queries=8`, quoted for a shell."""
    return f"--set {quote(f'{field}={value if isinstance(value, str) else json.dumps(value)}')}"


def check_fits(
    section: str, config: C, check: Callable[[C], object], proposals: Callable[[], Iterable[Changes]]
) -> None:
    """Raises Unfit if `check` raises InputError for the configuration.

    The advice is the first of the proposals that `check` and the configuration's own rules accept.
    """
    try:
        check(config)
    except InputError as error:
        problem = str(error)
    else:
        return
    for changes in proposals():
        try:
            check(type(config).model_validate({**config.model_dump(), **changes}))
        except (ValueError, InputError):
            continue
        raise Unfit(problem, [option(f"{section}.{field}", value) for field, value in changes.items()])
    raise Unfit(problem, [])


def raise_together(errors: Sequence[InputError]) -> None:
    """Raises one error for all `errors`: one line each, then one line with all options, ready to be copied."""
    options = [text for error in errors if isinstance(error, Unfit) for text in error.options]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        problems = [error.problem if isinstance(error, Unfit) and error.options else str(error) for error in errors]
        advice = [f"take {' '.join(dict.fromkeys(options))}"] if options else []
        raise InputError(*dict.fromkeys(problems), *advice)
