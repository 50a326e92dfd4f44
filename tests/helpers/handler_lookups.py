"""Remember for which messages a widget has decorated handlers, and how many parameters a callback has.

Textual looks both up for each message: the first with all classes of the widget and of the message, the second from
the signature of each new closure or partial. It takes a tenth of the time of the tests of screens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import CodeType
from typing import Any

from textual import _callback
from textual.message import Message
from textual.message_pump import MessagePump


@contextmanager
def remembered_handlers() -> Iterator[None]:
    """Look decorators and parameters up once for each class and piece of code."""
    find_handlers, count_parameters = MessagePump._get_dispatch_methods, _callback._count_parameters
    decorated: dict[tuple[type, type], bool] = {}
    counts: dict[CodeType, int] = {}

    @wraps(find_handlers)
    def find(pump: MessagePump, name: str, message: Message) -> Iterable[Any]:
        key = (type(pump), type(message))
        if key not in decorated:
            decorated[key] = _has_decorated(*key)
        if decorated[key]:
            yield from find_handlers(pump, name, message)
            return
        private = f"_{name}"
        for each in key[0].__mro__:
            if message._no_default_action:
                return
            own = each.__dict__
            method = own.get(private) or own.get(name)
            if method is not None and not getattr(method, "_textual_on", None):
                yield each, method.__get__(pump, each)

    @wraps(count_parameters)
    def count(function: Callable[..., Any]) -> int:
        code = getattr(function, "__code__", None)
        if code is None or hasattr(function, "__wrapped__"):
            return count_parameters(function)
        if code not in counts:
            counts[code] = count_parameters(function)
        return counts[code]

    pumps: Any = MessagePump
    callbacks: Any = _callback
    pumps._get_dispatch_methods, callbacks._count_parameters = find, count
    yield
    pumps._get_dispatch_methods, callbacks._count_parameters = find_handlers, count_parameters


def _has_decorated(pump: type, message: type) -> bool:
    """Return whether a class of the widget has a handler by `textual.on` for a message or a class of it."""
    return any(not {*vars(each).get("_decorated_handlers", ())}.isdisjoint(message.__mro__) for each in pump.__mro__)
