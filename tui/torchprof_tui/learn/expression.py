"""Expressions over the program's answers: the values of a case, such as `max(steps.duration_ns)`.

They look like Python and are evaluated by this module alone: constants, names, arithmetic, comparisons, fields of
answers (as `--json` names them, of a list: those of each of its items), items of lists, and the functions below. Times
are in ns: a field whose name ends in `_us` is converted.
"""

from __future__ import annotations

import ast
import operator
import re
import statistics
from collections.abc import Callable, Container, Mapping
from typing import Any

from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: lambda a, b: operator.mul(*map(_require_number, (a, b))),
    ast.Div: operator.truediv,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda item, items: item in items,
}


def _require_number(value: Any) -> Any:
    if not isinstance(value, int | float):  # a text times a number could fill the memory
        raise TypeError("only numbers can be multiplied")
    return value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "abs": abs,
    "round": round,
    "count": len,
    "median": statistics.median,
}

ANSWERS = ("steps", "check", "table", "diff")  # names of whole answers

QUESTIONS = ("finding", "row", "rows", "kernels", "chain", "memory", "events")
"""Functions that ask the trace: a finding by its id, rows of the table, chains by the name of an event, …"""

OTHER = "other"  # `other.row(…)` asks the trace that the case compares with


KNOWN_NAMES = frozenset((*FUNCTIONS, *ANSWERS, *QUESTIONS, OTHER))  # names that no value may have


class ExpressionError(Exception):
    """An expression that cannot be evaluated, in one line."""


_NODES = (
    ast.Constant, ast.Name, ast.Load, ast.Attribute, ast.Subscript, ast.Call,
    ast.UnaryOp, ast.USub, ast.BinOp, ast.Compare, ast.BoolOp, ast.And, *_OPERATORS,
)  # fmt: skip
"""What an expression may consist of; everything else is refused before anything is evaluated."""


def _parse(text: str) -> ast.expr:
    """Parse an expression, and refuse what it may not have. Raises ExpressionError."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"{clean(text)}: not an expression") from error
    for node in ast.walk(tree):
        has_more = (isinstance(node, ast.Call) and node.keywords) or (isinstance(node, ast.Compare) and node.ops[1:])
        if not isinstance(node, _NODES) or has_more:
            raise ExpressionError(f"{clean(text)}: {type(node).__name__}: not possible here")
    return tree


def check_expression(text: str, names: Container[str]) -> None:
    """Check that an expression has only known parts and names. Raises ExpressionError."""
    for node in ast.walk(_parse(text)):
        if isinstance(node, ast.Name) and node.id not in names and node.id not in KNOWN_NAMES:
            raise ExpressionError(f"{clean(text)}: {clean(node.id)}: no value, answer or function has this name")


def evaluate_expression(text: str, values: Mapping[str, Any], environment: Mapping[str, Any]) -> Any:
    """Evaluate an expression; `environment`: answers and questions by their name. Raises ExpressionError."""
    try:
        return _compute(_parse(text), {**environment, **FUNCTIONS, **values})
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ExpressionError(f"{clean(text)}: {clean(str(error)) or type(error).__name__}") from error


def _compute(node: ast.AST, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name not in names:
            raise LookupError("other: the case has no key against" if name == OTHER else f"{name}: there is none here")
        case ast.Name(id=name):
            return names[name]() if name in ANSWERS else names[name]
        case ast.Attribute(value=ast.Name(id=name), attr=field) if name == OTHER and name in names:
            return _compute(ast.Name(field), names[OTHER]())
        case ast.Attribute(value=inner, attr=field):
            return _get_field(_compute(inner, names), field)
        case ast.Subscript(value=inner, slice=index):
            return _compute(inner, names)[_compute(index, names)]
        case ast.UnaryOp(operand=inner):
            return -_compute(inner, names)
        case ast.BoolOp(values=parts):
            return all(_compute(part, names) for part in parts)
        case ast.Call(func=function, args=arguments):
            return _compute(function, names)(*(_compute(argument, names) for argument in arguments))
        case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
            return _OPERATORS[type(op)](_compute(left, names), _compute(right, names))
    raise TypeError(f"{type(node).__name__}: not possible here")


def _get_field(value: Any, field: str) -> Any:
    """Return a field of an answer, times in ns; of a list those of its items."""
    if isinstance(value, list):
        return [_get_field(item, field) for item in value]
    if not isinstance(value, dict) or field not in value:
        raise LookupError(f"{field}: no such field in the answer")
    return _convert_to_ns(value[field]) if field.endswith("_us") else value[field]


def _convert_to_ns(found: Any) -> Any:
    """Convert µs to ns: a number, or the numbers of a field such as `step_us`, which has those of both sides."""
    if isinstance(found, dict):
        return {name: _convert_to_ns(value) for name, value in found.items()}
    return found * 1000 if isinstance(found, int | float) and not isinstance(found, bool) else found


def _format_plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{round(value):,}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else clean(str(value))


FORMATS: dict[str, Callable[[Any], str]] = {
    "": _format_plain,
    "time": lambda value: format_duration(round(value)),
    "%": lambda value: f"{value * 100:.2g} %" if abs(value) < 0.1 else f"{value * 100:.0f} %",
    "x": lambda value: f"{value:.1f}" if value < 10 else f"{value:,.0f}",
    "KiB": lambda value: f"{value / 2**10:.3g} KiB",
    "MiB": lambda value: f"{value / 2**20:.3g} MiB",
}
"""Formats of a value in a text: <name>, <name:time>, <name:%>, <name:x> (a ratio), <name:KiB>, …."""


FIELD = re.compile(r"<([a-z][a-z0-9_]*)(?::([^<>]*))?>")  # a value in a text: <name> or <name:format>


def fill_template(template: str, values: Mapping[str, Any]) -> str:
    """Write the values into a text. Raises ExpressionError for a value that its format does not fit."""

    def write(field: re.Match[str]) -> str:
        name, spec = field[1], field[2] or ""
        if name not in values:
            return field[0]
        try:
            return FORMATS[spec](values[name])
        except (TypeError, ValueError) as error:
            raise ExpressionError(f"{field[0]}: {clean(str(values[name]))[:60]} does not fit") from error

    return FIELD.sub(write, template)
