"""Declare the records of answers: frozen structs whose fields carry their meaning with `about`."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Meta

UNIT_KEYWORD = "x-unit"
"""The keyword of a field's unit in the schemas: "ns", "µs", "bytes", "share" (0 to 1) …"""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of an answer. In JSON a field with a default is left out where it has it; other fields are always there.

    What only Python has, such as arrays of events, is kept beside the fields: classes with `dict=True`, `attach`.
    """


class Answer(Record, frozen=True, tag_field="schema"):
    """The whole answer of a command. `schema`, its first field, is the tag of the class: "torchprof-tui/check/3"."""


def about(meaning: str, unit: str = "") -> Meta:
    """Describe a field for the schema and the docs; `unit` only where the field's name does not end in it."""
    return Meta(description=meaning, extra_json_schema={UNIT_KEYWORD: unit} if unit else None)


R = TypeVar("R", bound=Record)


def fill(kind: type[R], source: object, /, **own: Any) -> R:
    """Build a record from an object of the analysis, whose attributes have the same names, and from its `own` values.

    The unit at the end of a field's name may be missing there: times are in ns, so that they are divided for `_us`.
    """
    for name in kind.__struct_fields__:
        if name not in own:
            stem, _, unit = name.rpartition("_")
            if unit not in ("ns", "us", "bytes") or hasattr(source, name):
                own[name] = getattr(source, name)
            else:
                value = getattr(source, stem)
                own[name] = value / 1000 if unit == "us" and value is not None else value
    return kind(**own)


def attach(record: Record, **values: Any) -> None:
    """Keep values beside the fields of a record, which JSON does not have; its class has `dict=True`."""
    record.__dict__.update(values)


def as_fields(record: Record) -> dict[str, Any]:
    """Convert a record to the dicts, lists, texts and numbers that `json.dumps` writes."""
    fields: dict[str, Any] = msgspec.to_builtins(record)
    return fields
