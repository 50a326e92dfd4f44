"""Test dispatch chains: literal cases, and random traces against a slow reference (see also test_all_traces)."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.chain_reference import ReferenceChains, assert_chains_equal
from tests.helpers.long_run import scale_examples
from tests.helpers.trace_builder import (
    Entry,
    annotation,
    cpu,
    driver,
    flow,
    gpu_annotation,
    kernel,
    memcpy,
    overhead,
    python,
    runtime,
    step,
    trace,
)
from torchprof_samples import find as sample
from torchprof_tui.analysis.dispatch.chain import ChainFinder, JoinMethod, find_chain, find_launches
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace


def row(made: Trace, name: str) -> int:
    return next(k for k in range(len(made)) if made.event(k).name == name)


def names(made: Trace, name: str) -> list[str]:
    return [hop.name for hop in find_chain(made, row(made, name)).hops]


LAYERS = (
    step(1, 0, 100),
    annotation("forward", 5, 90),
    python("train.py(3): f", 6, 80),
    cpu("aten::linear", 10, 50),
    cpu("aten::addmm", 15, 40),
    runtime("cudaLaunchKernel", 20, 10, corr=1),
    runtime("cudaMemcpyAsync", 40, 5, corr=2),
    kernel("gemm", 35, 20, corr=1),
    memcpy("copy", 60, 5, corr=2),
)
ALL = ["ProfilerStep#1", "forward", "train.py(3): f", "aten::linear", "aten::addmm"]


def test_every_hop_from_the_step_to_the_kernel() -> None:
    made = trace(*LAYERS)
    found = find_chain(made, row(made, "gemm"))
    assert [hop.name for hop in found.hops] == [*ALL, "cudaLaunchKernel", "gemm"]
    assert [hop.role.value for hop in found.hops] == ["step", "annotation", "python", "op", "op", "launch", "gpu"]
    assert [hop.start for hop in found.hops] == [0, 5000, 6000, 10_000, 15_000, 20_000, 35_000]
    assert [hop.duration for hop in found.hops] == [100_000, 90_000, 80_000, 50_000, 40_000, 10_000, 20_000]
    assert [hop.self_duration for hop in found.hops] == [10_000, 10_000, 30_000, 10_000, 25_000, 10_000, 20_000]
    assert [hop.offset for hop in found.hops] == [0, 5000, 1000, 4000, 5000, 5000, 15_000]
    assert (found.launch_latency, found.queue_delay, found.held_up, found.held_up_by) == (15_000, 5000, 0, -1)
    assert (found.join_method, found.note) == (JoinMethod.CORRELATION, "")
    assert [piece.share for piece in found.work] == [1.0]


@pytest.mark.parametrize("name", ALL)
def test_downwards_to_the_heaviest_and_all_of_them_with_their_share(name: str) -> None:
    made = trace(*LAYERS)
    found = find_chain(made, row(made, name))
    assert [hop.name for hop in found.hops] == [*ALL, "cudaLaunchKernel", "gemm"]
    assert [made.event(piece.event).name for piece in found.work] == ["gemm", "copy"]
    assert [piece.share for piece in found.work] == [0.8, 0.2]
    assert [made.event(piece.launch).name for piece in found.work] == ["cudaLaunchKernel", "cudaMemcpyAsync"]
    assert found.work.total == 25_000
    assert found.work[-1] == found.work[1:][0]
    assert [made.event(k).name for k in found.events] == [made.event(k).name for k in range(len(made))]


def test_a_graph_launch_leads_to_many() -> None:
    kernels = [kernel(f"k{k}", 20 + 10 * k, k + 1, corr=9) for k in range(5)]
    made = trace(cpu("replay", 0, 15), runtime("cudaGraphLaunch", 5, 5, corr=9), *kernels)
    found = find_chain(made, row(made, "replay"))
    assert [made.event(piece.event).name for piece in found.work] == ["k4", "k3", "k2", "k1", "k0"]
    assert [hop.name for hop in found.hops] == ["replay", "cudaGraphLaunch", "k4"]
    assert names(made, "k2") == ["replay", "cudaGraphLaunch", "k2"]
    assert find_chain(made, row(made, "k2")).launch_latency == 35_000


def test_a_driver_call_inside_a_runtime_call() -> None:
    made = trace(
        cpu("aten::mm", 0, 20),
        runtime("cudaLaunchKernelExC", 5, 10, corr=3),
        driver("cuLaunchKernelEx", 6, 8, corr=4),
        kernel("k", 30, 5, corr=4),
    )
    assert names(made, "k") == ["aten::mm", "cudaLaunchKernelExC", "cuLaunchKernelEx", "k"]


# Missing launches and missing work


def test_work_that_was_launched_before_the_window() -> None:
    made = trace(step(1, 0, 50), cpu("op", 5, 10), kernel("k", 20, 5, corr=77))
    found = find_chain(made, row(made, "k"))
    assert [hop.name for hop in found.hops] == ["k"]
    assert (found.join_method, found.launch_latency, found.queue_delay) == (JoinMethod.NO_LAUNCH, None, None)
    assert "before the recording" in found.note


def test_a_launch_without_work() -> None:
    made = trace(cpu("op", 0, 20), runtime("cudaLaunchKernel", 5, 5, corr=1), kernel("other", 30, 5, corr=2))
    found = find_chain(made, row(made, "cudaLaunchKernel"))
    assert [hop.name for hop in found.hops] == ["op", "cudaLaunchKernel"]
    assert (found.join_method, len(found.work), found.launch_latency) == (JoinMethod.NO_WORK, 0, None)
    assert "in the recording" in found.note


def test_a_trace_without_gpu_work_has_no_note_on_it() -> None:
    found = find_chain(trace(cpu("op", 0, 20)), 0)
    assert found.join_method is JoinMethod.NO_WORK
    assert not found.note


def test_an_event_outside_of_dispatch() -> None:
    made = trace(overhead("Buffer Flush", 0, 5), gpu_annotation("forward", 1, 3), cpu("op", 7, 1))
    for name in ("Buffer Flush", "forward"):
        found = find_chain(made, row(made, name))
        assert [hop.name for hop in found.hops] == [name]
        assert found.join_method is JoinMethod.NOT_DISPATCHED
    with pytest.raises(IndexError):
        find_chain(made, len(made))


def trace_with_external_ids(external: int, *more: Entry) -> Trace:
    """One kernel with a launch, which shows the meaning of External ids, and one without a recorded launch."""
    return trace(
        cpu("aten::mm", 0, 20, **{"External id": 5}),
        runtime("cudaLaunchKernel", 5, 5, corr=1),
        kernel("linked", 30, 5, corr=1, **{"External id": external}),
        cpu("aten::add", 40, 10, **{"External id": 6}),
        kernel("lost", 60, 5, corr=99, **{"External id": 6}),
        *more,
    )


def test_an_external_id_of_an_op_joins() -> None:
    made = trace_with_external_ids(5)
    found = find_chain(made, row(made, "lost"))
    assert [hop.name for hop in found.hops] == ["aten::add", "lost"]
    assert (found.join_method, found.launch_latency) == (JoinMethod.EXTERNAL_ID, None)
    assert "External id" in found.note


@pytest.mark.parametrize("external", [1, 6])
def test_an_external_id_that_is_a_correlation_or_another_op_joins_nothing(external: int) -> None:
    made = trace_with_external_ids(external)
    assert names(made, "lost") == ["lost"]
    assert names(made, "linked") == ["aten::mm", "cudaLaunchKernel", "linked"]


# Queueing


def test_earlier_work_that_holds_a_kernel_up() -> None:
    made = trace(
        runtime("cudaLaunchKernel", 0, 5, corr=1),
        runtime("cudaLaunchKernel", 5, 5, corr=2),
        runtime("cudaLaunchKernel", 10, 5, corr=3),
        kernel("first", 8, 20, corr=1),
        kernel("second", 30, 5, corr=2),
        kernel("third", 40, 5, corr=3),
        kernel("elsewhere", 10, 100, stream=8),
    )
    found = find_chain(made, row(made, "third"))
    assert (found.launch_latency, found.queue_delay) == (30_000, 25_000)
    assert found.held_up == (28 - 15 + 5) * 1000
    assert made.event(found.held_up_by).name == "second"


def test_work_that_began_before_its_call_returned() -> None:
    made = trace(runtime("cudaLaunchKernel", 0, 50, corr=1), kernel("k", 20, 5, corr=1))
    found = find_chain(made, row(made, "k"))
    assert (found.launch_latency, found.queue_delay, found.held_up) == (20_000, -30_000, 0)


def test_the_step_of_another_thread_is_prepended() -> None:
    made = trace(
        step(1, 0, 50),
        step(2, 50, 50),
        cpu("AddBackward0", 60, 20, thread=2),
        runtime("cudaLaunchKernel", 65, 5, corr=1, thread=2),
        kernel("k", 72, 5, corr=1),
    )
    assert names(made, "k") == ["ProfilerStep#2", "AddBackward0", "cudaLaunchKernel", "k"]


# Forward and backward


def both_ways(*flows: Entry, threads: bool = True, **second: int) -> Trace:
    """linear, whose inner addmm creates the node; then the engine's call around the node on another thread."""

    def forward(number: int) -> dict[str, int]:
        return {"Sequence number": number, "Fwd thread id": 0}

    backward = {"Sequence number": 8, **({"Fwd thread id": 1} if threads else {})}
    return trace(
        cpu("aten::linear", 0, 30, **forward(7)),
        cpu("aten::t", 1, 5, **forward(7)),
        cpu("aten::addmm", 10, 15, **forward(8)),
        runtime("cudaLaunchKernel", 12, 5, corr=1),
        kernel("gemm", 20, 5, corr=1),
        cpu("evaluate_function: AddmmBackward0", 50, 30, thread=2, **backward),
        cpu("AddmmBackward0", 52, 25, thread=2, **backward),
        cpu("aten::mm", 54, 10, thread=2),
        runtime("cudaLaunchKernel", 55, 5, corr=2, thread=2),
        kernel("gemm backward", 65, 5, corr=2),
        *flows,
    )


