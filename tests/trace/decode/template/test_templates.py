"""What parsing a template yields, and which templates are left to the general decoder."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from torchprof_tui.trace.decode.interning import GROUP_NONE, GROUP_OP, GROUP_OTHER
from torchprof_tui.trace.decode.template import layouts
from torchprof_tui.trace.decode.template.layouts import RUN_MARK, NumberPosition, parse_template


def mask_runs(text: str) -> bytes:
    """The template of an entry, without its first brace, and with a comma after it."""
    return re.sub(rb"\d+", RUN_MARK, text.encode()).removeprefix(b"{") + b","


def entry(**keys: Any) -> str:
    return json.dumps({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, **keys})


def test_positions_of_numbers() -> None:
    args = {"stream": 7, "correlation": -5, "grid": [1, 2, 3], "note": "9 of 10", "Python parent id": None}
    template = parse_template(mask_runs(entry(name="gemm_128x64", args=args)))
    assert template is not None
    # 128, 64 | pid, tid | ts, its fraction | dur | stream, correlation, grid
    assert template.head_runs == (0, 1, 2, 3)
    assert template.group == GROUP_OTHER
    assert template.numbers == {
        "ts": NumberPosition(4, 5, negative=False),
        "dur": NumberPosition(6, -1, negative=False),
        "stream": NumberPosition(7, -1, negative=False),
        "correlation": NumberPosition(8, -1, negative=True),
        "grid 0": NumberPosition(9, -1, negative=False),
        "grid 1": NumberPosition(10, -1, negative=False),
        "grid 2": NumberPosition(11, -1, negative=False),
    }
    assert template.integer_runs.tolist() == [False] * 2 + [True] * 3 + [False] + [True] * 6 + [False] * 2


def test_flows_have_ids_and_no_args() -> None:
    template = parse_template(mask_runs(entry(ph="s", cat="ac2g", id=3, args={"stream": 4})))
    assert template is not None
    assert (template.group, template.numbers["id"].run) == (GROUP_NONE, 6)
    assert "stream" not in template.numbers


def test_only_the_args_of_operators_are_read_from_operators() -> None:
    template = parse_template(mask_runs(entry(cat="cpu_op", args={"External id": 4, "stream": 3, "correlation": 5})))
    assert template is not None
    assert (template.group, set(template.numbers)) == (GROUP_OP, {"ts", "dur", "external_id"})


@pytest.mark.parametrize(
    "text",
    [
        entry(ph="M"),
        entry(ph="C", args={"x": 1, "y": 2}),
        entry(ph="C", args={"x": "1"}),
        entry(ph="C", args={"x1": 1}),
        entry(ph="C", args={}),
        entry(ts="1.5"),
        entry(dur=None),
        entry(pid=1.5),
        entry(name=None),
        entry(name="caf\u00e9 1"),  # written as an escape that contains digits
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
def test_templates_that_are_not_plain_are_not_supported(text: str) -> None:
    assert parse_template(mask_runs(entry())) is not None
    assert parse_template(mask_runs(text)) is None


def test_a_template_has_a_time_and_a_limited_number_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "_MAX_RUNS", 4)
    for count in (1, 2, 4, 5):
        text = f'{{"ph": "i", "name": "x", "ts": -5, "args": {{"l": {[0] * (count - 1)}}}}}'
        template = parse_template(mask_runs(text))
        assert (template is not None) is (count <= 4)
        assert template is None or template.numbers == {"ts": NumberPosition(0, -1, negative=True)}


def test_the_comma_after_an_entry_is_required() -> None:
    assert parse_template(mask_runs(entry())[:-1]) is None
