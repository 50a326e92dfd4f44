"""Test the verdict on programs without GPU work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.helpers.trace_builder import Entry, annotation, cpu, python, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.analysis.patterns.verdict.verdict import Regime, Verdict

LOADER = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"


def decide(*entries: Entry) -> Verdict:
    checker = Checker(trace(*entries))
    return checker.decide_verdict(findings=checker.check())


def loop(loader: str, load: float, compute: float) -> list[Entry]:
    """Four steps that load, then compute; times in µs."""
    length = load + compute + 10
    entries: list[Entry] = []
    for k in range(4):
        at = k * length
        entries += [step(k + 1, at, length), annotation(loader, at, load), cpu("aten::mm", at + load + 5, compute)]
    return entries


def test_a_starved_loop_names_the_loader_and_its_share() -> None:
    verdict = decide(*loop(LOADER.format("SingleProcess"), 570, 420))
    assert verdict.regime is Regime.CPU_ONLY
    assert verdict.busy is None
    assert verdict.text.startswith("CPU-only trace: the data loader takes 57 % of the CPU's time: ")
    assert "the data loader takes 57 % of the CPU's time: load in worker processes (num_workers)" in verdict.first
    assert verdict.line is not None


def test_workers_are_not_advised_where_they_run() -> None:
    verdict = decide(*loop(LOADER.format("MultiProcessing"), 570, 420))
    assert "num_workers" not in verdict.first
    assert "more workers" in verdict.first


def test_the_longest_op_is_named() -> None:
    verdict = decide(*loop(LOADER.format("SingleProcess"), 40, 950))
    assert "ops take 95 % of the CPU's time, aten::mm 95 %" in verdict.first


def test_code_outside_any_op() -> None:
    verdict = decide(step(1, 0, 1000), cpu("aten::mm", 100, 200), step(2, 1000, 1000), cpu("aten::mm", 1100, 200))
    assert "code outside any op takes 80 % of the CPU's time" in verdict.first


def test_code_before_the_first_op_and_after_the_last_costs_its_time() -> None:
    """An annotation of 1 ms, with one op of 200 µs in the middle."""
    built = trace(annotation("epoch", 0, 1000), cpu("aten::mm", 400, 200))
    report = check_trace(built, default_scope(built))
    assert (report.problems[0].id, report.problems[0].cost) == ("host-code", 800_000)
    assert "code outside any op takes 80 % of the CPU's time" in report.verdicts[0].first


def test_code_outside_any_op_without_a_name_asks_for_stacks() -> None:
    verdict = decide(step(1, 0, 1000), cpu("aten::mm", 100, 200), step(2, 1000, 1000), cpu("aten::mm", 1100, 200))
    assert verdict.first.endswith("record with stacks (with_stack=True) to see which code it is")


def test_code_outside_any_op_is_named_by_its_frame() -> None:
    slow = python("train.py(12): tokenize", 300, 650)
    main = python("train.py(3): main", 0, 1000)
    verdict = decide(main, step(1, 0, 1000), cpu("aten::mm", 100, 200), slow)
    assert "650.0 of 800.0 µs of it in train.py(12): tokenize: move it out of the loop" in verdict.first
    assert verdict.line is not None
    assert verdict.line.location == "train.py:12"


def logging_step(at: float, *callees: Entry) -> list[Entry]:
    """A step of 1000 µs: an op of 300, then a frame of 600 that calls these."""
    return [
        step(int(at // 1000) + 1, at, 1000),
        cpu("aten::mm", at, 300),
        python("run.py(4): log", at + 350, 600),
        *callees,
    ]


def test_the_deepest_own_frame_with_more_than_half_of_the_time_is_named_with_what_it_calls() -> None:
    main = python("run.py(20): main", 0, 2000)
    sleep, fsync = "<built-in function sleep>", "<built-in function fsync>"
    steps = [
        entry
        for at in (0, 1000)
        for entry in logging_step(
            at,
            python(sleep, at + 360, 210),
            python("json/encoder.py(1): encode", at + 580, 150),
            python(fsync, at + 735, 180),
        )
    ]
    verdict = decide(main, *steps)
    assert (
        "70 % of the CPU's time, 1.20 of 1.40 ms of it in run.py(4): log (sleep 420.0 µs, fsync 360.0 µs): move it"
        in (verdict.first)
    )
    assert "most" not in verdict.first
    assert verdict.line is not None
    assert verdict.line.location == "run.py:4"


def test_below_half_the_two_largest_frames_are_named() -> None:
    main = python("run.py(20): main", 0, 2000)
    entries = [
        entry
        for at in (0, 1000)
        for entry in (
            step(at // 1000 + 1, at, 1000),
            cpu("aten::mm", at, 200),
            python("run.py(4): log", at + 200, 350),
            python("run.py(9): plot", at + 600, 300),
        )
    ]
    verdict = decide(main, *entries)
    assert (
        "700.0 µs of 1.60 ms of it in run.py(4): log, 600.0 µs in run.py(9): plot: run it less often" in verdict.first
    )


def test_code_before_the_first_op_counts_where_an_annotation_names_it() -> None:
    verdict = decide(annotation("tokenize", 0, 900), cpu("aten::mm", 900, 100), cpu("aten::mm", 1000, 100))
    assert "code outside any op takes 82 % of the CPU's time, 900.0 of 900.0 µs of it in tokenize" in verdict.first
    assert verdict.tree is not None
    assert {part.id: part.time for part in verdict.tree.parts} == {"host_code": 900_000, "ops": 200_000}


def test_ops_of_another_thread_are_no_code_of_the_annotation_that_waits_for_them() -> None:
    backward = annotation("backward", 300, 700)
    verdict = decide(step(1, 0, 1000), cpu("aten::mm", 0, 300), backward, cpu("aten::mul", 320, 660, thread=7))
    assert verdict.first.endswith(
        "code outside any op takes 70 % of the CPU's time, most of it while another thread runs ops, most of all "
        "aten::mul: process more at once (a larger batch), or compile the code around it (torch.compile)"
    )


def test_code_that_no_frame_explains_has_an_action() -> None:
    frames = [python(f"model.py({k}): layer{k}", 310 + 30 * k, 1) for k in range(20)]
    verdict = decide(step(1, 0, 1000), cpu("aten::mm", 0, 300), *frames)
    assert "code outside any op takes 70 % of the CPU's time: call ops on whole tensors" in verdict.first


def test_a_range_inside_one_wait_is_input() -> None:
    checker = Checker(trace(*loop(LOADER.format("MultiProcessing"), 570, 420)))
    scope = replace(checker.default_scope, t0=1_100_000, t1=1_300_000)
    verdict = checker.decide_verdict(scope, checker.check(scope))
    assert "the data loader takes 100 % of the CPU's time: its workers are too slow" in verdict.first


def test_many_small_calls_are_to_be_batched_without_an_optimizer() -> None:
    entries = [cpu("aten::select", 2.0 * k, 1.5) for k in range(300)]
    checker = Checker(trace(*entries))
    findings = checker.check()
    calls = next(found for found in findings if found.id == "call-count")
    assert "AdamW" not in calls.remedy.code
    assert "whole tensor" in checker.decide_verdict(findings=findings).first


def test_the_parts_sum_to_the_scope() -> None:
    tree = decide(*loop(LOADER.format("SingleProcess"), 570, 420)).tree
    assert tree is not None
    assert sum(part.time for part in tree.parts) == tree.total == 4_000_000
    assert {part.id: part.time for part in tree.parts} == {"input": 2_280_000, "ops": 1_680_000, "host_code": 40_000}


def test_a_trace_without_ops_has_nothing_to_say() -> None:
    verdict = decide(annotation("build", 0, 100))
    assert verdict.regime is Regime.UNKNOWN
    assert verdict.first == "no operator, runtime call or GPU work was recorded: is this a trace of torch.profiler?"


def test_code_of_an_annotation_is_not_advised_to_move() -> None:
    verdict = decide(step(1, 0, 1000), cpu("aten::mm", 0, 100), annotation("## backward ##", 100, 850))
    assert "850.0 of 900.0 µs of it in ## backward ##: record with stacks" in verdict.first


def test_an_op_is_counted_once_where_a_python_frame_lies_between_it_and_its_caller() -> None:
    verdict = decide(
        step(1, 0, 1000), cpu("mine::block", 0, 900), python("train.py(3): f", 10, 880), cpu("aten::mm", 20, 800)
    )
    assert verdict.tree is not None
    ops = verdict.tree.find("ops")
    assert ops is not None
    assert [(part.id, part.time) for part in ops.parts] == [("aten::mm", 800_000), ("mine::block", 100_000)]


def test_a_loop_of_small_ops_is_named_where_it_takes_a_good_part() -> None:
    loops = [cpu(("aten::select", "aten::eq", "aten::item")[k % 3], 10 * k, 9) for k in range(240)]
    verdict = decide(step(1, 0, 2500), *loops)
    assert verdict.why.startswith(
        "2.40 ms, 96 % of the steps: the same 3 ops (aten::select → aten::eq → aten::item) run 80"
    )
    assert verdict.remedy.startswith("call these ops once on whole tensors")


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("aten::_slow_conv2d_forward", "fallback without oneDNN"),
        ("aten::mkldnn_convolution", "channels_last"),
        ("aten::mm", "torch.get_num_threads()"),
        ("aten::mkldnn_rnn_layer", "torch.bfloat16"),
        ("aten::normal_", "create these values once"),
        ("aten::_foreach_add_", "fused=True"),
        ("aten::copy_", "keep one data type and layout"),
        ("aten::native_layer_norm", "a larger batch"),
    ],
)
def test_each_class_of_ops_has_an_action(op: str, words: str) -> None:
    verdict = decide(step(1, 0, 1000), cpu(op, 10, 900), step(2, 1000, 1000), cpu(op, 1010, 900))
    assert verdict.regime is Regime.CPU_ONLY
    assert f"{op} 90 %: " in verdict.first
    assert words in verdict.first


def test_ops_are_a_finding_with_what_is_left_to_them() -> None:
    program: list[Entry] = []
    for k in range(4):
        program += [step(k + 1, 1000 * k, 1000), cpu("aten::mm", 1000 * k, 550), annotation("log", 1000 * k + 560, 400)]
    built = trace(*program)
    report = check_trace(built, default_scope(built))
    assert [(found.id, format_percent(found.share)) for found in report.problems] == [
        ("ops", "55 %"),
        ("host-code", "45 %"),
    ]
    assert report.verdicts[0].what == report.problems[0].answer.seen == "ops take 55 % of the CPU's time, aten::mm 55 %"
    assert report.problems[0].remedy.action == report.verdicts[0].remedy


def test_without_the_gpus_work_no_call_is_cold() -> None:
    """A call of 40 ms may wait for a GPU of which nothing was recorded."""
    built = trace(
        cpu("aten::mm", 0, 50_000), runtime("cudaFree", 100, 40_000, 1), runtime("cudaLaunchKernel", 45_000, 5, 2)
    )
    report = check_trace(built, default_scope(built))
    states = {found.id: found.state for found in report.findings}
    assert states["cold-call"] is states["not-warmed-up"] is State.CANNOT_TELL
    assert report.problems == []
    assert report.verdicts[0].remedy.startswith("record again with the GPU's work")


def test_launches_without_kernels_say_why() -> None:
    calls = [runtime(name, 900 + 10 * k, 5, k) for k, name in enumerate(["cudaLaunchKernel", "cudaMemcpyAsync"])]
    verdict = decide(cpu("aten::randn", 0, 800), *calls, runtime("cudaGetDevice", 950, 5, 9))
    assert verdict.text.startswith(
        "2 calls that launch or copy, but no GPU work was recorded: CUPTI delivered none (no permission, another "
        "profiler, or WSL); ops take"
    )
    assert verdict.first.endswith("create these tensors on the GPU (device=…), not on the CPU")
    lost = decide(cpu("aten::cudnn_convolution", 0, 800), *calls)
    assert "record again with the GPU's work" in lost.first
    amd = decide(cpu("aten::randn", 0, 800), runtime("hipLaunchKernel", 900, 5, 1))
    assert "roctracer delivered none (no permission, another profiler);" in amd.text
    assert decide(cpu("aten::mm", 0, 800), runtime("cudaGetDevice", 950, 5, 9)).text.startswith("no GPU activity was")
