"""The key of a stage's artifact: everything that shapes its bytes, without paths, machines or times."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from artifacts import versions
from artifacts.fingerprint import code_version
from artifacts.keys import Key, make_key
from artifacts.records import Ref
from artifacts.store import Store
from pipeline.config import Config
from tasks.equivalent_code import equivalent
from tasks.stages import STAGES

UNCOUNTED = (
    "pipeline.advice",
    "pipeline.cross_encoder.teacher_quality",
    "pipeline.errors",
    "pipeline.modeling.model_files.weight_shapes",
    "pipeline.notices",
    "pipeline.paths",
    "pipeline.runtime.checkpoints",
    "pipeline.runtime.child",
    "pipeline.runtime.descendant",
    "pipeline.runtime.gpu_ranks",
    "pipeline.runtime.host",
    "pipeline.runtime.hub",
    "pipeline.runtime.launch",
    "pipeline.runtime.measured_cache",
    "pipeline.runtime.multi_node",
    "pipeline.runtime.network",
    "pipeline.runtime.planned",
    "pipeline.runtime.processes",
    "pipeline.runtime.shards",
    "pipeline.runtime.work",
)
"""Modules that say how a stage runs, what a user reads and what is refused, never what an artifact holds: no key counts
them."""


def stage_code(stage: str) -> dict[str, str]:
    """Returns {file: hash} of the code that shapes the stage's bytes."""
    return code_version(STAGES[stage].function, uncounted=UNCOUNTED)


def key_of(
    store: Store,
    stage: str,
    config: Config,
    inputs: Mapping[str, Ref | None],
    shared: Mapping[str, Any] = MappingProxyType({}),
) -> Key:
    """Returns the key of what `stage` builds from `config`, `shared` (see `Node`) and `inputs`.

    Reads source files that are new or changed.
    """
    entry = STAGES[stage]
    code = stage_code(stage)
    return make_key(
        stage=stage,
        code=code,
        config=_read(config, entry.unread(config)) | {name: _plain(value) for name, value in shared.items()},
        sources=store.source_digests(sources_of(stage, config)),
        inputs={name: ref.identity for name, ref in inputs.items() if ref is not None and name not in entry.unkeyed},
        libraries=versions.library_versions(entry.libraries(config)),
        equivalent=equivalent(stage, code),
    )


def _read(config: Config, unread: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in without_paths(config).items() if name not in unread}


def without_paths(config: Config) -> dict[str, Any]:
    """Returns the configuration as JSON values, without the fields that hold a path."""
    return {name: _plain(value) for name, value in _fields(config) if not isinstance(value, Path)}


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return without_paths(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items() if not isinstance(item, Path)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value if not isinstance(item, Path)]
    return value


def sources_of(stage: str, config: Config) -> dict[str, Path]:
    """Returns everything outside the store that the stage reads: its Path fields by name, and its further sources."""
    more = STAGES[stage].sources
    return dict(paths(config)) | (more(config) if more else {})


def paths(value: Any, name: str = "") -> list[tuple[str, Path]]:
    """Returns the paths in a configuration, each with its dotted name."""
    if isinstance(value, Path):
        return [(name, value)]
    if isinstance(value, Config):
        members: Any = _fields(value)
    elif isinstance(value, Mapping):
        members = value.items()
    elif isinstance(value, list | tuple):
        members = enumerate(value)
    else:
        return []
    return [found for key, member in members for found in paths(member, f"{name}.{key}" if name else str(key))]


def with_paths(value: Any, change: Callable[[tuple[str, ...], Path], Path], keys: tuple[str, ...] = ()) -> Any:
    """Returns the configuration with `change(keys, path)` instead of each path."""
    if isinstance(value, Path):
        return change(keys, value)
    if isinstance(value, Config):
        return value.model_copy(
            update={key: with_paths(member, change, (*keys, key)) for key, member in _fields(value) if paths(member)}
        )
    if isinstance(value, Mapping):
        return {key: with_paths(member, change, (*keys, str(key))) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(with_paths(member, change, (*keys, str(n))) for n, member in enumerate(value))
    return value


def _fields(config: Config) -> list[tuple[str, Any]]:
    """Returns (name, value) of the fields that a key has: at its default, a field is left out (see `Config`)."""
    members = ((name, getattr(config, name), field) for name, field in type(config).model_fields.items())
    return [(name, value) for name, value, field in members if field.is_required() or value != field.default]