FLOWS = (flow("s", "fwdbwd", 1, 10), flow("f", "fwdbwd", 1, 52, thread=2))


@pytest.mark.parametrize("flows", [FLOWS, ()], ids=["flows", "sequence numbers"])
def test_forward_and_backward_find_each_other(flows: tuple[Entry, ...]) -> None:
    made = both_ways(*flows)
    for name in ("gemm backward", "aten::mm", "AddmmBackward0", "evaluate_function: AddmmBackward0"):
        found = find_chain(made, row(made, name))
        assert made.event(found.forward_op).name == "aten::addmm"
        assert found.backward_node == -1
    for name in ("aten::addmm", "gemm", "aten::linear"):
        found = find_chain(made, row(made, name))
        assert made.event(found.backward_node).name == "AddmmBackward0"
        assert found.forward_op == -1


def test_sequence_numbers_of_two_threads_are_undecidable() -> None:
    other = cpu("aten::relu", 0, 5, thread=3, **{"Sequence number": 8, "Fwd thread id": 0})
    made = both_ways(other)
    assert find_chain(made, row(made, "AddmmBackward0")).forward_op == -1
    assert find_chain(made, row(made, "aten::addmm")).backward_node == -1


def test_without_the_forward_thread_nothing_is_a_backward() -> None:
    made = both_ways(threads=False)
    assert find_chain(made, row(made, "AddmmBackward0")).forward_op == -1


