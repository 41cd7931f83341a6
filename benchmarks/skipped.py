"""A benchmark that this machine cannot run."""


class Skipped(Exception):
    """The message says why."""
