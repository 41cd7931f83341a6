"""Reads YAML files with `extends:`, anchors and `--set` as plain data, and records the place of each value.

Nothing here knows the configuration classes. `Layer.origins` holds `FILE:LINE` or `--set ...` for each field, and a
later error names this place.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.composer import Composer

from pipeline.errors import InputError
from pipeline.paths import absolute_path, relative_to

Keys = tuple[str, ...]
PROJECT = Path(__file__).resolve().parents[1]
"""The folder of the project's own recipes, whose paths are relative to the current folder."""


@dataclass(frozen=True)
class Layer:
    data: dict[str, Any]
    origins: dict[Keys, str] = field(default_factory=dict)

    def origin(self, keys: Keys) -> str | None:
        """The place of `keys`, else of a field in it, else of the nearest section around it, else the file."""
        for n in range(len(keys), 0, -1):
            within = [place for written, place in self.origins.items() if written[:n] == keys[:n]]
            if within:
                return self.origins.get(keys[:n], within[-1])
        return self.origins.get(())

    def folder(self, keys: Keys) -> Path | None:
        """The folder of the user's file that sets `keys`. None: a setting or a file of the project sets it.

        A relative path is relative to this folder, else to the current one.
        """
        place = self.origin(keys) or ""
        file, _, line = place.rpartition(":")
        folder = Path(file if line.isdecimal() else place).parent.resolve()
        return None if place.startswith("--set ") or not place or folder.is_relative_to(PROJECT) else folder


MERGE = "tag:yaml.org,2002:merge"
"""The tag of the key `<<`, which copies the fields of an anchor (`&name`) in the same file."""


class Loader(yaml.SafeLoader):
    """Reads numbers and booleans as in YAML 1.2 (PyYAML reads `1e-4` as text, `1:30` as 90, `010` as 8, and `no`, the
    code of Norwegian, as false). Dates are text. `~` is text too, and not null, because it is the home folder."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":int", ":float", ":bool"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    if first != "~"
}
for kind, pattern in {
    "int": r"[-+]?(0|[1-9][0-9_]*)$|0x[0-9a-fA-F]+$",
    "float": r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$",
}.items():
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(pattern), list("-+.0123456789"))
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


class FileLoader(Composer, yaml.CSafeLoader):
    """`Loader` with libyaml's scanner, which is five times as fast. libyaml's composer crashes on deep nesting."""

    yaml_implicit_resolvers = Loader.yaml_implicit_resolvers

    def __init__(self, stream: str) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        Composer.__init__(self)


def _texts_of_recipes(data: dict[str, Any], name: str) -> None:
    """Sets the texts that a recipe does not inherit, because they would be wrong for another collection."""
    data.setdefault("title", name)
    data.setdefault("description", "")
    data.setdefault("example_question", None)
    report = data.setdefault("report", {})
    if isinstance(report, dict):
        report.setdefault("title", data["title"])
        report.setdefault("published", [])


def own_texts(data: dict[str, Any], name: str) -> None:
    """Sets the texts that no file inherits."""
    for key, text in (("title", name), ("description", ""), ("hidden", False)):
        data.setdefault(key, text)


@dataclass(frozen=True)
class Family:
    """Files that extend each other."""

    folder: Path
    """The folder of the project's files; the others extend base.yaml."""
    what: str
    """The word for one of them in errors."""
    listing: str
    """The command that lists them."""
    texts: Callable[[dict[str, Any], str], None]
    """Sets the texts that a file does not inherit, from its data and its name."""
    kind: str = "reader"
    """The field on which the other fields of a section depend. If it changes, the whole section is replaced."""


RECIPES = Family(Path(__file__).parent, "recipe", "cocondenser recipes", _texts_of_recipes)
SENTENCES = Family(
    Path(__file__).parents[1] / "sentences",
    "recipe of sentences",
    "cocondenser sentences recipes",
    own_texts,
    kind="kind",
)


def named(family: Family = RECIPES) -> list[str]:
    """The project's files, without base.yaml."""
    return sorted(path.stem for path in family.folder.glob("*.yaml") if path.stem != "base")


class Summary(NamedTuple):
    """What a listing shows of a file."""

    name: str
    title: str
    description: str


def summaries(family: Family = RECIPES) -> list[Summary]:
    """The project's files that are not hidden. Their other fields are not checked, which would take a second."""
    all_data = (read(name, family).data for name in named(family))
    return [Summary(data["name"], data["title"], data["description"]) for data in all_data if not data["hidden"]]


def listed(family: Family = RECIPES) -> list[str]:
    """The project's files that are not hidden."""
    return [one.name for one in summaries(family)]


def read(name: str, family: Family = RECIPES) -> Layer:
    """Reads the file `name` (a project's file, or the path of a YAML file) and merges it with all that it extends."""
    return reduce(lambda below, above: merge(below, above, family.kind), reversed(chain(name, family)))


