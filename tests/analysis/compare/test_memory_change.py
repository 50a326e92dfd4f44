"""Test what is new at the peak: literal traces, a trace with itself, and two recordings of one program."""

from __future__ import annotations

from typing import Any

from tests.helpers.memory_fixtures import open_recording
from tests.helpers.trace_builder import cpu, memory, trace
from torchprof_tui.analysis.compare.memory_change import PeakChange, PeakPart, compare_peaks
from torchprof_tui.trace.model.trace import Trace


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
