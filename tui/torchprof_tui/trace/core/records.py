"""Make records: frozen dataclasses with slots, made faster than `dataclasses` makes them.

A command imports hundreds of records. For each, `@dataclass(frozen=True, slots=True)` compiles six methods from text,
0.6 ms on Python 3.11. Here only `__init__` is compiled; the others are functions that all records share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Return a decorator that changes nothing: only type checkers read it."""
        return lambda function: function


@overload
def record(cls: type[T], /) -> type[T]: ...


@overload
def record(*, slots: bool = True, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T] | None = None, /, *, slots: bool = True, eq: bool = True) -> Any:
    """Make a class what `@dataclass(frozen=True, slots=True)` makes it; methods that it defines stay.

    `slots`, `eq`: as of `dataclass`; a class with cached properties has no slots. A record may inherit from
    records only. Raises TypeError for a field with `init=False`.
    """
    if cls is None:
        return lambda decorated: _make(decorated, slots, eq)
    return _make(cls, slots, eq)


def _make(cls: type, has_slots: bool, has_eq: bool) -> Any:
    own = set(vars(cls))
    if "__eq__" in own and vars(cls).get("__hash__") is None:
        own.discard("__hash__")
    cls.__doc__ = cls.__doc__ or cls.__name__  # without one dataclass() writes it from the signature, which takes long
    made: Any = dataclass(init=False, repr=False, eq=False, slots=has_slots)(cls)
    all_fields = fields(made)
    names = [each.name for each in all_fields if each.repr]

    def describe(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    methods: dict[str, Any] = {
        "__init__": _build_init(made, all_fields),
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__repr__": describe,
    }
    if has_eq:
        compared = _get_values([each.name for each in all_fields if each.compare])

        def is_equal(self: Any, other: Any) -> bool:
            return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

        methods |= {"__eq__": is_equal, "__hash__": lambda self: hash(compared(self))}
    if has_slots:
        methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _build_init(made: Any, all_fields: tuple[Field[Any], ...]) -> Callable[..., None]:
    """Build the only method that is compiled: it sets each field."""
    names: dict[str, Any] = {"_MISSING": MISSING, "_set": object.__setattr__}  # no fields have such names
    parameters, keywords, body = ["self"], list[str](), list[str]()
    for number, each in enumerate(all_fields):
        if not each.init:
            raise TypeError(f"{made.__name__}.{each.name}: a record sets all fields in __init__")
        parameter, value = each.name, each.name
        if each.default_factory is not MISSING:
            names[f"_make{number}"] = each.default_factory
            parameter, value = f"{each.name}=_MISSING", f"_make{number}() if {each.name} is _MISSING else {each.name}"
        elif each.default is not MISSING:
            names[f"_default{number}"] = each.default
            parameter = f"{each.name}=_default{number}"
        (keywords if each.kw_only else parameters).append(parameter)
        slot = getattr(made, each.name, None)
        if isinstance(slot, MemberDescriptorType):
            names[f"_set{number}"] = slot.__set__  # faster
            body.append(f"_set{number}(self, {value})")
        else:
            body.append(f"_set(self, {each.name!r}, {value})")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    if keywords:
        parameters += ["*", *keywords]
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), names)
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    init.__module__ = made.__module__
    init.__annotations__ = {each.name: each.type for each in all_fields} | {"return": None}
    return init


def _get_values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return what reads these attributes as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _refuse_to_set(_self: Any, name: str, _value: Any) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
