"""A series of updates: a run that trained a model, and the updates since then."""

from dataclasses import replace

from artifacts.runs import series_of
from artifacts.store import Store
from flows.serving.engine import Engine, evaluated_engines


def trained_run(store: Store, engine: Engine) -> Engine:
    """The run with which the series of `engine` begins, or the oldest of the series that the store still has.

    It answers by its own search method. The difference to it shows many small falls too.
    """
    series, oldest = series_of(engine.run), replace(engine, requested=None)
    for older in evaluated_engines(store, engine.run.name):
        if series_of(older.run) == series and older.run.created < oldest.run.created and older.is_complete():
            oldest = older
    return oldest
