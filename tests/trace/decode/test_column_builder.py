"""Columns of entries with values of unusual types: metadata, counters, args, ids, names, categories."""

from __future__ import annotations

import pytest

from tests.helpers.counter_points import list_points
from tests.helpers.decoder_input import count_problems, decode_text, entry_text, trace_text
from tests.helpers.decoder_reference import decoded_args, decoded_rows
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.model.raw_events import UNREADABLE_NUMBER


def test_metadata_and_counters() -> None:
    decoded = decode_text(
        trace_text(
            '{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python3"}}',
            '{"ph": "M", "name": "thread_name", "pid": 7, "tid": "stream 9", "args": {"name": 5}}',
            '{"ph": "M", "name": "both", "pid": 7, "args": {"a": 1, "b": 2}}',
            '{"ph": "M", "name": "none", "pid": 7}',
            entry_text(),
            '{"ph": "C", "name": "memory", "pid": 1, "ts": 5, "args": {"allocated": 12, "reserved": 1.5, "unit": "B"}}',
            '{"ph": "C", "name": "none", "pid": 1, "ts": 5}',
        )
    )
    assert decoded.events.metadata == [
        ("process_name", "7", "0", "python3"),
        ("thread_name", "7", "9", 5),
        ("both", "7", "", {"a": 1, "b": 2}),
        ("none", "7", "", None),
    ]
    assert list_points(decoded.events.counters) == [(5, "allocated", 12.0), (5, "reserved", 1.5)]


def test_one_thread_under_several_spellings_is_one_track() -> None:
    decoded = decode_text(
        trace_text(*(entry_text(pid=pid, tid=tid) for pid, tid in [(1, 7), ("1", "7"), (1.0, "stream 7")]))
    )
    assert decoded.events.tracks == [("1", "7")]


def test_args_of_odd_types() -> None:
    arg_values = [
        {"stream": 7, "bytes": "4096", "Addr": 2**64 - 1, "grid": [1, 2, 3]},
        {"stream": "7", "bytes": "many", "Addr": "0x10", "grid": [1, 2]},
        {"stream": None, "bytes": 2**70, "grid": "inf", "block": [1, 2, 2**63]},
        [1, 2],
        "text",
        None,
        {"stream": -1, "block": [4, 5, 6], "Bytes": -12},
    ]
    decoded = decode_text(trace_text(*(entry_text(k, cat="kernel", args=arg) for k, arg in enumerate(arg_values))))
    assert decoded_args(decoded) == {
        "stream": {0: 7, 1: 7, 6: -1},
        "bytes": {0: 4096, 1: UNREADABLE_NUMBER, 2: UNREADABLE_NUMBER, 6: -12},
        "address": {0: -1, 1: 16},
        "grid": {0: [1, 2, 3], 1: [UNREADABLE_NUMBER] * 3, 2: [UNREADABLE_NUMBER] * 3},
        "block": {2: [UNREADABLE_NUMBER] * 3, 6: [4, 5, 6]},
    }
    assert decoded.problems == []


def test_ids_are_text() -> None:
    id_values = [5, "5", "0x5", {"local": "0x1"}, None, 2**64 - 1]
    decoded = decode_text(
        trace_text(*(entry_text(k, ph="s", id=value) for k, value in enumerate(id_values)), entry_text(9, id=4))
    )
    rows = decoded_rows(decoded)
    assert [row[-1] for row in rows] == ["5", "5", "0x5", '{"local":"0x1"}', None, str(2**64 - 1), None]
    assert len(set(decoded.events.ids)) == len(decoded.events.ids)


def test_keys_and_names_that_are_not_text() -> None:
    decoded = decode_text(trace_text('{"ph": ["X"], "cat": {"a": 1}, "name": [1, null], "pid": [1], "tid": {}}', "{}"))
    assert [row[0] for row in decoded_rows(decoded)] == ["", ""]
    assert decoded_rows(decoded)[0][3:6] == ("[1,null]", '{"a":1}', ("[1]", "{}"))


@pytest.mark.long
def test_more_categories_than_codes() -> None:
    decoded = decode_text(trace_text(*(entry_text(k, cat=f"c{k}") for k in range(65_540))))
    names = [decoded.events.categories[k] for k in decoded.events.category]
    assert names[:65_534] == [f"c{k}" for k in range(65_534)]
    assert set(names[65_534:]) == {""}
    assert count_problems(decoded) == {problems.TOO_MANY_CATEGORIES: 6}
