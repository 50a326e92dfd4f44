"""Test idle time on accelerators whose launches and waits are recorded in other ways: Ascend's NPUs, MTIA."""

from __future__ import annotations

import pytest

from tests.helpers.npu_traces import NPU, STREAM, cann, compiled_op, npu_op, npu_program, task
from tests.helpers.pattern_traces import check_pattern
from tests.helpers.trace_builder import TID, Entry, cpu, event, flow, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.trace.model.event_kind import Kind

US = 1000


def pieces(entries: list[Entry], t0: float, t1: float) -> dict[str, int]:
    """Idle time of a range (µs) by cause."""
    gaps = Checker(trace(*entries)).gap_finder.clip(int(t0 * US), int(t1 * US))
    return {cause.id: time // US for cause, time in gaps.time_by_cause().items()}


def test_the_call_of_the_runtime_divides_a_gap_not_the_op() -> None:
    """The op runs from 110 to 115 µs; the call that hands its task over from 120 to 140, the task begins at 150."""
    entries = npu_program(npu_op(10, 40), npu_op(110, 150))
    assert pieces(entries, 90, 150) == {"host_code": 25, "dispatch": 5, "launch": 20, "queued": 10}


def test_an_op_that_is_compiled_is_a_cold_call_however_short() -> None:
    # The call takes 120 to 820 µs, its task begins at 700; the task before ended at 90.
    assert pieces(npu_program(npu_op(10, 40), compiled_op(110, 700)), 90, 700) == {
        "host_code": 25,
        "dispatch": 5,
        "cold_call": 580,
    }


def test_calls_before_the_one_that_ends_the_gap_are_dispatch() -> None:
    tiling = [cann("Add_Tiling", 100, 15)]
    assert pieces(npu_program(npu_op(10, 40), tiling, npu_op(110, 150)), 90, 120) == {"host_code": 15, "dispatch": 15}


def test_the_tasks_of_one_call_are_handed_over_one_by_one() -> None:
    """A second task of the same call: the NPU waits for the call while it lasts, and then for nothing known."""
    second = [
        task("trans_TransData_7", 160, 20),
        flow("s", "async_npu", 901, 112, thread=TID),
        flow("f", "async_npu", 901, 160, thread=STREAM, pid=NPU),
        flow("s", "HostToDevice", 901, 139, thread=2, pid=900),
        flow("f", "HostToDevice", 901, 160, thread=STREAM, pid=NPU),
    ]
    entries = npu_program(npu_op(10, 40), npu_op(110, 125, npu_for=5), second)
    assert pieces(entries, 130, 160) == {"launch": 10, "queued": 20}


@pytest.mark.parametrize(
    "name",
    ["aclrtSynchronizeStream", "aclrtSynchronizeStreamWithTimeout", "aclrtSynchronizeDevice", "aclrtSynchronizeEvent",
     "aclrtSynchronizeEventWithTimeout", "aclrtMemcpy"],
)  # fmt: skip
def test_waits_of_the_programs_thread_are_found_on_its_other_lane(name: str) -> None:
    waiting = [cpu("aten::item", 95, 60), cann(name, 100, 50, thread=TID)]
    entries = npu_program(npu_op(10, 40), waiting, npu_op(160, 200))
    assert pieces(entries, 90, 170)["sync"] == 50
    finding = check_pattern(trace(*entries), "sync-in-step")
    assert finding.state is State.FIRED
    assert f"(AscendCL@{name}; aten::item)" in finding.answer.seen


@pytest.mark.parametrize("name", ["aclrtMemcpyAsync", "aclrtSetDevice"])
def test_other_calls_do_not_wait(name: str) -> None:
    entries = npu_program(npu_op(10, 40), [cann(name, 100, 50, thread=TID)], npu_op(160, 200))
    assert "sync" not in pieces(entries, 90, 200)


def test_a_wait_outside_any_op_is_the_programs_own() -> None:
    entries = npu_program(npu_op(10, 40), [cann("aclrtSynchronizeDevice", 100, 50, thread=TID)], npu_op(160, 200))
    finding = check_pattern(trace(*entries), "sync-in-step")
    assert "none of them in an op" in finding.answer.seen
    assert "torch.npu.synchronize()" in finding.remedy.action


def test_a_stream_that_waits_does_no_work() -> None:
    made = trace(*npu_program(npu_op(10, 40), [task("EVENT_WAIT_SQE", 100, 40)]))
    waiting = made.names.index("EVENT_WAIT_SQE")
    assert made.kind[made.name == waiting].tolist() == [Kind.SYNC]
    assert Checker(made).tables.busy_intervals[Checker(made).tables.devices[0]].total == 50 * US


def mtia(name: str, start: float, duration: float, correlation: int) -> Entry:
    return event(name, start, duration, "mtia_runtime", tid=TID, args={"correlation": correlation})


def on_mtia(name: str, start: float, duration: float, correlation: int) -> Entry:
    args = {"device": 0, "stream": 7, "correlation": correlation}
    return event(name, start, duration, "mtia_ccp_events", pid=0, tid=7, args=args)


MTIA_STEP = [
    step(1, 0, 500),
    cpu("aten::copy_", 8, 10),
    mtia("enqueueCommand memcpyHtoDAsync", 10, 5, 1),
    *(on_mtia(f"memcpy part {k}", 20 + 10 * k, 10, 1) for k in range(3)),
    cpu("aten::item", 60, 100),
    mtia("event_wait", 65, 90, 2),
    cpu("aten::add", 170, 20),
    mtia("enqueueCommand run", 175, 10, 3),
    on_mtia("add_kernel", 200, 100, 3),
]


def test_mtia_launches_are_joined_by_correlation() -> None:
    made = trace(*MTIA_STEP)
    names = {made.event(int(row)).name: int(made.links.launch_of[row]) for row in range(len(made))}
    assert made.event(names["add_kernel"]).name == "enqueueCommand run"
    assert made.links.linked_gpu_events == made.links.gpu_events == 4
    assert check_pattern(made, "graph-replay").state is State.ABSENT


def test_mtia_waits_for_events_in_event_wait() -> None:
    # The copy ends at 50, the kernel begins at 200: idle for 150 µs.
    assert pieces(MTIA_STEP, 50, 200) == {"sync": 90, "dispatch": 15, "host_code": 20, "launch": 10, "queued": 15}
    finding = check_pattern(trace(*MTIA_STEP), "sync-in-step")
    assert finding.state is State.FIRED
    assert "(event_wait; aten::item)" in finding.answer.seen


def test_an_event_wait_of_mtias_device_is_no_work() -> None:
    made = trace(*MTIA_STEP, on_mtia("event_wait", 60, 90, 2))
    assert Checker(made).tables.busy_intervals[0].total == 130 * US


def test_mtia_records_copies_and_waits_like_kernels() -> None:
    names = ("dma_request", "event_wait", "event_record", "merge")
    made = trace(*(on_mtia(name, 10 * k, 5, k + 1) for k, name in enumerate(names)))
    kinds = {made.names[name]: Kind(kind) for name, kind in zip(made.name.tolist(), made.kind.tolist(), strict=True)}
    assert kinds == {
        "dma_request": Kind.COPY,
        "event_wait": Kind.SYNC,
        "event_record": Kind.SYNC,
        "merge": Kind.KERNEL,
    }
