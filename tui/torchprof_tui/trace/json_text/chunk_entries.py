"""Parse a few of the many entries of a stored chunk, where its layout shows where each one begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from torchprof_tui.trace.core.bounded_json import is_nested_too_deeply, limit_nesting

_SEPARATOR = b"\n  },\n  {"
"""Between two entries in Kineto's layout. Inside a JSON string a line break is written as an escape."""

_MAX_SHARE = 4
"""Above one entry in so many, parsing the whole chunk costs about as much."""


def parse_chosen_entries(text: bytes, count: int, chosen: Sequence[int]) -> list[dict[str, Any]] | None:
    """Parse the entries of a chunk of `count` entries at the indices `chosen`.

    None where the chunk has another layout, or where too many are chosen: then parse the whole chunk.
    """
    if len(chosen) * _MAX_SHARE > count:
        return None
    pieces = text.split(_SEPARATOR)
    if len(pieces) != count:
        return None
    entries = []
    for index in chosen:
        begin, end = b"" if index == 0 else b"{", b"" if index == count - 1 else b"}"
        try:
            entry = orjson.loads(begin + pieces[index] + end)
        except orjson.JSONDecodeError:
            return None
        if type(entry) is not dict:
            return None
        entries.append(limit_nesting(entry) if is_nested_too_deeply([entry]) else entry)
    return entries
