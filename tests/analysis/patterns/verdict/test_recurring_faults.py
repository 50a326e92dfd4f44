"""Test that what recurs in the steps is no cold start, and that remedies fit the owner of what recurs."""

from __future__ import annotations

from tests.helpers.pattern_traces import check_pattern
from tests.helpers.trace_builder import Entry, annotation, cpu, flow, kernel, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def steps_of(*lengths: float) -> list[Entry]:
    """Steps of these lengths in µs, each with an op."""
    entries, at = [], 0.0
    for number, length in enumerate(lengths):
        entries += [step(number + 1, at, length), cpu("aten::mm", at + 10, length - 20)]
        at += length
    return entries


def check(pattern_id: str, *entries: Entry) -> Finding:
    return check_pattern(trace(*entries), pattern_id)


def test_a_first_step_that_is_wide_alone_is_a_cold_start() -> None:
    assert check("first-step-wide", *steps_of(9000, 1000, 1000, 1000, 1000, 1000)).state is State.FIRED


def test_a_wide_step_that_comes_again_is_no_cold_start() -> None:
    finding = check("first-step-wide", *steps_of(9000, 1000, 1000, 5000, 1000, 1000))
    assert finding.state is State.ABSENT
    assert finding.answer.seen == "1 later step took about as long: not a cold start"


def test_steps_that_get_faster_until_a_slow_one_comes_again_are_not_warming_up() -> None:
    assert check("not-warmed-up", *steps_of(9000, 2000, 1000, 1000, 1000, 1000)).state is State.FIRED
    assert check("not-warmed-up", *steps_of(9000, 2000, 1000, 5000, 2000, 1000)).state is State.ABSENT


def stepping_program(mallocs: list[int]) -> list[Entry]:
    """Four steps of 6 ms with so many calls of 2 ms to the driver."""
    entries: list[Entry] = []
    for k, count in enumerate(mallocs):
        at = 6000.0 * k
        entries.append(step(k + 1, at, 6000))
        entries += [runtime("cudaMalloc", at + 10 + 2001 * n, 2000, 100 * k + n) for n in range(count)]
        corr = 100 * k + 50
        entries += [cpu("aten::mm", at + 5000, 20), runtime("cudaLaunchKernel", at + 5005, 5, corr)]
        entries += [flow("s", "ac2g", corr, at + 5005), flow("f", "ac2g", corr, at + 5015, thread=7, pid=0)]
        entries.append(kernel("k", at + 5015, 500, corr))
    return entries


def test_calls_to_the_driver_in_the_first_step_are_a_cold_start() -> None:
    assert check("not-warmed-up", *stepping_program([2, 0, 0, 0])).state is not State.FIRED  # 4 of 24 ms
    assert check("not-warmed-up", *stepping_program([2, 2, 0, 0])).state is State.FIRED


def test_calls_to_the_driver_in_each_step_are_not() -> None:
    assert check("not-warmed-up", *stepping_program([1, 1, 1, 1])).state is not State.FIRED


def test_a_loader_that_waits_for_its_workers_sets_nothing_up() -> None:
    entries = [cpu("aten::mm", 0, 5)]
    for k, wait in enumerate([1000, 5, 5, 1000, 5]):
        at = 2000.0 * k + 10
        entries += [annotation(LOADER, at, wait + 20), cpu("aten::stack", at + wait, 5)]
        entries += [annotation("block", at + 1500, wait + 20), cpu("aten::mm", at + 1500 + wait, 5)]
    finding = check("dead-window", *entries)
    assert finding.answer.seen.startswith("block has no op")


def many_calls(owner: str | None, count: int = 300) -> list[Entry]:
    """Launches of 4 µs each, inside steps of an optimizer or not."""
    entries: list[Entry] = [annotation(owner, 0, 10.0 * count)] if owner else []
    for k in range(count):
        entries += [runtime("cudaLaunchKernel", 10.0 * k + 1, 4, k), cpu("aten::mul_", 10.0 * k, 6)]
        entries += [flow("s", "ac2g", k, 10.0 * k + 1), flow("f", "ac2g", k, 10.0 * k + 6, thread=7, pid=0)]
        entries.append(kernel("k", 10.0 * k + 6, 1, k))
    return entries


def test_many_calls_are_an_optimizers_only_inside_its_steps() -> None:
    assert check("call-count", *many_calls("Optimizer.step#SGD.step")).remedy.code == (
        "torch.optim.SGD(params, fused=True)"
    )
    for owner in (None, "forward"):
        assert "optim" not in check("call-count", *many_calls(owner)).remedy.code


def uncached_steps(vendor: str, lengths: list[float]) -> list[Entry]:
    """Steps of 40 ops; each allocates from the driver, launches, and frees, in calls of this many µs."""
    entries, at = [], 0.0
    for number, length in enumerate(lengths):
        begin = at
        for k in range(40):
            corr = 1000 * number + 10 * k
            entries += [
                cpu("aten::mm", at, 2 * length + 20),
                runtime(f"{vendor}Malloc", at + 1, length, corr + 1),
                runtime(f"{vendor}LaunchKernel", at + length + 2, 5, corr),
                flow("s", "ac2g", corr, at + length + 2),
                flow("f", "ac2g", corr, at + length + 9, thread=7, pid=0),
                kernel("k", at + length + 9, 5, corr),
                runtime(f"{vendor}Free", at + length + 10, length, corr + 2),
            ]
            at += 2 * length + 25
        entries.append(step(number + 1, begin, at - begin))
    return entries


def test_memory_that_is_allocated_and_freed_op_by_op_is_not_cached() -> None:
    for vendor, variable in (("hip", "PYTORCH_NO_HIP_MEMORY_CACHING"), ("cuda", "PYTORCH_NO_CUDA_MEMORY_CACHING")):
        made = trace(*uncached_steps(vendor, [100, 100, 3000, 3000, 3000]))
        findings = Checker(made).check()
        verdict = Checker(made).decide_verdict(findings=findings)
        assert "not warmed up" not in verdict.first
        assert "the caching allocator is off, or memory is short" in verdict.first
        by_id = {finding.id: finding for finding in findings}
        assert by_id["alloc-in-step"].remedy.code == f"unset {variable}"
        assert by_id["cold-call"].state is State.ABSENT
        assert by_id["not-warmed-up"].state is State.ABSENT


def test_a_cache_that_is_emptied_frees_in_a_row() -> None:
    entries: list[Entry] = []
    for number, at in enumerate((0.0, 9000.0, 18000.0, 27000.0)):
        entries += [step(number + 1, at, 8900), cpu("aten::mm", at, 5)]
        entries += [runtime("cudaFree", at + 10 + 100 * k, 90, 100 * number + k) for k in range(30)]
        entries += [runtime("cudaMalloc", at + 4000 + 100 * k, 90, 500 + 100 * number + k) for k in range(30)]
    assert "unset" not in check("alloc-in-step", *entries).remedy.code


def test_a_call_that_takes_as_long_whenever_it_is_made_is_not_cold() -> None:
    """MTIA numbers the threads in the names of the calls that run a model."""
    entries = [
        runtime(f"predictor_executor::run gif_thread_id:{1400 + n % 4}", 20_000.0 * n, 14_000, n) for n in range(8)
    ]
    entries += [kernel("merge", 20_000.0 * n + 14_000, 100, n) for n in range(8)]
    assert check("cold-call", *entries).state is State.ABSENT
