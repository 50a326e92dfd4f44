"""Declare and print the JSON documents of `--json`: typed records, from which the published schemas are generated.

Each command declares a `Document` in `commands/<command>/records.py`; its fields carry their meaning with `about`. What
is printed and what `schemas/<command>.json` says come from the same declaration, so they cannot differ.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Meta

UNIT_KEYWORD = "x-unit"
"""The keyword of a field's unit in the schemas: "ns", "µs", "bytes", "share" (0 to 1) …"""

_UNIT_BY_SUFFIX = {
    "ns": "ns",
    "us": "µs",
    "bytes": "bytes",
    "share": "share",
    "gb_s": "GB/s",
    "tflops": "TFLOP/s",
    "flops": "FLOP",
    "seconds": "s",
}


class Record(msgspec.Struct, frozen=True):
    """An object of a JSON document. Fields that are UNSET are left out."""


class Document(Record, frozen=True, tag_field="schema"):
    """The whole answer of a command. `schema`, its first field, is the tag of the class: "torchprof-tui/check/1"."""


def about(meaning: str, unit: str = "") -> Meta:
    """Describe a field for the schema and the docs; `unit` only where the field's name does not end in it."""
    return Meta(description=meaning, extra_json_schema={UNIT_KEYWORD: unit} if unit else None)


def find_unit(name: str, schema: dict[str, Any]) -> str:
    """Find the unit of a field: what its schema declares, else the ending of its name; "" for none."""
    declared = schema.get(UNIT_KEYWORD)
    if declared is not None:
        return str(declared)
    return next((unit for end, unit in _UNIT_BY_SUFFIX.items() if name == end or name.endswith(f"_{end}")), "")


def as_fields(document: Record) -> dict[str, Any]:
    """Convert a record to the dicts, lists, texts and numbers that `json.dumps` writes."""
    fields: dict[str, Any] = msgspec.to_builtins(document)
    return fields


def print_document(document: Document) -> None:
    """Print a document on one line of stdout."""
    # Not msgspec's encoder: it refuses lone surrogates, which names in a trace may contain.
    print(json.dumps(as_fields(document)))
