"""What the samples from an H100 must show (the articles' program, infer_resnet), compared with the raw file."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from typing import Any

import pytest

from torchprof_samples import find
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Severity, State
from torchprof_tui.analysis.patterns.rules.warmup import describe_launches
from torchprof_tui.analysis.patterns.verdict.time_tree import build_time_tree
from torchprof_tui.analysis.patterns.verdict.tree_model import TimePart
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.loading.load_in_process import load_trace

COLD = "matmul_add_64_sched0_active3"
COMPILED = ("article_4096_compile", "article_4096_addmm", "article_4096_autotune")


@cache
def checked(name: str) -> tuple[dict[str, Finding], Checker]:
    checker = Checker(load_trace(str(find(name).path), cache=False))
    return {finding.id: finding for finding in checker.check()}, checker


@cache
def read_raw(name: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(find(name).path.read_bytes()))["traceEvents"]
    return events


def raw_of(name: str, *categories: str) -> list[dict[str, Any]]:
    return [event for event in read_raw(name) if event.get("cat") in categories]


@pytest.mark.parametrize("name", COMPILED)
def test_one_op_makes_no_launch_less(name: str) -> None:
    launches = [raw_of(each, "kernel", "gpu_memcpy", "gpu_memset") for each in ("article_4096_cold", name)]
    assert len(launches[0]) == len(launches[1]) == 9
    copies = [event for event in launches[1] if "DtoD" in event["name"]]
    assert {event["args"]["bytes"] for event in copies} == {4096 * 4096 * 2}
    findings, _ = checked(name)
    assert findings["addmm-fusion"].answer.seen.endswith(
        "3 of them copy the bias first: no launch less than mm and add; the GEMM adds it by a kernel of its own on "
        "Hopper, by that of mm on older GPUs"
    )
    assert findings["copy-before-gemm"].state is State.FIRED
    assert "instead of torch.addmm(b, x, w)" in findings["hidden-copy"].remedy.code


@pytest.mark.parametrize("name", COMPILED)
def test_the_time_of_a_bias_copy_is_one_problem(name: str) -> None:
    findings, _ = checked(name)
    copies = [event for event in raw_of(name, "gpu_memcpy") if "DtoD" in event["name"]]
    assert findings["hidden-copy"].answer.at_stake == pytest.approx(sum(event["dur"] for event in copies) * 1000, abs=5)
    assert findings["copy-before-gemm"].pattern.severity is Severity.NOTICE
    assert (findings["copy-before-gemm"].answer.events == findings["hidden-copy"].answer.events).all()


@pytest.mark.parametrize(("name", "launches"), [("compile", "3 → 3 (not down by half)"), ("reduce", "3 → 4 (+33 %)")])
def test_the_compiled_recording_is_compared_with_the_eager_one(name: str, launches: str) -> None:
    """By the calls and the work in the raw files, and as `diff` measures the same two recordings."""
    compiled, eager = f"article_4096_{name}", "article_4096_cold"
    answer = checked(compiled)[0]["beside-eager"].answer
    assert f"launches a step: {launches}" in answer.seen
    assert answer.seen.endswith(f"(diff sample:{eager} sample:{compiled})")
    kernels = [len(raw_of(each, "kernel")) // 3 for each in (eager, compiled)]
    moves = [len(raw_of(each, "gpu_memcpy", "gpu_memset")) // 3 for each in (eager, compiled)]
    assert f"; kernels {kernels[0]} → {kernels[1]}; copies and fills {moves[0]} → {moves[1]}; " in answer.seen
    sides = [SideAnalysis(checked(each)[1].trace, "") for each in (eager, compiled)]
    times = [format_duration(float(side.step_durations.mean())) for side in sides]
    assert f"a step {times[0]} → {times[1]} " in answer.seen
    assert describe_launches(*(side.launches_per_step for side in sides)) in answer.seen


def test_a_bias_row_is_added_by_the_gemm() -> None:
    findings, _ = checked("matmul_add_4096_warm_compile")
    assert findings["addmm-fusion"].answer.seen == "3 addmm (1 a step) without a separate add"
    assert findings["copy-before-gemm"].state is State.ABSENT


@pytest.mark.parametrize("name", ["article_64_cold", "article_64_warm", "article_4096_cold"])
def test_the_first_step_is_wide_though_nothing_is_loaded(name: str) -> None:
    calls = {event["name"] for event in raw_of(name, "cuda_runtime", "cuda_driver")}
    assert calls <= {"cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemsetAsync", "cudaDeviceSynchronize"}
    findings, checker = checked(name)
    assert findings["not-warmed-up"].state is State.ABSENT
    seen = findings["first-step-wide"].answer.seen
    assert seen.endswith("; nothing is loaded, allocated or compiled in it")
    assert "more warm-up does not change that" in findings["first-step-wide"].remedy.action
    assert "not warmed up" not in checker.decide_verdict(findings=list(findings.values())).first


def test_loading_in_the_first_step_is_still_named() -> None:
    findings, _ = checked("matmul_add_64_sched0_active3")
    assert findings["not-warmed-up"].state is State.FIRED
    assert "cudaDeviceGetStreamPriorityRange" in findings["first-step-wide"].answer.seen


def list_parts(parts: tuple[TimePart, ...]) -> list[TimePart]:
    return [inner for part in parts for inner in (part, *list_parts(part.parts))]


@pytest.mark.parametrize("name", ["matmul_add_64_sched0_active3", "article_4096_active20", "matmul_add_64_cold_eager"])
def test_a_dead_window_is_booked_as_long_as_it_is(name: str) -> None:
    """From the annotation's start to its first op, read from the raw file: never the whole annotation."""
    findings, checker = checked(name)
    assert findings["dead-window"].state is State.FIRED
    windows = findings["dead-window"].answer.spans
    assert windows is not None
    marks = [event for event in raw_of(name, "user_annotation") if event["name"] == "matmul_add"]
    first = min(marks, key=lambda event: float(event["ts"]))
    start = float(first["ts"])
    op = min(float(event["ts"]) for event in raw_of(name, "cpu_op", "cuda_runtime") if float(event["ts"]) >= start)
    assert windows.total == pytest.approx((op - start) * 1000, abs=10)
    tree = build_time_tree(checker.view(checker.default_scope), list(findings.values()))
    booked = [part for part in list_parts(tree.parts) if part.id == "dead-window"]
    assert sum(part.time for part in booked) <= windows.total