@pytest.mark.parametrize("name", ["train_gpt_stack_memory"])
def test_sequence_numbers_agree_with_flows(name: str) -> None:
    made = load_trace(str(sample(name).path), cache=False)
    links, nothing = made.links, np.empty(0, np.int32)
    without = ChainFinder(replace(made, links=replace(links, forward=nothing, backward=nothing)))
    pairs = list(zip(links.forward.tolist(), links.backward.tolist(), strict=True))
    assert len(pairs) > 200
    assert [(without.find_chain(f).backward_node, without.find_chain(b).forward_op) for f, b in pairs] == [
        (b, f) for f, b in pairs
    ]


# Against the slow reference

spans = st.tuples(st.integers(0, 60), st.integers(0, 30))


@settings(max_examples=scale_examples(2))
@given(
    ops=st.lists(spans, max_size=8),
    calls=st.lists(st.tuples(spans, st.integers(1, 6), st.booleans()), max_size=8, unique_by=lambda call: call[1:]),
    work=st.lists(st.tuples(spans, st.integers(1, 8), st.integers(7, 8)), max_size=10),
)
def test_any_chain(
    ops: list[tuple[int, int]],
    calls: list[tuple[tuple[int, int], int, bool]],
    work: list[tuple[tuple[int, int], int, int]],
) -> None:
    entries = [cpu(f"op{k}", *span) for k, span in enumerate(ops)]
    entries += [(driver if low else runtime)(f"call{k}", *span, corr) for k, (span, corr, low) in enumerate(calls)]
    entries += [kernel(f"k{k}", *span, corr, stream=stream) for k, (span, corr, stream) in enumerate(work)]
    if not entries:
        return
    made = trace(*entries)
    assert_chains_equal(made, ReferenceChains(made, json.loads(json.dumps(entries))), range(len(made)))


