"""Files of recipes and their like as plain data: YAML with line numbers, `extends:`, merging, and `--set`.

Nothing here knows the configuration classes. The path of every value leads to where it was written (`FILE:LINE` or
`--set ...`), so that an error found later can name that place.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import Composer

from pipeline.errors import InputError
from pipeline.paths import beside, shown

Keys = tuple[str, ...]
PROJECT = Path(__file__).resolve().parents[1]
"""Its own recipes are in it, and name what lies below the current folder."""


@dataclass(frozen=True)
class Layer:
    data: dict[str, Any]
    origins: dict[Keys, str] = field(default_factory=dict)

    def origin(self, keys: Keys) -> str | None:
        """Where `keys` was written, else the nearest section around it or a part of that, else the file."""
        for n in range(len(keys), 0, -1):
            within = [place for written, place in self.origins.items() if written[:n] == keys[:n]]
            if within:
                return self.origins.get(keys[:n], within[-1])
        return self.origins.get(())

    def folder(self, keys: Keys) -> Path | None:
        """Of the user's file that gives `keys`; None where a setting or a file of the project does.

        A relative path counts from there, else from the current folder.
        """
        place = self.origin(keys) or ""
        file, _, line = place.rpartition(":")
        folder = Path(file if line.isdecimal() else place).parent.resolve()
        return None if place.startswith("--set ") or not place or folder.is_relative_to(PROJECT) else folder


MERGE = "tag:yaml.org,2002:merge"
"""Of the key `<<`, which takes over the fields of an anchor (`&name`) in the same file."""


class Loader(yaml.SafeLoader):
    """YAML 1.2's numbers (PyYAML reads `1e-4` as text, `1:30` as 90 and `010` as 8). Dates stay text, and so does `~`,
    a null of YAML's: here it is the home folder."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":int", ":float"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    if first != "~"
}
for kind, pattern in {
    "int": r"[-+]?(0|[1-9][0-9_]*)$|0x[0-9a-fA-F]+$",
    "float": r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$",
}.items():
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(pattern), list("-+.0123456789"))


class FileLoader(Composer, yaml.CSafeLoader):
    """As `Loader`, five times as fast by libyaml's scanner. Its composer is not used: it crashes on deep nesting."""

    yaml_implicit_resolvers = Loader.yaml_implicit_resolvers

    def __init__(self, stream: str) -> None:
        yaml.CSafeLoader.__init__(self, stream)
        Composer.__init__(self)


def _texts_of_recipes(data: dict[str, Any], name: str) -> None:
    """What a recipe says of itself is not inherited: on another collection it would be untrue."""
    data.setdefault("title", name)
    data.setdefault("description", "")
    data.setdefault("example_question", None)
    report = data.setdefault("report", {})
    if isinstance(report, dict):
        report.setdefault("title", data["title"])
        report.setdefault("published", [])


def own_texts(data: dict[str, Any], name: str) -> None:
    """What any file says of itself and does not inherit."""
    for key, text in (("title", name), ("description", ""), ("hidden", False)):
        data.setdefault(key, text)


@dataclass(frozen=True)
class Family:
    """Files that extend each other."""

    folder: Path
    """Of those that come with the project; base.yaml is for the others to extend."""
    what: str
    """One of them, as errors call it."""
    listing: str
    """The command that lists them."""
    texts: Callable[[dict[str, Any], str], None]
    """Gives the data of a file of that name what it says of itself and does not inherit."""
    kind: str = "reader"
    """The field that tells what a section's others are: where it changes, the section is replaced."""


RECIPES = Family(Path(__file__).parent, "recipe", "cocondenser recipes", _texts_of_recipes)


def named(family: Family = RECIPES) -> list[str]:
    """Those that come with the project, the base aside."""
    return sorted(path.stem for path in family.folder.glob("*.yaml") if path.stem != "base")


def listed(family: Family = RECIPES) -> list[str]:
    """Those of them that are not hidden."""
    return [name for name in named(family) if not read(name, family).data["hidden"]]


def read(name: str, family: Family = RECIPES) -> Layer:
    """The file `name` (one of the project's, or the path of a YAML file) over all that it extends."""
    return reduce(lambda below, above: merge(below, above, family.kind), reversed(chain(name, family)))


def called(name: str, family: Family = RECIPES) -> str:
    """What the file `name` is called in listings and records; `name` itself where there is no such file."""
    try:
        return str(read(name, family).data["name"])
    except InputError:
        return name


def chain(name: str, family: Family = RECIPES) -> list[Layer]:
    """The file `name` and what it extends, each followed by what it extends itself."""
    path = _find(name, Path(), family)
    found: list[Layer] = []
    seen: set[Path] = set()
    while True:
        if path.resolve() in seen:
            raise InputError(f"{path}: extends itself")
        seen.add(path.resolve())
        layer = parse(path, family)
        layer.data.setdefault("name", path.stem)
        found.append(layer)
        parent = layer.data.pop("extends", None)
        if parent is None:
            return found
        family.texts(layer.data, path.stem)
        if not isinstance(parent, str):
            raise InputError(f"{layer.origin(('extends',))}: extends: takes one {family.what}'s name or path")
        try:
            path = _find(parent, path.parent, family)
        except InputError as error:
            raise InputError(f"{layer.origin(('extends',))}: {error}") from None


def _find(name: str, folder: Path, family: Family) -> Path:
    if name.endswith((".yaml", ".yml")):
        path = beside(folder, name)
        if not path.is_file():
            raise InputError(f"{shown(path)}: no such {family.what} file")
        return path
    path = family.folder / f"{name}.yaml"
    if not path.is_file():
        known = hint(name, named(family))
        raise InputError(f"no {family.what} {name!r}{known}; `{family.listing}` lists them")
    return path


def parse(path: Path, family: Family) -> Layer:
    """One file, without what it extends."""
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
    """`above` over `below`, section by section; a section that changes its field `kind` replaces the section.

    So does a value that stands where a section was, or the other way round.
    """
    replaced: list[Keys] = []
    data = _merge(below.data, above.data, (), replaced, kind)
    kept = {k: v for k, v in below.origins.items() if not any(k[: len(gone)] == gone for gone in replaced)}
    return Layer(data, kept | above.origins)


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
