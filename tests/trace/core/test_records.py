"""Test records against `@dataclass(frozen=True, slots=True)`, which they replace."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pytest

from torchprof_tui.trace.core.records import record

REFERENCE = dataclass(frozen=True, slots=True)


def make_classes(make: Callable[[type], Any]) -> tuple[Any, Any, Any]:
    @make
    class Point:
        """A point."""

        x: int
        y: int = 2
        label: str = field(default="p", compare=False)
        tags: list[str] = field(default_factory=list, repr=False, compare=False)

    @make
    class Named(Point):
        name: str = field(default="", kw_only=True)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("x")

    @make
    class Odd:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.value % 2 == other.value % 2

        def __repr__(self) -> str:
            return f"<{self.value}>"

    return Point, Named, Odd


CLASSES = list(zip(make_classes(record), make_classes(REFERENCE), strict=True))


@pytest.mark.parametrize(("made", "expected"), CLASSES, ids=["plain", "inherited", "own methods"])
def test_a_record_is_what_dataclass_makes(made: Any, expected: Any) -> None:
    assert [each.name for each in fields(made)] == [each.name for each in fields(expected)]
    assert made.__slots__ == expected.__slots__
    assert made.__match_args__ == expected.__match_args__
    parameters, wanted = (inspect.signature(each).parameters.values() for each in (made, expected))
    assert [(each.name, each.kind, each.annotation) for each in parameters] == [
        (each.name, each.kind, each.annotation) for each in wanted
    ]
    values = [(1,), (1, 2), (3,), (5,)] if made.__name__ != "Odd" else [(1,), (2,), (3,)]
    for arguments in values:
        assert repr(made(*arguments)) == repr(expected(*arguments))
        assert hash(made(*arguments)) == hash(expected(*arguments))
        for others in values:
            assert (made(*arguments) == made(*others)) == (expected(*arguments) == expected(*others))
    assert made(1) != expected(1)


def test_a_record_without_slots_keeps_cached_values() -> None:
    @record(slots=False)
    class Line:
        x: int
        y: int = 2

        @cached_property
        def length(self) -> int:
            return self.x + self.y

    line = Line(1)
    assert (line.length, line.__dict__) == (3, {"x": 1, "y": 2, "length": 3})
    assert line == Line(1)
    assert hash(line) == hash(Line(1))
    assert replace(line, x=4).length == 6
    with pytest.raises(FrozenInstanceError):
        line.y = 3  # type: ignore[misc]


def test_fields_may_have_the_names_of_builtins() -> None:
    @record(slots=False)
    class Odd:
        set: int
        MISSING: int
        make: list[int] = field(default_factory=list)

    assert (Odd(1, 2).set, Odd(1, 2).MISSING, Odd(1, 2).make) == (1, 2, [])


def test_records_without_eq_are_equal_to_themselves_alone() -> None:
    @record(eq=False)
    class Table:
        rows: list[int]

    table = Table([1])
    assert table == table
    assert table != Table([1])
    assert len({table, Table([1])}) == 2


def test_fields_cannot_be_set_or_deleted() -> None:
    point = CLASSES[0][0](1)
    for change in (lambda: setattr(point, "x", 2), lambda: setattr(point, "z", 2), lambda: delattr(point, "x")):
        with pytest.raises(FrozenInstanceError):
            change()
    assert point.x == 1


def test_replace_checks_and_defaults_are_made_anew() -> None:
    point, named, _ = (made for made, _ in CLASSES)
    assert replace(point(1, 5, tags=["a"]), x=3) == point(3, 5)
    assert point(1).tags is not point(1).tags
    assert named(1, name="n").name == "n"
    with pytest.raises(TypeError):
        named(1, 2, "label", [], "n")
    with pytest.raises(ValueError, match="x"):
        replace(named(1), x=-1)


def test_copies_and_pickles_are_equal() -> None:
    point = Pair(1, [2])
    assert copy.deepcopy(point) == point
    assert copy.deepcopy(point).second is not point.second
    assert pickle.loads(pickle.dumps(point)) == point


@record
class Pair:
    first: int
    second: list[int]


def test_a_field_that_init_does_not_set_is_refused() -> None:
    class Later:
        value: int = field(default=0, init=False)

    with pytest.raises(TypeError, match=r"Later\.value"):
        record(Later)
