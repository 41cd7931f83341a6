"""What a condition in SQL's WHERE syntax may be made of, and what is said of one that is not.

It is parsed by DuckDB, not run, and every part of its syntax tree must be known to do no harm: what is not listed here,
such as a query within or a function that reads files, is refused.
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
"""Beside columns, functions and types."""
OPERATORS = {"COMPARE_IN", "OPERATOR_COALESCE", "OPERATOR_IS_NOT_NULL", "OPERATOR_IS_NULL", "OPERATOR_NOT"}
TYPES = {"bigint", "boolean", "date", "decimal", "double", "float", "integer", "interval", "timestamp", "varchar"}
SIGNS = {
    "%", "*", "+", "-", "/", "//", "^@", "~~", "!~~", "~~*", "!~~*", "~~~", "ilike_escape", "like_escape", "trunc",
}
"""DuckDB's names for arithmetic, LIKE, ILIKE and GLOB, and what INTERVAL 3 DAY is made of."""
FUNCTIONS = (
    "abs", "ceil", "contains", "date_part", "date_trunc", "day", "dayofweek", "ends_with", "floor", "greatest",
    "least", "left", "length", "lower", "ltrim", "month", "nullif", "position", "quarter", "regexp_full_match",
    "regexp_matches", "right", "round", "rtrim", "starts_with", "strpos", "substr", "substring", "to_days",
    "to_months", "to_weeks", "to_years", "trim", "upper", "week", "year",
)
"""None makes a text longer, asks for the time, a random number or a setting, or reads anything."""
# fmt: on
BEFORE, AFTER = "SELECT coalesce((\n", "\n), false) AS mask FROM passages"


def statement(condition: str) -> str:
    """What is parsed and, once `columns_of` has looked at it, run: a column `mask`, true or false."""
    return BEFORE + condition + AFTER


def columns_of(connection: "duckdb.DuckDBPyConnection", condition: str, columns: Mapping[str, str]) -> list[str]:
    """The columns that the condition reads, of `columns` (name: type).

    Raises InputError for what is not one expression, and for whatever in it is not listed above.
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
                raise InputError(f"where: no type {part['type_name']!r} here, but {', '.join(sorted(TYPES))}")
        elif kind not in PARTS or (kind == "OPERATOR" and type_ not in OPERATORS):
            raise InputError(f"where: {type_.lower().replace('_', ' ')!r} cannot be used in a condition")
        elif kind in ("COMPARISON", "BETWEEN") or type_ == "COMPARE_IN":
            _check_compared(part, types)
    return list(dict.fromkeys(used))


def _parse(connection: "duckdb.DuckDBPyConnection", condition: str) -> dict[str, Any]:
    """DuckDB's syntax tree of the condition."""
    try:
        told, frame = (_told(connection, text) for text in (condition, "true"))
        if told["error"]:
            raise InputError(f"where: {_syntax_error(told, condition)}")
        tree = _taken_out(told)
        _taken_out(frame)
        alone = _unplaced(told) == _unplaced(frame)  # else its brackets close what they did not open
    except RecursionError:
        raise InputError("where: the condition is nested too deeply") from None
    if tree is None or not alone:
        raise InputError("where: one condition is expected, with nothing before or after it")
    return tree


def _told(connection: "duckdb.DuckDBPyConnection", condition: str) -> dict[str, Any]:
    row = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [statement(condition)]).fetchone()
    return json.loads(row[0]) if row else {}


def _taken_out(told: dict[str, Any]) -> dict[str, Any] | None:
    """The tree of the condition, and its parameters, taken out of the statement."""
    first = told["statements"][0]
    first.pop("named_param_map")
    columns = first["node"].get("select_list") or [{}]
    children = columns[0].get("children") or [None]
    tree, children[0] = children[0], None
    return tree


def _unplaced(tree: Any) -> Any:
    """The tree without the places in the text that its parts stand at."""
    if isinstance(tree, dict):
        return {key: _unplaced(value) for key, value in tree.items() if not key.startswith("query_location")}
    return [_unplaced(value) for value in tree] if isinstance(tree, list) else tree


def _syntax_error(told: Mapping[str, Any], condition: str) -> str:
    what = str(told["error_message"]).split(" at or near ")[0]
    place = int(told.get("position", len(BEFORE))) - len(BEFORE)  # in bytes
    rest = condition.encode()[max(place, 0) :].decode(errors="replace")
    if not rest:
        return f"{what} at the end of the condition"
    return f"{what} at character {len(condition) - len(rest) + 1}: {one_line(rest, 40)}"


def _parts(tree: object) -> Iterator[dict[str, Any]]:
    """All expressions and types in a syntax tree."""
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
        can = f"functions that can: {', '.join(FUNCTIONS)}"
        raise InputError(f"where: '{one_line(name)}' cannot be used in a condition; {can}")


def _check_compared(part: Mapping[str, Any], types: Mapping[str, str]) -> None:
    """Raises InputError for a text beside a number: DuckDB would read texts as numbers, up to one that is none."""
    sides = [part[key] for key in ("left", "right", "input", "lower", "upper") if key in part]
    compared = part.get("children") or sides
    names = [other["column_names"][0] for other in compared if other["class"] == "COLUMN_REF"]
    literals = [other["literal"] for other in compared if other["class"] == "CONSTANT"]
    texts = [name for name in names if types.get(name.lower()) == "text"]
    others = [literal for literal in literals if literal["kind"] not in ("STRING", "NULL_LITERAL")]
    if texts and others:
        raise InputError(f"where: {texts[0]} is text: compare it with '{others[0]['text']}', in single quotes")


def _no_column(name: str, condition: str, columns: Mapping[str, str]) -> str:
    said = f"no column '{one_line(name)}' among {', '.join(f'{column} ({type_})' for column, type_ in columns.items())}"
    near = get_close_matches(name.lower(), [column.lower() for column in columns], 1)
    if near:
        said += f"; did you mean {next(column for column in columns if column.lower() == near[0])}?"
    elif f'"{name}"' in condition:
        said += f"; a text stands in single quotes: '{name}'"
    else:
        said += "; the recipe's ingest.metadata names further columns to keep"
    return said