def test_launches_are_in_one_range_of_rows() -> None:
    """Launches that only overlap the event, or follow it, are no descendants."""
    made = trace(
        cpu("op", 0, 10),
        runtime("inside", 2, 2, corr=1),
        runtime("crossing", 8, 5, corr=2),
        runtime("after", 20, 2, corr=3),
        *(kernel(f"k{k}", 30 + 2 * k, 1, corr=k) for k in (1, 2, 3)),
    )
    assert [made.event(int(k)).name for k in find_launches(made, row(made, "op"))] == ["inside"]


def test_a_runaway_recursion_is_reduced_to_its_ends() -> None:
    deep = [cpu(f"f{depth}", depth, 5000 - 2 * depth) for depth in range(1600)]
    shown = trace(*deep, kernel("other", 9000, 5), ns=True)
    found = find_chain(shown, 1500)
    names = [hop.name for hop in found.hops]
    assert names == [f"f{k}" for k in (*range(500), *range(1001, 1501))]
    assert found.hops[500].offset == 1001 - 499
    assert found.note.startswith("501 calls in the middle are not shown. ")


def test_the_chain_of_an_npu_goes_through_the_arrow() -> None:
    made = trace(
        {"ph": "M", "name": "process_name", "pid": 800, "tid": 0, "args": {"name": "Ascend Hardware"}},
        step(1, 0, 100),
        cpu("aten::add", 10, 20),
        cpu("aclnnAdd", 15, 10),
        {"ph": "X", "name": "Add", "pid": 800, "tid": 3, "ts": 40, "dur": 5},
        flow("s", "async_npu", 1, 15),
        flow("f", "async_npu", 1, 40, thread=3, pid=800),
        format="chrome",
    )
    chain = find_chain(made, row(made, "Add"))
    assert chain.join_method is JoinMethod.FLOW
    assert [hop.name for hop in chain.hops] == ["ProfilerStep#1", "aten::add", "aclnnAdd", "Add"]
    assert (chain.launch_latency, chain.queue_delay) == (25_000, 15_000)
    assert find_chain(made, row(made, "aten::add")).join_method is JoinMethod.FLOW
