"""Test the patterns of the GPU lane on traces made for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import (
    CPU_ONLY,
    DTOD,
    GEMM,
    REDUCE,
    check_pattern,
    healthy,
    kernel_runs,
    op_with_work,
    waiting,
)
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memcpy, memset, overhead, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import gpu_lane
from torchprof_tui.trace.loading.load_in_process import load_trace


def addmm_with_copy(op_of_copy: str = "aten::addmm", between: Entry | None = None) -> list[Entry]:
    """An addmm that copies before its GEMM; `op_of_copy` launches the copy, `between` is put between copy and GEMM."""
    entries = [
        cpu("aten::addmm", 0, 60),
        cpu(op_of_copy, 1, 20) if op_of_copy != "aten::addmm" else cpu("aten::empty", 1, 2),
        runtime("cudaMemcpyAsync", 5, 10, 1),
        runtime("cudaLaunchKernel", 30, 10, 2),
        memcpy(DTOD, 50, 10, 1),
        kernel(GEMM, 70, 30, 2),
    ]
    return [*entries, *([between] if between else [])]


def steps_with_gaps(*gaps: float) -> list[Entry]:
    """Steps that launch two kernels each, with these gaps between them."""
    entries = []
    for number, gap in enumerate(gaps):
        start = 1000 * number
        entries.append(step(number, start, 990))
        entries += op_with_work("aten::add", start + 1, start + 30, 100)
        entries += op_with_work("aten::mean", start + 12, start + 130 + gap, 100, REDUCE)
    return entries


CASES: Cases = {
    "buffer-request": {
        FIRED: healthy(more=[overhead("Activity Buffer Request", 10, 50)]),
        ABSENT: healthy(more=[overhead("Lazy Function Loading", 10, 50)]),
        CANNOT_TELL: CPU_ONLY,
    },
    "one-off-gap": {
        FIRED: steps_with_gaps(2, 90, 2, 3),
        ABSENT: steps_with_gaps(2, 90, 88, 3),
        CANNOT_TELL: steps_with_gaps(2, 90),
    },
    "kernel-variance": {
        FIRED: kernel_runs(100, 130, 101, 99),
        ABSENT: kernel_runs(100, 101, 99, 100),
        CANNOT_TELL: kernel_runs(100, 130),
    },
    "gemm-kernel": {FIRED: healthy(), ABSENT: waiting(), CANNOT_TELL: CPU_ONLY},
    "copy-before-gemm": {
        FIRED: addmm_with_copy(between=memset("Memset (Device)", 62, 2, 99)),
        ABSENT: addmm_with_copy("aten::clone"),
        CANNOT_TELL: [memcpy(DTOD, 0, 10, 1), kernel(GEMM, 20, 30, 2)],
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(gpu_lane, CASES)


def test_the_same_kernel_on_other_sizes_does_not_vary() -> None:
    """Each step runs one GEMM on the same two sizes: its runs are compared by their position in the step."""
    entries = []
    for number in range(4):
        start = 1000 * number
        entries.append(step(number, start, 990))
        entries += op_with_work("aten::mm", start + 5, start + 20, 100, GEMM)
        entries += op_with_work("aten::mm", start + 15, start + 130, 300, GEMM)
    assert check_pattern(trace(*entries), "kernel-variance").state is ABSENT
    assert check_pattern(trace(*entries[: len(entries) // 2]), "kernel-variance").state is CANNOT_TELL


def test_runs_that_are_all_alike_need_no_positions() -> None:
    """With two steps, positions cannot be compared; runs that do not vary at all need no comparison."""
    entries = []
    for number in range(2):
        start = 1000 * number
        entries.append(step(number, start, 990))
        for index, duration in enumerate((100, 101, 99)):
            entries += op_with_work("aten::mm", start + 5 + 10 * index, start + 50 + 200 * index, duration, GEMM)
    assert check_pattern(trace(*entries), "kernel-variance").state is ABSENT
    for number in range(2):  # another kernel, whose runs do differ
        for index, duration in enumerate((20, 30)):
            start = 1000 * number + 700 + 100 * index
            entries += op_with_work("aten::add", start, start + 10, duration)
    answer = check_pattern(trace(*entries), "kernel-variance").answer
    assert answer.state is CANNOT_TELL
    assert "of 2 kernels 1 vary" in answer.reason


def test_one_off_gaps_on_two_streams_in_varying_order() -> None:
    """Each step's copy begins before, between or after its first two kernels; time that any stream fills is no gap."""

    def steps_with_delay(delay: float) -> list[Entry]:
        entries = []
        for number, copy_at in enumerate((30, 90, 140)):
            start = 1000 * number
            entries.append(step(number, start, 990))
            entries += op_with_work("aten::mm", start + 1, start + 40, 60, GEMM)
            entries += op_with_work(
                "aten::to", start + 10, start + copy_at, 190, "Memcpy HtoD (Pinned -> Device)", stream=9
            )
            entries += op_with_work("aten::add", start + 20, start + 104 + (delay if number == 0 else 0), 60)
            entries += op_with_work("aten::mean", start + 29, start + 600, 60, REDUCE)
        return entries

    # The add of step 0 starts at 164 µs, while the step's copy runs until 220 µs.
    covered = check_pattern(trace(*steps_with_delay(60)), "one-off-gap")
    assert covered.state is ABSENT, covered.answer
    finding = check_pattern(trace(*steps_with_delay(260)), "one-off-gap")  # at 364 µs, 144 µs after all earlier work
    assert "1 gap, the longest in step #0: 144.0 µs before" in finding.answer.seen


