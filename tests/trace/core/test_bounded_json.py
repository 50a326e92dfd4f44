"""Values nested too deeply are cut where they are read, so that nothing later recurses too deeply."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from tests.helpers.decoder_input import count_problems, decode_text, entry_text, trace_text
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core.bounded_json import (
    DEEPER_TEXT,
    MAX_LEVELS,
    dump_bounded,
    is_nested_too_deeply,
    limit_nesting,
)
from torchprof_tui.trace.json_text.salvage import parse_chunk

DEEPEST = 1000
"""Levels that the parser still reads inside an entry."""


def nested(levels: int, text: str = "1") -> str:
    return "[" * levels + text + "]" * levels


def count_levels(value: Any) -> int:
    levels = 0
    while isinstance(value, (list, dict)):
        levels += 1
        value = next(iter(value.values() if isinstance(value, dict) else value), None)
    return levels


def test_only_deep_values_are_changed() -> None:
    shallow = {"a": [1, {"b": [None, "c"]}], "d": {}}
    assert limit_nesting(shallow) == shallow
    assert not is_nested_too_deeply(shallow)
    exact = orjson.loads(nested(MAX_LEVELS))
    assert limit_nesting(exact) == exact
    deep = orjson.loads(nested(DEEPEST))
    assert is_nested_too_deeply(deep)
    limited = limit_nesting(deep)
    assert count_levels(limited) == MAX_LEVELS
    assert json.dumps(limited, ensure_ascii=False) == nested(MAX_LEVELS, f'"{DEEPER_TEXT}"')
    assert dump_bounded(deep).decode() == nested(MAX_LEVELS, f'"{DEEPER_TEXT}"')


def test_wide_values_keep_all_that_is_not_deep() -> None:
    value = {"deep": orjson.loads(nested(DEEPEST)), "wide": list(range(1000)), "text": "x" * 1000}
    limited = limit_nesting(value)
    assert (limited["wide"], limited["text"]) == (value["wide"], value["text"])


@pytest.mark.parametrize("key", ["name", "cat", "pid", "tid", "id", "ts", "dur", "ph", "args"])
def test_every_key_of_an_entry_may_be_nested(key: str) -> None:
    entries = [entry_text(k, **{"cat": "ac2g", "id": 5, key: "DEEP"}) for k in range(2)]
    document = trace_text(*(entry.replace('"DEEP"', nested(DEEPEST)) for entry in entries), entry_text(2))
    made = build_trace(decode_text(document), "read")
    assert made.counts.events == 3
    assert all(len(name) < 1000 for name in made.names)


def test_args_are_read_bounded() -> None:
    text = entry_text(0, args={"deep": "DEEP", "flat": 1}).replace('"DEEP"', nested(DEEPEST))
    (entry,) = parse_chunk(text.encode())
    assert entry["args"]["flat"] == 1
    assert json.dumps(entry).count("[") < MAX_LEVELS


def test_top_level_values_are_stored_bounded() -> None:
    decoded = decode_text(trace_text(entry_text(), before=f'"deep": {nested(DEEPEST)},'))
    assert count_levels(decoded.header["deep"]) == MAX_LEVELS
    assert count_problems(decoded) == {"nested too deeply": 1}


def test_null_entries_are_quoted_bounded() -> None:
    decoded = decode_text(trace_text(entry_text(), nested(DEEPEST)))
    assert count_problems(decoded) == {"not an object": 1}
