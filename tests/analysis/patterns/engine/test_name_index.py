"""Selection by name: few matches are found by the order of names, many by a pass over all events."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.helpers.trace_builder import annotation, cpu, runtime, trace
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.model.event_kind import Kind


def _make_tables() -> TraceTables:
    names = ["aten::mm", *["aten::add"] * 40, "aten::mul", *["aten::sub"] * 40, "aten::mm"]
    ops = [cpu(name, 10 * index, 5, thread=1 + index % 2) for index, name in enumerate(names)]
    return TraceTables(trace(*ops, annotation("aten::mm", 2000, 5), runtime("cudaMalloc", 3000, 5, 1)))


@pytest.mark.parametrize("pattern", [r"aten::mm$", r"aten::(mm|mul)$", r"aten::add", r"aten::", r"nothing"])
@pytest.mark.parametrize("kinds", [(), (Kind.OP,), (Kind.RUNTIME,), (Kind.OP, Kind.RUNTIME)])
def test_matches_are_those_of_every_single_event(pattern: str, kinds: tuple[Kind, ...]) -> None:
    tables = _make_tables()
    found = tables.match_names(pattern, *kinds)
    wanted = kinds or (Kind.OP, Kind.ANNOTATION)
    names, kind = tables.trace.names, np.asarray(tables.trace.kind)
    expected = [
        row
        for row in range(len(tables.trace))
        if kind[row] in wanted and re.match(pattern, names[int(tables.trace.name[row])])
    ]
    assert found.row.tolist() == expected
    assert found.start.tolist() == tables.trace.start[expected].tolist()
    assert [names[number] for number in found.name.tolist()] == [names[int(tables.trace.name[row])] for row in expected]


@pytest.mark.parametrize("pattern", [r"aten::mm$", r"aten::(mm|mul)$", r"aten::", r"nothing"])
def test_marked_ops_are_those_that_match(pattern: str) -> None:
    tables = _make_tables()
    assert np.flatnonzero(tables.mark_ops(pattern)).tolist() == tables.match_names(pattern, Kind.OP).row.tolist()
