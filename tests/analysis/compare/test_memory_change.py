"""Test what is new at the peak: literal traces, a trace with itself, and two recordings of one program."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.memory_fixtures import open_recording
from tests.helpers.trace_builder import cpu, memory, trace
from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.memory_change import PeakChange, PeakPart, compare_peaks
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.memory import memory_history
from torchprof_tui.analysis.memory.device_memory import find_enclosing_events
from torchprof_tui.analysis.memory.memory_history import build_memory_history
from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.model.trace import MemoryEvents, Trace


def build(*sizes: tuple[str, int], device: int = 0) -> Trace:
    """A trace in which ops allocate one after the other."""
    entries: list[Any] = []
    total = 0
    for number, (op, size) in enumerate(sizes):
        total += size
        at = 100 * number
        entries += [cpu(op, at, 50), memory(at + 10, size, total, device=device, address=4096 + number)]
    return trace(*entries)


def check_sums(change: PeakChange) -> None:
    assert sum(part.a for part in change.parts) == change.a
    assert sum(part.b for part in change.parts) == change.b
    assert sum(part.delta for part in change.parts) == change.delta


def test_what_is_new_gone_and_larger() -> None:
    a = build(("aten::mm", 1000), ("aten::add", 300), ("aten::mul", 70))
    b = build(("aten::mm", 1500), ("aten::add", 300), ("aten::cat", 900))
    change = compare_peaks(a, b)
    assert change is not None
    assert (change.device, change.a, change.b) == ("GPU 0", 1370, 2700)
    assert [(part.op, part.a, part.b) for part in change.parts] == [
        ("aten::cat", 0, 900),
        ("aten::mm", 1000, 1500),
        ("aten::mul", 70, 0),
        ("aten::add", 300, 300),
    ]
    check_sums(change)


@pytest.mark.long
def test_a_trace_against_itself_has_no_difference() -> None:
    for a in (open_recording("start"), build(("aten::mm", 1000))):
        change = compare_peaks(a, a)
        assert change is not None
        assert change.delta == 0
        assert not [part for part in change.parts if part.delta]
        check_sums(change)


def test_parts_of_recordings_sum_to_their_peaks() -> None:
    """One begins before the model is built; in the other all of the model is from before the recording."""
    a, b = open_recording("start"), open_recording("steady")
    change, back = compare_peaks(a, b), compare_peaks(b, a)
    assert change is not None
    assert back is not None
    check_sums(change)
    assert change.delta == -back.delta
    assert any(part.op == "before the recording" and part.delta > 0 for part in change.parts)


def test_another_gpu_is_compared_and_the_cpu_is_not() -> None:
    gpu, other, host = (build(("aten::mm", 1000), device=device) for device in (0, 3, -1))
    change = compare_peaks(gpu, other)
    assert change is not None
    assert change.parts == (PeakPart("unknown", "aten::mm", "", 1000, 1000),) or change.delta == 0
    assert compare_peaks(gpu, host) is None
    assert compare_peaks(gpu, trace(cpu("aten::mm", 0, 10))) is None


def test_the_same_devices_are_compared_in_either_order() -> None:
    """A's highest peak is that of GPU 0 and B's that of GPU 1; then one side has no GPU."""
    a, b = (
        trace(
            cpu("aten::mm", 0, 50),
            memory(10, large, large, device=first, address=1),
            memory(20, 10, 10, device=1 - first, address=2),
            memory(30, 7, 7, address=3),
        )
        for first, large in ((0, 1000), (1, 4000))
    )
    change, back = compare_peaks(a, b), compare_peaks(b, a)
    assert change is not None
    assert back is not None
    assert (change.device, change.a, change.b) == ("GPU 1", 10, 4000)
    assert (back.device, back.a, back.b) == ("GPU 1", 4000, 10)
    host = trace(cpu("aten::mm", 0, 50), memory(10, 5, 5))
    change, back = compare_peaks(a, host), compare_peaks(host, a)
    assert change is not None
    assert back is not None
    assert (change.device, change.a, change.b) == (back.device, back.b, back.a) == ("CPU", 7, 5)


OPS = ("aten::mm", "aten::add", "aten::cat")
steps = st.lists(st.tuples(st.sampled_from(OPS), st.integers(-1, 1), st.integers(1, 8), st.integers(1, 1 << 40)))


def simulate(found: list[tuple[str, int, int, int]]) -> Trace:
    """A trace in which ops allocate, or free what is at the address, on up to two GPUs and the CPU."""
    live: dict[int, Counter[int]] = {device: Counter() for device in (-1, 0, 1)}
    entries: list[Any] = [cpu("program", 0, 100 * len(found) + 100)]
    for number, (op, device, address, size) in enumerate(found):
        change = -live[device].pop(address) if address in live[device] else size
        if change > 0:
            live[device][address] = size
        total = sum(live[device].values())
        at = 100 * number + 10
        entries += [cpu(op, at, 50), memory(at + 10, change, total, device=device, address=address)]
    return trace(*entries)


def list_new(change: PeakChange) -> Counter[tuple[str, str, str, int]]:
    return Counter((part.category, part.op, part.line, part.delta) for part in change.parts if part.delta > 0)


def list_gone(change: PeakChange) -> Counter[tuple[str, str, str, int]]:
    return Counter((part.category, part.op, part.line, -part.delta) for part in change.parts if part.delta < 0)


@given(steps, steps)
def test_what_is_new_one_way_is_gone_the_other_way(
    steps_a: list[tuple[str, int, int, int]], steps_b: list[tuple[str, int, int, int]]
) -> None:
    a, again, b = simulate(steps_a), simulate(steps_a), simulate(steps_b)
    same = compare_peaks(a, again)
    assert (same is None) == (not steps_a)
    if same is not None:
        assert not list_new(same)
        assert not list_gone(same)
        check_sums(same)
    change, back = compare_peaks(a, b), compare_peaks(b, a)
    assert (change is None) == (back is None)
    if change is not None and back is not None:
        assert list_new(change) == list_gone(back)
        assert list_gone(change) == list_new(back)
        assert (change.a, change.b) == (back.b, back.a)
        check_sums(change)


@pytest.mark.parametrize("names", [("start", "steady"), ("steady", "start")])
def test_new_and_gone_of_recordings_are_each_other(names: tuple[str, str]) -> None:
    a, b = map(open_recording, names)
    change, back = compare_peaks(a, b), compare_peaks(b, a)
    assert change is not None
    assert back is not None
    assert list_new(change) == list_gone(back)
    assert list_gone(change) == list_new(back)


def test_the_history_is_found_once_for_each_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the comparison, the patterns of both sides, and the memory screen."""
    found: list[Trace] = []

    def find_and_note(trace_: Trace, memory_: MemoryEvents) -> I32:
        found.append(trace_)
        return find_enclosing_events(trace_, memory_)

    monkeypatch.setattr(memory_history, "find_enclosing_events", find_and_note)
    a, b = build(("aten::mm", 1000)), build(("aten::mm", 1500))
    comparison = Comparison(SideAnalysis(a, "a"), SideAnalysis(b, "b"))
    assert comparison.peak_change is not None
    for side in (comparison.a, comparison.b):
        side.checker.check(side.scope)
        assert build_memory_history(side.trace) is not None
    assert found == [a, b]
