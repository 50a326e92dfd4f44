"""A first step names the call that made it longer."""

from __future__ import annotations

from tests.helpers.paths import SAMPLES
from tests.helpers.pattern_traces import check_pattern
from tests.helpers.trace_builder import Entry, cpu, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.cpu_lane import explain_growth
from torchprof_tui.trace.loading.load_in_process import load_trace


def steps_of(first_launch: float, first_op: float) -> list[Entry]:
    """Five steps of 100 µs or more: an op of 40 µs and a launch of a graph of 20 µs, other times in the first."""
    entries: list[Entry] = []
    at = 0.0
    for number in range(5):
        launch, op = (first_launch, first_op) if not number else (20.0, 40.0)
        entries += [
            step(number, at, launch + op + 40),
            cpu("aten::mm", at + 5, op),
            runtime("cudaGraphLaunch", at + op + 10, launch, 10 + number),
        ]
        at += launch + op + 50
    return entries


def test_the_call_that_grew_is_named() -> None:
    finding = check_pattern(trace(*steps_of(220, 50)), "first-step-wide")
    assert finding.answer.state is State.FIRED
    assert finding.answer.seen.endswith("; 200.0 µs more in cudaGraphLaunch")
    assert finding.answer.remedy is not None
    assert "first launch of a CUDA graph" in finding.answer.remedy.action


def test_another_call_keeps_the_general_remedy() -> None:
    finding = check_pattern(trace(*steps_of(30, 340)), "first-step-wide")
    assert finding.answer.seen.endswith("; 300.0 µs more in aten::mm")
    assert finding.answer.remedy is None


def test_nothing_is_named_where_several_grew_alike_or_more_than_the_step() -> None:
    tables = TraceTables(trace(*steps_of(120, 140)))
    assert explain_growth(tables, tables.steps, 250) == ("", None)
    assert explain_growth(tables, tables.steps, 50) == ("", None)


def test_recorded_decode_names_the_first_launch_of_its_graph() -> None:
    tables = TraceTables(load_trace(str(SAMPLES / "generate_graph.pt.trace.json.gz"), cache=False))
    finding = check_pattern(tables.trace, "first-step-wide")
    assert "cudaGraphLaunch" in finding.answer.seen
