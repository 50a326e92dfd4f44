"""The lookups that the tests of screens share find what textual finds."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

import pytest
from textual import _callback, events, on
from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump
from textual.widget import Widget


class Asked(Message):
    pass


class AskedAgain(Asked):
    pass


class Base(Widget):
    def on_asked(self) -> None: ...

    def _on_told(self) -> None: ...

    def on_told(self) -> None: ...


class Plain(Base):
    def on_asked(self) -> None: ...


class Decorated(Base):
    @on(Asked)
    def answer(self) -> None: ...


class Named(Base):
    @on(events.Key)
    def on_asked(self) -> None: ...


def find(widget: Widget, name: str, message: Message, stops_after: int = 9) -> tuple[list[Any], list[Any]]:
    """Find handlers by the shared lookup and by textual's.

    `stops_after`: the number of handlers after which the message's default action is prevented.
    """
    lookup: Any = MessagePump._get_dispatch_methods
    both: list[list[Any]] = []
    for each in (lookup, lookup.__wrapped__):
        message._no_default_action = False
        both.append([])
        for handler in each(widget, name, message):
            both[-1].append(handler)
            message._no_default_action = len(both[-1]) >= stops_after
    return both[0], both[1]


@pytest.mark.parametrize("kind", [Plain, Decorated, Named])
def test_handlers(kind: type[Widget], monkeypatch: pytest.MonkeyPatch) -> None:
    widget = kind()
    for _ in range(2):  # looked up, and remembered
        for name, message in (
            ("on_asked", Asked()),
            ("on_asked", AskedAgain()),
            ("on_told", Asked()),
            ("on_load", events.Load()),
        ):
            for count in (1, 2, 9):
                ours, theirs = find(widget, name, message, count)
                assert ours == theirs
    monkeypatch.setattr(App, "on_load", lambda self: None, raising=False)
    monkeypatch.setattr(kind, "on_load", lambda self: None, raising=False)
    ours, theirs = find(widget, "on_load", events.Load())
    assert ours == theirs != []


def test_parameters() -> None:
    def decorate(function: Any) -> Any:
        @wraps(function)
        def inner(*values: int) -> Any:
            return function(*values)

        return inner

    def make(number: int) -> Any:
        return lambda one, two: number + one + two

    count: Any = _callback._count_parameters
    for function in (make(1), make(2), partial(make(3), 1), decorate(find), decorate(make), print, Plain().on_asked):
        assert count(function) == count.__wrapped__(function)
