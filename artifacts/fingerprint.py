"""The version of a stage's code: a hash of the syntax tree of each of its files.

A change in any first-party module that the stage imports counts. Comments, docstrings, formatting and messages of
exceptions do not count. The files are read as text; nothing is imported.
"""

import ast
import hashlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from artifacts.errors import StoreError

NOT_DATA = (".py", ".pyc", ".md", ".typed")


def code_version(
    function: Callable[..., Any], roots: tuple[str, ...] = ("pipeline",), uncounted: Collection[str] = ()
) -> dict[str, str]:
    """Returns file -> hash for the module of `function` and all that it imports, directly or not, from `roots`.

    `roots`: names of packages. `uncounted`: modules that cannot change an artifact. They are left out, with the
    modules that only they import.

    Files are named from the folder that holds the package (`pipeline/negatives/mine.py`). What counts as an import:
    - every import statement, inside functions too, and the parent packages of the module;
    - a string that names a module, as child processes receive one (`"pipeline.pretrain.train:train_objective"`);
    - a string that begins a module's name (`f"pipeline.data.readers.{name}"`): all modules of that package.
    Other files in the folder of a package's `__init__.py`, such as templates, belong to the package.
    Raises `StoreError` for a file that is not valid Python.
    """
    function = inspect.unwrap(function)
    start = Path(inspect.getfile(function))
    hashes = {} if _resolve(function.__module__, roots) else {start.name: _read(start)[0]}
    seen: set[str] = set()
    waiting = [function.__module__, *_imports(function.__module__, start, roots)]
    while waiting:
        module = waiting.pop()
        path = _resolve(module, roots)
        if path is None or module in seen or module in uncounted:
            continue
        seen.add(module)
        hashes[_relative(path, roots)] = _read(path)[0]
        if path.name == "__init__.py":
            hashes |= {_relative(file, roots): _hash_data(file) for file in _data_files(path.parent)}
        waiting += [module.rpartition(".")[0], *_imports(module, path, roots)]
    return dict(sorted(hashes.items()))


def _imports(module: str, path: Path, roots: tuple[str, ...]) -> Iterator[str]:
    """Yields names in `module` that may be modules of `roots`."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for level, base, names in _read(path)[1]:
        if level:
            parents = package.split(".")
            base = ".".join([*parents[: len(parents) - level + 1], *([base] if base else [])])
        if base.partition(".")[0] not in roots:
            continue
        if base.endswith("."):
            folder = _resolve(base[:-1], roots)
            if folder is not None and folder.name == "__init__.py":
                yield from (base + file.stem for file in sorted(folder.parent.glob("*.py")))
            continue
        yield base
        yield from (f"{base}.{name}" for name in names)


def _resolve(module: str, roots: tuple[str, ...]) -> Path | None:
    root, *parts = module.split(".")
    folder = _folder(root) if root in roots else None
    if folder is None:
        return None
    path = folder.joinpath(*parts)
    candidates = [path / "__init__.py", *([path.with_name(path.name + ".py")] if parts else [])]
    return next((file for file in candidates if file.is_file()), None)


@cache
def _folder(root: str) -> Path | None:
    spec = importlib.util.find_spec(root)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _relative(path: Path, roots: tuple[str, ...]) -> str:
    folder = next(f for f in map(_folder, roots) if f is not None and path.is_relative_to(f))
    return path.relative_to(folder.parent).as_posix()


def _data_files(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.suffix not in NOT_DATA and not file.name.startswith(".") and file.name[-1] != "~":
            yield file


def _hash_data(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


Import = tuple[int, str, tuple[str, ...]]
"""Level of a relative import, module, imported names."""

_cache: dict[Path, tuple[tuple[int, int, int], str, list[Import]]] = {}


def _read(path: Path) -> tuple[str, list[Import]]:
    """Returns the hash of a module's syntax tree, and its imports."""
    stat = path.stat()
    state = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
    if path not in _cache or _cache[path][0] != state:
        try:
            tree = ast.parse(path.read_bytes())
        except SyntaxError as error:
            raise StoreError(f"{path}:{error.lineno}: {error.msg}") from None
        _drop_texts(tree)
        out: list[str] = []
        _write(tree, out)
        _cache[path] = (state, hashlib.sha256("\0".join(out).encode("utf-8", "surrogatepass")).hexdigest(), _find(tree))
    return _cache[path][1:]


def _drop_texts(tree: ast.AST) -> None:
    """Removes what only people read: docstrings (strings that are statements) and arguments of raised exceptions."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [s for s in body if not (isinstance(s, ast.Expr) and _is_string(s.value))]
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _write(node: ast.AST, out: list[str]) -> None:
    """Like `ast.dump`, but without empty fields: newer Python versions add some, and they must not change a key."""
    out.append(type(node).__name__)
    for field in node._fields:
        value = getattr(node, field, None)
        if (value is None and not isinstance(node, ast.Constant)) or value == [] or field == "ctx":
            continue
        out.append(field)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                _write(item, out)
            else:
                out.append(repr(item))
    out.append(")")


_MODULE = re.compile(r"\w+(\.\w+)+(:\w+)?|(\w+\.)+")


def _find(tree: ast.AST) -> list[Import]:
    return list(_find_each(ast.walk(tree)))


def _find_each(nodes: Iterable[ast.AST]) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", tuple(alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
            yield 0, node.value.partition(":")[0], ()