def test_a_resnet_is_named_by_its_convolutions() -> None:
    findings, _ = checked("infer_resnet")
    assert len([event for event in raw_of("infer_resnet", "cpu_op") if event["name"] == "aten::conv2d"]) == 3 * 20
    assert findings["hotspot"].state is State.FIRED
    assert "aten::cudnn_convolution" in findings["hotspot"].answer.seen
    assert findings["alloc-in-step"].state is findings["pageable-copy"].state is State.ABSENT


def test_one_image_is_limited_by_launches() -> None:
    kernels = raw_of("infer_resnet_one_image", "kernel")
    durations = sorted(event["dur"] for event in kernels)
    assert durations[len(durations) // 2] < 2
    findings, _ = checked("infer_resnet_one_image")
    assert findings["overhead-bound"].state is State.FIRED
    assert len(raw_of("infer_resnet", "kernel")) == pytest.approx(len(kernels), rel=0.1)


@pytest.mark.parametrize(
    ("name", "kind", "count"), [("infer_resnet_features", "DtoH", 24), ("streams_pageable", "HtoD", 3)]
)
def test_copies_of_pageable_memory_cost_their_time(name: str, kind: str, count: int) -> None:
    copies = [event for event in raw_of(name, "gpu_memcpy") if kind in event["name"] and "Pageable" in event["name"]]
    assert len(copies) == count
    finding = checked(name)[0]["pageable-copy"]
    assert finding.state is State.FIRED
    calls = [
        event for event in raw_of(name, "cuda_runtime") if event["name"] in ("cudaMemcpyAsync", "cudaStreamSynchronize")
    ]
    of_copies, of_calls = (sum(event["dur"] * 1000 for event in each) for each in (copies, calls))
    assert of_copies * 0.99 <= finding.answer.at_stake <= of_calls * 1.01  # the CPU is held up in each call


def test_an_emptied_cache_is_named_by_its_calls() -> None:
    calls = [event["name"] for event in raw_of("infer_resnet_empty_cache", "cuda_runtime")]
    assert min(calls.count("cudaMalloc"), calls.count("cudaFree")) >= 3
    assert "cudaMalloc" not in [event["name"] for event in raw_of("infer_resnet", "cuda_runtime")]
    findings, checker = checked("infer_resnet_empty_cache")
    assert findings["alloc-in-step"].answer.seen.startswith("18 calls (cudaFree, cudaMalloc) in all 3 steps")
    first = checker.decide_verdict(findings=list(findings.values())).first
    assert re.search(r"^steps allocate memory from the driver \(1\d %\): remove torch.cuda.empty_cache\(\)", first)


def test_only_cold_gemms_of_hopper_ask_for_the_occupancy() -> None:
    warm, cold = (checked(name)[0]["fixed-launch"].answer.seen for name in ("article_64_cold", COLD))
    assert warm.endswith("; GEMMs on Hopper ask for the occupancy once, in a cold call")
    assert "occupancy" not in cold
    assert any("cudaOccupancy" in event["name"] for event in raw_of(COLD, "cuda_runtime"))


def test_a_gap_of_three_steps_does_not_recur_in_twenty() -> None:
    three, twenty = (checked(name)[0]["one-off-gap"] for name in ("article_4096_addmm", "article_4096_active20"))
    assert "in step #2: 41.4 µs before memset, elsewhere 832 ns" in three.answer.seen
    assert twenty.state is State.ABSENT
