"""Test what the verdict says of the GPU's own work: copies that nothing hides."""

from __future__ import annotations

from tests.helpers.trace_builder import Entry, cpu, flow, kernel, memcpy, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict

TENSILE = "Cijk_Ailk_Bljk_BBS_BH_MT256x256x64_MI16x16x1_SN"


def decide(*entries: Entry) -> Verdict:
    checker = Checker(trace(*entries))
    return checker.decide_verdict(findings=checker.check())


def copying_steps(call: str, call_length: float, name: str, copy: float, compute: float) -> list[Entry]:
    """Three steps: a batch is copied to the GPU, then a product of `compute` µs, launched before the copy ends."""
    program: list[Entry] = []
    length = copy + compute + 40
    for k in range(3):
        at, corr = k * length, 10 * k + 1
        product = at + max(call_length, 0) + 10
        program += [
            step(k + 1, at, length),
            cpu("aten::to", at, call_length + 4),
            cpu("aten::copy_", at + 1, call_length + 2),
            runtime(call, at + 2, call_length, corr),
            memcpy(name, at + 5, copy, corr, bytes=50_000_000),
            flow("s", "ac2g", corr, at + 2),
            flow("f", "ac2g", corr, at + 5, thread=7, pid=0),
            cpu("aten::mm", product, 12),
            runtime("hipLaunchKernel", product + 2, 5, corr + 1),
            kernel(TENSILE, max(product + 8, at + 5 + copy), compute, corr + 1),
            flow("s", "ac2g", corr + 1, product + 2),
            flow("f", "ac2g", corr + 1, max(product + 8, at + 5 + copy), thread=7, pid=0),
        ]
    return program


def test_blocking_copies_of_rocm_name_their_call() -> None:
    verdict = decide(*copying_steps("hipMemcpyWithStream", 2510, "CopyHostToDevice", 2500, 2000))
    assert verdict.first.startswith("blocking copies (hipMemcpyWithStream) take 55 % of the time")
    assert "copy from pinned memory without blocking" in verdict.first


def test_blocking_copies_to_the_host_are_to_be_read_later() -> None:
    verdict = decide(*copying_steps("hipMemcpyWithStream", 2510, "CopyDeviceToHost", 2500, 2000))
    assert "copy into a pinned buffer without blocking" in verdict.first


def test_exposed_copies_of_pinned_memory_are_a_cause() -> None:
    verdict = decide(*copying_steps("cudaMemcpyAsync", 5, "Memcpy HtoD (Pinned -> Device)", 1500, 2500))
    assert "copies take 37 % of the time" in verdict.first
    assert "no problem" not in verdict.first


def test_few_copies_are_none() -> None:
    verdict = decide(*copying_steps("cudaMemcpyAsync", 5, "Memcpy HtoD (Pinned -> Device)", 100, 2500))
    assert "copies take" not in verdict.first
