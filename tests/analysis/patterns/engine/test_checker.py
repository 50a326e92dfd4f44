"""Test what holds for all patterns: nothing fires on a healthy program, artefacts cost nothing, scopes restrict."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_traces import DTOD, GEMM, check_pattern, healthy, op_with_work
from tests.helpers.trace_builder import cpu, kernel, overhead, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import Severity


def test_nothing_is_wrong_with_a_healthy_program() -> None:
    findings = Checker(trace(*healthy())).check()
    descriptive = {"compute-bound", "fixed-launch", "gemm-kernel", "canonical-chain"}
    assert {finding.id for finding in findings if finding.has_fired} == descriptive
    assert all(finding.pattern.severity is Severity.NOTICE for finding in findings if finding.has_fired)
    assert not any(finding.answer.at_stake for finding in findings)


def test_artefacts_have_no_time_at_stake() -> None:
    """A step that is long only because the profiler requested buffers is no cold start; its gap is no idle time."""
    entries = []
    for number, step_start in enumerate((0, 1300, 1600)):
        duration = 1290 if number == 0 else 290
        entries += [step(number, step_start, duration)]
        delay = 1000 if number == 0 else 0
        for index in range(3):
            start = step_start + 5 + 90 * index + (delay if index else 0)
            entries += op_with_work("aten::mm", start, start + 10, 85, GEMM)
    without_overhead = trace(*entries)
    with_overhead = trace(*entries, overhead("Activity Buffer Request", 100, 1000))
    assert check_pattern(without_overhead, "first-step-wide").has_fired
    assert not check_pattern(with_overhead, "first-step-wide").has_fired
    assert Checker(without_overhead).decide_verdict().busy == pytest.approx(0.42, abs=0.03)
    assert Checker(with_overhead).decide_verdict().busy > 0.85
    time_at_stake = {
        finding.id: finding.answer.at_stake
        for finding in Checker(with_overhead).check()
        if finding.has_fired and finding.pattern.severity is Severity.ARTEFACT
    }
    assert "buffer-request" in time_at_stake
    assert not any(time_at_stake.values())


def test_streams_that_overlap_are_not_idle_twice() -> None:
    entries = [
        step(1, 0, 1000),
        *op_with_work("aten::mm", 1, 20, 600, GEMM, stream=7),
        *op_with_work("aten::to", 10, 500, 480, "Memcpy HtoD (Pinned -> Device)", stream=9),
    ]
    checker = Checker(trace(*entries))
    assert checker.decide_verdict().busy == pytest.approx(0.96)
    assert sum(checker.gap_finder.clip(0, 1_000_000).duration) == 40_000


def test_a_pattern_sees_only_its_scope() -> None:
    copy_trace = trace(*healthy(), *op_with_work("aten::masked_fill", 2500, 2600, 20, DTOD, stream=9))
    assert check_pattern(copy_trace, "hidden-copy", range_scope(2_000_000, 3_000_000)).has_fired
    assert not check_pattern(copy_trace, "hidden-copy", range_scope(0, 2_000_000)).has_fired


def test_older_and_other_vocabularies() -> None:
    """Names of ROCm: calls, kernels and occupancy queries."""
    entries = [
        step(1, 0, 500),
        cpu("aten::mm", 0, 60),
        runtime("hipOccupancyMaxActiveBlocksPerMultiprocessor", 5, 1, 1),
        runtime("hipExtModuleLaunchKernel", 20, 10, 2),
        kernel("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0", 80, 90, 2),
        cpu("aten::item", 200, 100),
        runtime("hipStreamSynchronize", 210, 60, 3),
        *op_with_work("aten::add", 350, 360, 40),
    ]
    findings = {finding.id: finding for finding in Checker(trace(*entries)).check()}
    assert findings["adaptive-launch"].has_fired
    assert findings["gemm-kernel"].has_fired
    assert findings["sync-in-step"].has_fired
