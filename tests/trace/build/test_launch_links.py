"""Test which call launched GPU work, and which forward op each backward op belongs to."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import Entry, cpu, driver, event, flow, kernel, memcpy, metadata, runtime, sync, trace
from torchprof_tui.trace.build.launch_links import group_work_by_launch, link_launches
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


def launch_names(made: Trace) -> dict[str, str | None]:
    """Name of each GPU event's launch, by the GPU event's name."""
    launches = {}
    for k in range(len(made)):
        if made.event(k).lane.kind == "gpu":
            launch = int(made.links.launch_of[k])
            launches[made.event(k).name] = made.event(launch).name if launch >= 0 else None
    return launches


def test_gpu_work_finds_its_call_by_correlation() -> None:
    made = trace(
        runtime("cudaLaunchKernel", 1, 2, corr=5),
        runtime("cudaMemcpyAsync", 4, 2, corr=6),
        runtime("cudaStreamSynchronize", 7, 2, corr=7),
        kernel("k", 10, 5, corr=5),
        memcpy("HtoD", 16, 5, corr=6),
        kernel("before the window", 0, 1, corr=4),
        kernel("no number", 22, 1),
        sync("Stream Sync", 7, 2, corr=7),
    )
    assert launch_names(made) == {
        "k": "cudaLaunchKernel",
        "HtoD": "cudaMemcpyAsync",
        "before the window": None,
        "no number": None,
        "Stream Sync": None,
    }
    links = made.links
    assert (links.launches, links.gpu_events, links.linked_gpu_events) == (2, 4, 2)


def test_a_graph_launch_has_many_kernels() -> None:
    made = trace(runtime("cudaGraphLaunch", 0, 2, corr=9), *(kernel(f"k{k}", 5 + k, 1, corr=9) for k in range(4)))
    assert [made.event(int(k)).name for k in made.links.work_of(0)] == ["k0", "k1", "k2", "k3"]
    assert (made.links.launches, made.links.linked_gpu_events) == (1, 4)


def test_the_runtime_call_wins_over_the_driver_call_inside_it() -> None:
    made = trace(
        driver("cuLaunchKernel", 2, 1, corr=3), runtime("cudaLaunchKernel", 1, 3, corr=3), kernel("k", 9, 1, 3)
    )
    assert launch_names(made) == {"k": "cudaLaunchKernel"}


def test_zero_and_minus_one_are_no_correlations() -> None:
    made = trace(
        runtime("a", 0, 1, corr=0), runtime("b", 1, 1, corr=-1), kernel("k", 5, 1, corr=0), kernel("l", 7, 1, corr=-1)
    )
    assert made.links.linked_gpu_events == 0


numbers = st.one_of(st.integers(-1, 12), st.sampled_from([2**40, 2**62, -(2**62)]))


@given(st.lists(st.tuples(numbers, st.sampled_from(["call", "driver", "work", "other"])), max_size=40))
def test_the_join_against_a_dict(made: list[tuple[int, str]]) -> None:
    role = np.array([role for _, role in made], dtype="U6")
    correlation = np.array([number for number, _ in made], np.int64)
    ordinals = np.arange(len(correlation), dtype=np.int32)[::-1].copy()  # in any order, not all of the entries
    correlation_of_entries = np.append(correlation[::-1], 5)
    is_call = np.isin(role, ["call", "driver"])
    launch = link_launches(correlation_of_entries, ordinals, is_call, role == "driver", role == "work")
    calls: dict[int, int] = {}
    for wanted in ("driver", "call"):
        for k in reversed(range(len(made))):
            if made[k][1] == wanted:
                calls[made[k][0]] = k
    expected = [calls.get(number, -1) if kind == "work" and number not in (0, -1) else -1 for number, kind in made]
    assert launch.tolist() == expected
    order, first = group_work_by_launch(launch)
    for k in range(len(made)):
        assert order[first[k] : first[k + 1]].tolist() == [
            gpu_event for gpu_event, call in enumerate(expected) if call == k
        ]


def pairs(made: Trace) -> list[tuple[str, str]]:
    links = made.links
    joined = zip(links.forward.tolist(), links.backward.tolist(), strict=True)
    return [(made.event(f).name, made.event(b).name) for f, b in joined]


def test_a_flow_belongs_to_the_slice_that_it_follows_in_the_file() -> None:
    """Both begin at once; the enclosing rule would bind both flows to the inner."""
    made = trace(
        cpu("outer", 0, 10),
        flow("s", "fwdbwd", 1, 0),
        cpu("inner", 0, 5),
        cpu("OuterBackward", 20, 10, thread=2),
        flow("f", "fwdbwd", 1, 20, thread=2),
    )
    assert pairs(made) == [("outer", "OuterBackward")]


def test_a_flow_that_stands_alone_belongs_to_the_innermost_slice_around_it() -> None:
    made = trace(
        flow("s", "fwdbwd", 1, 4),
        flow("s", "fwdbwd", 2, 15),
        cpu("outer", 0, 10),
        cpu("inner", 1, 2),
        cpu("middle", 3, 5),
        cpu("ended", 3, 0.5),
        cpu("Backward", 20, 10, thread=2),
        flow("f", "fwdbwd", 1, 25, thread=2),
        flow("f", "fwdbwd", 2, 25, thread=2),
        flow("f", "fwdbwd", 3, 25, thread=2),
    )
    assert pairs(made) == [("middle", "Backward")]


def test_flows_of_other_categories_have_ids_of_their_own() -> None:
    made = trace(
        cpu("forward", 0, 10),
        flow("s", "fwdbwd", 1, 0),
        runtime("cudaLaunchKernel", 2, 1, corr=1),
        flow("s", "ac2g", 1, 2),
        cpu("Backward", 20, 10),
        flow("f", "fwdbwd", 1, 20),
    )
    assert pairs(made) == [("forward", "Backward")]
    assert made.counts.flows == 3


NPU, CANN = 800, 900


def npu_program(*arrows: Entry) -> Trace:
    """An op whose runtime call, on a process of its own, starts two tasks of an NPU; joined by `arrows`."""
    return trace(
        metadata("process_name", "Ascend Hardware", pid=NPU),
        cpu("aten::add", 0, 20),
        cpu("aclnnAdd", 5, 10),
        event("AscendCL@aclnnAdd", 18, 6, cat="", pid=CANN, tid=2),
        event("Add_Cast", 40, 5, cat="", pid=NPU, tid=3),
        event("Add", 45, 5, cat="", pid=NPU, tid=3),
        event("MEMCPY_ASYNC", 60, 5, cat="", pid=NPU, tid=3),
        *arrows,
        format="chrome",
    )


def launches_of_npu(made: Trace) -> list[str | None]:
    rows = [
        next(k for k in range(len(made)) if made.event(k).name == name) for name in ("Add_Cast", "Add", "MEMCPY_ASYNC")
    ]
    launches = made.links.launch_of[rows].tolist()
    return [made.event(launch).name if launch >= 0 else None for launch in launches]


OP_ARROWS = [
    arrow
    for number, start in ((1, 40), (2, 45))
    for arrow in (flow("s", "async_npu", number, 5), flow("f", "async_npu", number, start, thread=3, pid=NPU))
]
CALL_ARROWS = [
    arrow
    for number, start in ((1, 40), (2, 45))
    for arrow in (
        flow("s", "HostToDevice", number, 19, thread=2, pid=CANN),
        flow("f", "HostToDevice", number, start, thread=3, pid=NPU),
    )
]


def test_work_of_an_npu_finds_its_op_by_arrows() -> None:
    made = npu_program(*OP_ARROWS)
    assert launches_of_npu(made) == ["aclnnAdd", "aclnnAdd", None]
    assert (made.links.launches, made.links.gpu_events, made.links.linked_gpu_events) == (1, 3, 2)


def test_without_those_it_finds_the_call_of_the_runtime() -> None:
    assert launches_of_npu(npu_program(*CALL_ARROWS)) == ["AscendCL@aclnnAdd", "AscendCL@aclnnAdd", None]
    assert launches_of_npu(npu_program(*CALL_ARROWS, *OP_ARROWS)) == ["aclnnAdd", "aclnnAdd", None]


def test_arrows_without_an_end_or_a_start_join_nothing() -> None:
    assert launches_of_npu(npu_program(OP_ARROWS[0], OP_ARROWS[3])) == [None, None, None]


def test_a_correlation_wins_over_an_arrow() -> None:
    made = trace(
        cpu("aten::mm", 0, 10),
        runtime("cudaLaunchKernel", 4, 2, corr=1),
        kernel("k", 20, 5, corr=1),
        flow("s", "async_npu", 1, 1),
        flow("f", "async_npu", 1, 20, thread=7, pid=0),
    )
    assert launch_names(made) == {"k": "cudaLaunchKernel"}


def called(made: Trace) -> list[tuple[str, str]]:
    links = made.links
    pairs_of_work = zip(links.called_work.tolist(), links.work_call.tolist(), strict=True)
    return [(made.event(work).name, made.event(call).name) for work, call in pairs_of_work]


CANN_PROCESS = metadata("process_name", "CANN", pid=CANN)


def test_the_call_that_handed_work_to_an_npu_is_kept_beside_its_op() -> None:
    made = npu_program(*OP_ARROWS, *CALL_ARROWS, CANN_PROCESS)
    assert launches_of_npu(made) == ["aclnnAdd", "aclnnAdd", None]
    assert called(made) == [("Add_Cast", "AscendCL@aclnnAdd"), ("Add", "AscendCL@aclnnAdd")]


def test_where_the_call_is_the_launch_no_second_one_is_kept() -> None:
    made = npu_program(*CALL_ARROWS, CANN_PROCESS)
    assert launches_of_npu(made) == ["AscendCL@aclnnAdd", "AscendCL@aclnnAdd", None]
    assert called(made) == []


def test_a_process_of_another_name_makes_no_runtime_calls() -> None:
    other = metadata("process_name", "Overlap Analysis", pid=CANN)
    made = npu_program(*OP_ARROWS, *CALL_ARROWS, other)
    assert called(made) == []
    assert Kind.RUNTIME not in made.kind.tolist()
    assert Kind.RUNTIME in npu_program(CANN_PROCESS).kind.tolist()
