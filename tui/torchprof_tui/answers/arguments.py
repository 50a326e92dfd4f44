"""Check the arguments of a question: TraceError, with one line that says what to give, for a wrong type or value."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

from torchprof_tui.trace.core.errors import TraceError

_LIMIT = 2**63  # numbers of steps and ranks, and times in ns, are int64 in traces

_REPR = reprlib.Repr()
_REPR.maxstring = 80


class RowIndexError(TraceError, IndexError):
    """No row has this index; an IndexError too, as sequences raise it."""


def reject(name: str, value: object, wanted: str) -> TraceError:
    """Return the error of an argument that is not what it should be."""
    return TraceError(f"{name}={' '.join(_REPR.repr(value).split())}: {wanted}")


def check_number(name: str, value: Any, wanted: str = "give a whole number") -> int:
    """Return a whole number, of Python or numpy, as an int. Raises TraceError."""
    try:
        if isinstance(value, bool) or not -_LIMIT <= operator.index(value) < _LIMIT:
            raise reject(name, value, wanted)
        return operator.index(value)
    except TypeError:
        raise reject(name, value, wanted) from None


def check_time(name: str, value: Any) -> int:
    """Return a time in ns, rounded down where it has a fraction. Raises TraceError."""
    wanted = "give a time in ns from the first event"
    if isinstance(value, float):  # also numpy's float64
        if not math.isfinite(value):
            raise reject(name, value, wanted)
        value = math.floor(value)
    return check_number(name, value, wanted)


def check_text(name: str, value: Any, wanted: str = "give a text") -> str:
    """Return a text. Raises TraceError."""
    if not isinstance(value, str):
        raise reject(name, value, wanted)
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return True or False; also 1 or 0. Raises TraceError."""
    try:
        if operator.index(value) in (0, 1):
            return bool(value)
    except TypeError:
        pass
    raise reject(name, value, "give True or False")


def check_choice(name: str, value: Any, choices: Sequence[str], what: str) -> str:
    """Return one of the choices; `what` says what they are. Raises TraceError."""
    if not isinstance(value, str) or value not in choices:
        raise reject(name, value, f"{what} {', '.join(choices)}")
    return value


def check_pair(name: str, value: Any, wanted: str) -> tuple[Any, Any]:
    """Return the two values of a tuple or list. Raises TraceError."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise reject(name, value, wanted)
    return value[0], value[1]


def check_row(name: str, value: Any, count: int, what: str) -> int:
    """Return the index of one of `count` rows; negative ones count from the end. Raises TraceError, RowIndexError."""
    row = check_number(name, value, f"give one index of the {count:,} {what}")
    if not -count <= row < count:
        raise RowIndexError(f"{name}={row}: there are {count:,} {what}")
    return row % count


def check_optional(check: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    """Return None for None, else what the check returns. Raises TraceError."""
    return None if value is None else check(name, value)
