"""The allowed syntax of conditions (SQL's WHERE), and the errors for everything else.

DuckDB parses a condition without running it. Only the parts of a syntax tree that are listed here are allowed, because
they are known to be harmless; a subquery or a function that reads files, for example, is rejected.
"""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pipeline.errors import InputError
from pipeline.notices import one_line

if TYPE_CHECKING:
    import duckdb

# fmt: off
PARTS = {"BETWEEN", "CASE", "CAST", "COMPARISON", "CONJUNCTION", "CONSTANT", "OPERATOR"}
"""Allowed parts besides columns, functions and types."""
OPERATORS = {"COMPARE_IN", "OPERATOR_COALESCE", "OPERATOR_IS_NOT_NULL", "OPERATOR_IS_NULL", "OPERATOR_NOT"}
TYPES = {"bigint", "boolean", "date", "decimal", "double", "float", "integer", "interval", "timestamp", "varchar"}
SIGNS = {
    "%", "*", "+", "-", "/", "//", "^@", "~~", "!~~", "~~*", "!~~*", "~~~", "ilike_escape", "like_escape", "trunc",
}
"""DuckDB's names for arithmetic, LIKE, ILIKE, GLOB and the parts of INTERVAL 3 DAY."""
FUNCTIONS = (
    "abs", "ceil", "contains", "date_part", "date_trunc", "day", "dayofweek", "ends_with", "floor", "greatest",
    "least", "left", "length", "lower", "ltrim", "month", "nullif", "position", "quarter", "regexp_full_match",
    "regexp_matches", "right", "round", "rtrim", "starts_with", "strpos", "substr", "substring", "to_days",
    "to_months", "to_weeks", "to_years", "trim", "upper", "week", "year",
)
"""None of them lengthens a text, reads the time, a random number, a setting or a file."""
# fmt: on
BEFORE, AFTER = "SELECT coalesce((\n", "\n), false) AS mask FROM passages"


def statement(condition: str) -> str:
    """Returns the SQL statement that is parsed, checked by `columns_of` and run: a column `mask`, true or false."""
    return BEFORE + condition + AFTER


def columns_of(connection: "duckdb.DuckDBPyConnection", condition: str, columns: Mapping[str, str]) -> list[str]:
    """Returns the columns of `columns` (name: type) that the condition reads.

    Raises InputError for text that is not one expression, and for any part that is not listed above.
    """
    names, used = {name.lower(): name for name in columns}, []
    types = {name.lower(): type_ for name, type_ in columns.items()}
    for part in _parts(_parse(connection, condition)):
        kind, type_ = part["class"], part["type"]
        if kind == "COLUMN_REF":
            name = ".".join(part["column_names"])
            if name.lower() not in names:
                raise InputError(f"where: {_no_column(name, condition, columns)}")
            used.append(names[name.lower()])
        elif kind == "FUNCTION":
            _check_function(part)
        elif kind == "TYPE":
            if part["type_name"].lower() not in TYPES or part["schema"] or part["catalog"]:
                raise InputError(f"where: unknown type {part['type_name']!r}; allowed: {', '.join(sorted(TYPES))}")
        elif kind not in PARTS or (kind == "OPERATOR" and type_ not in OPERATORS):
            raise InputError(f"where: {type_.lower().replace('_', ' ')!r} cannot be used in a condition")
        elif kind in ("COMPARISON", "BETWEEN") or type_ == "COMPARE_IN":
            _check_compared(part, types)
    return list(dict.fromkeys(used))


def _parse(connection: "duckdb.DuckDBPyConnection", condition: str) -> dict[str, Any]:
    """Returns DuckDB's syntax tree of the condition."""
    try:
        parsed, frame = (_statement_tree(connection, text) for text in (condition, "true"))
        if parsed["error"]:
            raise InputError(f"where: {_syntax_error(parsed, condition)}")
        tree = _remove_condition(parsed)
        _remove_condition(frame)
        alone = _without_places(parsed) == _without_places(frame)  # else its brackets close some of the statement's
    except RecursionError:
        raise InputError("where: the condition is nested too deeply") from None
    if tree is None or not alone:
        raise InputError("where: one condition is expected, with nothing before or after it")
    return tree


def _statement_tree(connection: "duckdb.DuckDBPyConnection", condition: str) -> dict[str, Any]:
    row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement(condition)]).fetchone()
    return json.loads(row[0]) if row else {}


def _remove_condition(parsed: dict[str, Any]) -> dict[str, Any] | None:
    """Removes the condition and its parameters from the statement. Returns the condition's tree."""
    first = parsed["statements"][0]
    first.pop("named_param_map")
    columns = first["node"].get("select_list") or [{}]
    children = columns[0].get("children") or [None]
    tree, children[0] = children[0], None
    return tree


def _without_places(tree: Any) -> Any:
    """Returns the tree without the positions of its parts in the text."""
    if isinstance(tree, dict):
        return {key: _without_places(value) for key, value in tree.items() if not key.startswith("query_location")}
    return [_without_places(value) for value in tree] if isinstance(tree, list) else tree


def _syntax_error(parsed: Mapping[str, Any], condition: str) -> str:
    what = str(parsed["error_message"]).split(" at or near ")[0]
    place = int(parsed.get("position", len(BEFORE))) - len(BEFORE)  # in bytes
    rest = condition.encode()[max(place, 0) :].decode(errors="replace")
    if not rest:
        return f"{what} at the end of the condition"
    return f"{what} at character {len(condition) - len(rest) + 1}: {one_line(rest, 40)}"


def _parts(tree: object) -> Iterator[dict[str, Any]]:
    """Yields all expressions and types in a syntax tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if "class" in node:
                yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _check_function(part: Mapping[str, Any]) -> None:
    name = part["function_name"]
    if name == "row":
        raise InputError("where: one condition is expected, not a list")
    special = part["schema"] or part["catalog"] or part["filter"] or part["distinct"] or part["order_bys"]["orders"]
    if special or (name not in SIGNS and name not in FUNCTIONS):
        allowed = f"allowed functions: {', '.join(FUNCTIONS)}"
        raise InputError(f"where: '{one_line(name)}' cannot be used in a condition; {allowed}")


def _check_compared(part: Mapping[str, Any], types: Mapping[str, str]) -> None:
    """Raises InputError for a text compared with a number: DuckDB would convert texts to numbers until one fails."""
    sides = [part[key] for key in ("left", "right", "input", "lower", "upper") if key in part]
    compared = part.get("children") or sides
    names = [other["column_names"][0] for other in compared if other["class"] == "COLUMN_REF"]
    literals = [other["literal"] for other in compared if other["class"] == "CONSTANT"]
    texts = [name for name in names if types.get(name.lower()) == "text"]
    others = [literal for literal in literals if literal["kind"] not in ("STRING", "NULL_LITERAL")]
    if texts and others:
        raise InputError(f"where: {texts[0]} is text: compare it with '{others[0]['text']}', in single quotes")


def _no_column(name: str, condition: str, columns: Mapping[str, str]) -> str:
    text = f"no column '{one_line(name)}' among {', '.join(f'{column} ({type_})' for column, type_ in columns.items())}"
    near = get_close_matches(name.lower(), [column.lower() for column in columns], 1)
    if near:
        text += f"; did you mean {next(column for column in columns if column.lower() == near[0])}?"
    elif f'"{name}"' in condition:
        text += f"; write text in single quotes: '{name}'"
    else:
        text += "; the recipe's ingest.metadata names further columns to keep"
    return text
