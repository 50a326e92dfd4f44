"""Test what the verdict says of the GPU's own work: copies that nothing hides."""

from __future__ import annotations

from tests.helpers.trace_builder import Entry, cpu, flow, kernel, memcpy, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
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


def one_busy_step(*kernels: tuple[str, float]) -> list[Entry]:
    """One op that launches kernels (name, µs), which run one after the other."""
    length = sum(duration for _, duration in kernels)
    program, at = [step(1, 0, length + 100), cpu("my::op", 0, 60)], 50.0
    for corr, (name, duration) in enumerate(kernels, 1):
        program += [
            runtime("cudaLaunchKernel", corr, 0.5, corr),
            flow("s", "ac2g", corr, corr),
            kernel(name, at, duration, corr),
            flow("f", "ac2g", corr, at, thread=7, pid=0),
        ]
        at += duration
    return program


def test_unknown_kernels_are_named_and_not_called_fine() -> None:
    verdict = decide(*one_busy_step(("matmul_k(float*, float*)", 9000), (TENSILE, 500)))
    assert "95 % other kernels (95 % matmul_k)" in verdict.first
    assert "measure matmul_k alone" in verdict.first
    assert "no problem" not in verdict.first


def test_several_ranks_without_a_known_collective_are_mentioned() -> None:
    entries = one_busy_step(("exchange_k(float*)", 4000), (TENSILE, 6000))
    header = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 64}}
    checker = Checker(trace(*entries, header=header))
    findings = checker.check()
    verdict = checker.decide_verdict(findings=findings)
    missing = "64 ranks ran, but no kernel was recognised as communication"
    assert missing in verdict.first
    said = {finding.id: finding.answer for finding in findings}
    for pattern_id in ("communication", "exposed-comm"):
        assert said[pattern_id].state is State.CANNOT_TELL
        assert said[pattern_id].reason == missing


def test_the_hidden_share_of_collectives_is_said() -> None:
    entries = one_busy_step((TENSILE, 4000), (TENSILE, 4000))
    entries += [runtime("cudaLaunchKernel", 30, 1, 9), kernel("void a::ep::internode::combine<8>(int*)", 100, 7000, 9)]
    assert "collectives (100 % hidden behind compute)" in decide(*entries).first


def test_the_sentence_on_a_class_of_work_says_the_share_of_its_finding_alone() -> None:
    """Products without tensor cores for 80 of 100 µs; beside them copies on another stream make 180 µs of it."""
    program: list[Entry] = []
    for k in range(1, 5):
        program += [step(k, 100 * k, 100), cpu("aten::mm", 100 * k, 90), runtime("cudaLaunchKernel", 100 * k, 5, k)]
        program += [
            kernel("volta_sgemm_128x32_nt", 100 * k + 10, 80, k),
            memcpy("Memcpy HtoD (Pinned -> Device)", 100 * k, 100, 10 + k, stream=20),
        ]
    built = trace(*program, header={"deviceProperties": [{"id": 0, "name": "Tesla V100", "computeMajor": 7}]})
    report = check_trace(built, default_scope(built))
    found, (verdict,) = report.problems[0], report.verdicts
    assert (found.id, format_percent(found.share)) == ("no-tensor-core", "80 %")
    assert verdict.what == "up to 80 % of the time is lost in fp32 GEMMs without tensor cores"
    assert found.answer.seen.endswith("take 320.0 µs in all")
