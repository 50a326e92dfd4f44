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
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda item, items: item in items,
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "abs": abs,
    "round": round,
    "count": len,
    "median": statistics.median,
}

ANSWERS = ("steps", "check", "table", "diff")
"""Names of whole answers."""

QUESTIONS = ("finding", "row", "rows", "kernels", "chain", "memory", "events")
"""Functions that ask the trace: a finding by its id, rows of the table, chains by the name of an event, …"""

OTHER = "other"
"""`other.row(…)` asks the trace that the case compares with."""


KNOWN_NAMES = frozenset((*FUNCTIONS, *ANSWERS, *QUESTIONS, OTHER))
"""Names that no value may have."""


class ExpressionError(Exception):
    """An expression that cannot be evaluated, in one line."""


def check_expression(text: str, names: Container[str]) -> None:
    """Check that an expression has only known parts. Raises ExpressionError."""
    _Checker(names).evaluate(text)


def evaluate_expression(text: str, values: Mapping[str, Any], environment: Mapping[str, Any]) -> Any:
    """Evaluate an expression; `environment`: answers and functions by their name. Raises ExpressionError."""
    return _Evaluator(values, environment).evaluate(text)


class _Visitor:
    """Walk through an expression; what is not listed here is refused."""

    def evaluate(self, text: str) -> Any:
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"{clean(text)}: not an expression") from error
        try:
            return self._visit(tree)
        except ExpressionError as error:
            raise ExpressionError(f"{clean(text)}: {error}") from error
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise ExpressionError(f"{clean(text)}: {clean(str(error)) or type(error).__name__}") from error

    def _visit(self, node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=str() | int() | float() as value):
                return value
            case ast.Name(id=name):
                return self._name(name)
            case ast.Attribute(value=ast.Name(id=name), attr=field) if name == OTHER:
                return self._other(field)
            case ast.Attribute(value=inner, attr=field):
                return self._field(self._visit(inner), field)
            case ast.Subscript(value=inner, slice=ast.Constant(value=int() as index)):
                return self._item(self._visit(inner), index)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return self._apply(operator.sub, 0, self._visit(inner))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return self._apply(_OPERATORS[type(op)], self._visit(left), self._visit(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return self._apply(_OPERATORS[type(op)], self._visit(left), self._visit(right))
            case ast.BoolOp(op=ast.And(), values=parts):
                return self._all([self._visit(part) for part in parts])
            case ast.Call(func=function, args=arguments, keywords=[]):
                return self._call(self._visit(function), [self._visit(argument) for argument in arguments])
        raise ExpressionError(f"{ast.unparse(node)}: not possible here")

    def _name(self, name: str) -> Any:
        raise NotImplementedError

    def _other(self, name: str) -> Any:
        raise NotImplementedError

    def _field(self, value: Any, field: str) -> Any:
        raise NotImplementedError

    def _item(self, value: Any, index: int) -> Any:
        raise NotImplementedError

    def _apply(self, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        raise NotImplementedError

    def _all(self, parts: list[Any]) -> Any:
        raise NotImplementedError

    def _call(self, function: Any, arguments: list[Any]) -> Any:
        raise NotImplementedError


class _Checker(_Visitor):
    """Check the names; there is nothing to compute yet."""

    def __init__(self, names: Container[str]) -> None:
        self._names = names

    def _name(self, name: str) -> None:
        if not (name in self._names or (name in KNOWN_NAMES and name != OTHER)):
            raise ExpressionError(f"{clean(name)}: no value, answer or function has this name")

    def _other(self, name: str) -> None:
        if name not in ANSWERS and name not in QUESTIONS:
            raise ExpressionError(f"other.{clean(name)}: no answer or function has this name")

    def _field(self, value: Any, field: str) -> None:
        pass

    def _item(self, value: Any, index: int) -> None:
        pass

    def _apply(self, function: Callable[[Any, Any], Any], left: Any, right: Any) -> None:
        pass

    def _all(self, parts: list[Any]) -> None:
        pass

    def _call(self, function: Any, arguments: list[Any]) -> None:
        pass


class _Evaluator(_Visitor):
    """Compute the value of an expression."""

    def __init__(self, values: Mapping[str, Any], environment: Mapping[str, Any]) -> None:
        self._values, self._environment = values, environment

    def _name(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        found = FUNCTIONS.get(name) or self._environment.get(name)
        if found is None:
            raise ExpressionError(f"{clean(name)}: there is no such answer here")
        return found() if name in ANSWERS else found

    def _other(self, name: str) -> Any:
        environment = self._environment.get(OTHER)
        if environment is None:
            raise ExpressionError("other: the case has no key against")
        return _Evaluator({}, environment())._name(name)

    def _field(self, value: Any, field: str) -> Any:
        if isinstance(value, list):
            return [self._field(item, field) for item in value]
        if not isinstance(value, dict) or field not in value:
            raise ExpressionError(f"{clean(field)}: no such field in the answer")
        return _convert_to_ns(value[field]) if field.endswith("_us") else value[field]

    def _item(self, value: Any, index: int) -> Any:
        return value[index]

    def _apply(self, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        return function(left, right)

    def _all(self, parts: list[Any]) -> bool:
        return all(parts)

    def _call(self, function: Any, arguments: list[Any]) -> Any:
        if not callable(function):
            raise ExpressionError("not a function")
        return function(*arguments)


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


FIELD = re.compile(r"<([a-z][a-z0-9_]*)(?::([^<>]*))?>")
"""A value in a text: <name> or <name:format>."""


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