def called(name: str, family: Family = RECIPES) -> str:
    """The name of a file in listings and records; `name` itself if there is no such file."""
    try:
        return str(read(name, family).data["name"])
    except InputError:
        return name


def chain(name: str, family: Family = RECIPES) -> list[Layer]:
    """The file `name`, then the file that it extends, and so on."""
    path = _find(name, Path(), family)
    layers: list[Layer] = []
    seen: set[Path] = set()
    while True:
        if path.resolve() in seen:
            raise InputError(f"{path}: extends itself")
        seen.add(path.resolve())
        layer = parse(path, family)
        layer.data.setdefault("name", path.stem)
        layers.append(layer)
        parent = layer.data.pop("extends", None)
        if parent is None:
            return layers
        family.texts(layer.data, path.stem)
        if not isinstance(parent, str):
            raise InputError(f"{layer.origin(('extends',))}: extends: takes one {family.what}'s name or path")
        try:
            path = _find(parent, path.parent, family)
        except InputError as error:
            raise InputError(f"{layer.origin(('extends',))}: {error}") from None


def _find(name: str, folder: Path, family: Family) -> Path:
    if name.endswith((".yaml", ".yml")):
        path = relative_to(folder, name)
        if not path.is_file():
            raise InputError(f"{absolute_path(path)}: no such {family.what} file")
        return path
    path = family.folder / f"{name}.yaml"
    if not path.is_file():
        known = hint(name, named(family))
        raise InputError(f"no {family.what} {name!r}{known}; `{family.listing}` lists them")
    return path


def parse(path: Path, family: Family) -> Layer:
    """Reads one file, without the files that it extends."""
    try:
        text = path.read_text(encoding="utf-8")
        root, data = yaml.compose(text, FileLoader), yaml.load(text, FileLoader)
        lines = {keys: f"{path}:{line}" for keys, line in _lines(root, (), path)}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}:{line}: not YAML: {error.problem}") from None
    except (ValueError, yaml.YAMLError) as error:  # not UTF-8, or a number of too many digits
        raise InputError(f"{path}: not a YAML text: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}:1: every {family.what} is a mapping of sections")
    return Layer(data, {(): str(path)} | lines)


def _lines(node: yaml.Node | None, keys: Keys, path: Path) -> Iterator[tuple[Keys, int]]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if key.tag == MERGE:  # first: the section's own fields replace those of the anchor
            yield from _lines(value, keys, path)
    seen: set[str] = set()
    for key, value in node.value:
        if key.tag == MERGE:
            continue
        line = key.start_mark.line + 1
        if key.value in seen:
            raise InputError(f"{path}:{line}: {key.value} appears twice in this section")
        seen.add(key.value)
        yield (*keys, key.value), line
        yield from _lines(value, (*keys, key.value), path)


def merge(below: Layer, above: Layer, kind: str = RECIPES.kind) -> Layer:
    """Merges `above` over `below`, section by section. A section is replaced if its field `kind` changes.

    A value also replaces a section, and a section a value.
    """
    replaced: list[Keys] = []
    data = _merge(below.data, above.data, (), replaced, kind)
    origins = {k: v for k, v in below.origins.items() if not any(k[: len(keys)] == keys for keys in replaced)}
    return Layer(data, origins | above.origins)


def _merge(below: dict[str, Any], above: dict[str, Any], keys: Keys, replaced: list[Keys], kind: str) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        here = (*keys, key)
        if not isinstance(value, dict) or not isinstance(old, dict):
            if isinstance(value, dict) or isinstance(old, dict):
                replaced.append(here)
            merged[key] = value
        elif kind in value and value[kind] != old.get(kind):
            replaced.append(here)
            merged[key] = value
        else:
            merged[key] = _merge(old, value, here, replaced, kind)
    return merged


def override(layer: Layer, settings: Iterable[str]) -> Layer:
    """Applies `stage.field=value` settings, in order."""
    for setting in settings:
        keys, nested = parsed(setting)
        for key in reversed(keys):
            nested = {key: nested}
        layer = merge(layer, Layer(nested, {keys: f"--set {setting}"}))
    return layer


def parsed(setting: str) -> tuple[Keys, Any]:
    """The field and the value of `stage.field=value`. The value is YAML: `1e-4`, `[dev, test]`, `null`, `text`."""
    name, equals, text = setting.partition("=")
    keys = tuple(name.strip().split("."))
    if not equals or not all(keys):
        raise InputError(f"--set {setting}: write stage.field=value")
    try:
        value = yaml.load(text, Loader)
    except (ValueError, yaml.YAMLError):
        value = text
    except RecursionError:
        raise InputError(f"--set {name}: the value is nested too deeply") from None
    if isinstance(value, dict) and not text.lstrip().startswith("{"):
        value = text  # such as a prefix: `query: `
    return keys, value


def hint(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(close)}?)" if close else ""
