"""Write records of one kind as a table: each name of a field once, not once for each record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def pack_records(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return {"columns": names, "rows": lists of values}. A field that no record has a value for is left out."""
    names = dict.fromkeys(name for record in records for name in record)
    columns = [name for name in names if any(record.get(name) is not None for record in records)]
    return {"columns": columns, "rows": [[record.get(name) for name in columns] for record in records]}


def unpack_records(packed: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of such a table."""
    return [dict(zip(packed["columns"], row, strict=True)) for row in packed["rows"]]


def split_common_frames(records: Sequence[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Split the frames that all stacks begin with off their `stack`, "outermost;…;innermost"; return both."""
    stacks = [record["stack"].split(";") for record in records]
    shortest = min(map(len, stacks), default=1) - 1
    count = next((k for k in range(shortest) if len({stack[k] for stack in stacks}) > 1), shortest)
    outer = ";".join(stacks[0][:count]) if stacks else ""
    return outer, [{**record, "stack": ";".join(stack[count:])} for record, stack in zip(records, stacks, strict=True)]
