"""What is learnt of a skeleton, and which skeletons are left to the general reader."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from torchprof_tui.trace.decode.interning import GROUP_NONE, GROUP_OP, GROUP_OTHER
from torchprof_tui.trace.decode.template.templates import RUN_MARK, NumberPosition, parse_template


def skeleton(text: str) -> bytes:
    """Of an entry, without the brace that it begins with, and with a comma behind it."""
    return re.sub(rb"\d+", RUN_MARK, text.encode()).removeprefix(b"{") + b","


def entry(**keys: Any) -> str:
    return json.dumps({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, **keys})


def test_a_skeleton_says_where_the_numbers_stand() -> None:
    args = {"stream": 7, "correlation": -5, "grid": [1, 2, 3], "note": "9 of 10", "Python parent id": None}
    pattern = parse_template(skeleton(entry(name="gemm_128x64", args=args)))
    assert pattern is not None
    # 128, 64 | pid, tid | ts, its fraction | dur | stream, correlation, grid
    assert pattern.head_runs == (0, 1, 2, 3)
    assert pattern.group == GROUP_OTHER
    assert pattern.numbers == {
        "ts": NumberPosition(4, 5, negative=False),
        "dur": NumberPosition(6, -1, negative=False),
        "stream": NumberPosition(7, -1, negative=False),
        "correlation": NumberPosition(8, -1, negative=True),
        "grid 0": NumberPosition(9, -1, negative=False),
        "grid 1": NumberPosition(10, -1, negative=False),
        "grid 2": NumberPosition(11, -1, negative=False),
    }
    assert pattern.integer_runs.tolist() == [False] * 2 + [True] * 3 + [False] + [True] * 6 + [False] * 2


def test_flows_have_ids_and_no_args() -> None:
    pattern = parse_template(skeleton(entry(ph="s", cat="ac2g", id=3, args={"stream": 4})))
    assert pattern is not None
    assert (pattern.group, pattern.numbers["id"].run) == (GROUP_NONE, 6)
    assert "stream" not in pattern.numbers


def test_only_an_ops_own_args_are_looked_for() -> None:
    pattern = parse_template(skeleton(entry(cat="cpu_op", args={"External id": 4, "stream": 3, "correlation": 5})))
    assert pattern is not None
    assert (pattern.group, set(pattern.numbers)) == (GROUP_OP, {"ts", "dur", "external_id"})


@pytest.mark.parametrize(
    "text",
    [
        entry(ph="M"),
        entry(ph="C", args={"x": 1}),
        entry(ts="1.5"),
        entry(dur=None),
        entry(pid=1.5),
        entry(name=None),
        entry(name="caf\u00e9 1"),  # written as an escape, which digits are part of
        entry(ph="s", id="0x1f"),
        entry(ph="s", id2={"local": 1}),
        entry(args={"stream": "7"}),
        entry(args={"grid": [1, 2]}),
        entry(k9=1),
        entry(args={"ts": 5}),
        entry(args={"bytes": True}),
        entry(args={"flops": 1e300}),
        entry(args={"x": float("nan")}),
        entry()[:-1],
        entry() + "1",
        '{"ph": "X", "name": "no number"}',
        '{"ph": "X", "name": "bare " quote", "pid": 1, "ts": 1, "dur": 1}',
        '{"ph": "X", "name": "C:\\_", "pid": 1, "ts": 1, "dur": 1}',
    ],
)
def test_what_is_not_plain_is_not_understood(text: str) -> None:
    assert parse_template(skeleton(entry())) is not None
    assert parse_template(skeleton(text)) is None


def test_without_a_comma_behind_it_there_is_no_entry() -> None:
    assert parse_template(skeleton(entry())[:-1]) is None