def test_a_range_inside_a_one_off_gap_has_evidence_too() -> None:
    """The range overlaps no piece of work around the gap, so the step is the evidence."""
    gap_trace = trace(*steps_with_gaps(2, 400, 2, 3))
    finding = check_pattern(gap_trace, "one-off-gap", range_scope(1_200_000, 1_201_000))
    assert finding.has_fired
    assert [gap_trace.names[gap_trace.name[row]] for row in finding.answer.events] == ["ProfilerStep#1"]


def serve_steps(durations: list[tuple[str, int]], dims: list[list[int]] | None = None) -> list[Entry]:
    """List one step per kernel (kind, duration in µs), with the input shapes of its op."""
    entries: list[Entry] = []
    for number, (kind, duration) in enumerate(durations):
        start = 1000 * number
        step_name = f"step[{kind} bs=8 toks=1024]" if kind == "PREFILL" else f"step[{kind} bs=8]"
        op, *work = op_with_work("aten::cat", start + 5, start + 20, duration, GEMM)
        if dims is not None:
            op["args"] |= {"Input Dims": [dims[number]]}
        entries += [step(number, start, 990), annotation(step_name if kind else "forward", start, 980), op, *work]
    return entries


def test_prefill_and_decode_explain_a_kernel() -> None:
    """A prompt of 1,024 tokens and single tokens are other work: no clock changes that."""
    mixed = [("PREFILL", 500), *[("DECODE", 100)] * 3, ("PREFILL", 500), *[("DECODE", 100)] * 3, ("PREFILL", 500)]
    answer = check_pattern(trace(*serve_steps(mixed)), "kernel-variance").answer
    assert answer.state is ABSENT
    assert "1 vary with their inputs alone" in answer.seen
    assert "100.0 µs, 500.0 µs for 2 inputs" in answer.seen
    varying = [("PREFILL", 500), *[("DECODE", each) for each in (100, 150, 90, 160)], ("PREFILL", 500)]
    assert check_pattern(trace(*serve_steps(varying)), "kernel-variance").state is FIRED


def test_input_shapes_explain_a_kernel(tmp_path: Path) -> None:
    large, small = [4096, 64], [64, 64]
    times = [("", each) for each in (500, 500, 500, 100, 100, 100)]

    def check_file(shapes: list[list[int]] | None) -> State:
        path = tmp_path / "shapes.json"
        path.write_text(json.dumps({"traceEvents": serve_steps(times, shapes)}))
        return check_pattern(load_trace(str(path), cache=False), "kernel-variance").state

    assert check_file([large] * 3 + [small] * 3) is ABSENT
    assert check_file([small] * 6) is FIRED
    assert check_file(None) is FIRED


def test_too_few_steps_ask_for_more() -> None:
    answer = check_pattern(trace(*steps_with_gaps(2, 90)), "one-off-gap").answer
    assert answer.state is CANNOT_TELL
    assert "record more active steps, such as run --wait 0 --warmup 0 --active 20" in answer.reason
