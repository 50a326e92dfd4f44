"""Test which lanes there are, in which order, and their labels."""

from __future__ import annotations

from tests.helpers.trace_builder import (
    Entry,
    counter,
    cpu,
    event,
    gpu_annotation,
    kernel,
    memory,
    metadata,
    on_gpu,
    overhead,
    runtime,
    step,
    sync,
    trace,
)
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

H200 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": ""}]}


def labels(made: Trace) -> list[tuple[str, str]]:
    return [(lane.group, lane.label) for lane in made.lanes]


def thread_name(tid: int, name: str, pid: int = 100) -> Entry:
    return metadata("thread_name", name, pid, tid)


def test_a_torch_trace() -> None:
    made = trace(
        overhead("Buffer Flush", 0, 1),
        memory(1, 10, 10),
        kernel("on 1", 20, 1, stream=7, device=1),
        kernel("k", 20, 1, corr=1, stream=20),
        kernel("k", 22, 1, corr=2, stream=7),
        gpu_annotation("ProfilerStep#1", 20, 5, stream=7),
        sync("Stream Sync", 24, 1, stream=7),
        sync("Context Sync", 25, 1, stream=-1),
        cpu("autograd", 0, 5, thread=300),
        cpu("op", 0, 10, thread=200),
        runtime("cudaLaunchKernel", 1, 1, corr=1, thread=200),
        runtime("cudaLaunchKernel", 3, 1, corr=2, thread=200),
        metadata("process_name", "python3"),
        metadata("process_labels", "CPU"),
        *(metadata("process_labels", f"GPU {k}", pid=k) for k in range(16)),
        thread_name(200, "thread 200 (python3)"),
        thread_name(300, "thread 300 (python3)"),
        thread_name(300, "thread 300 (pt_autograd_0)"),
        header=H200,
    )
    assert labels(made) == [
        ("CPU", "CPU 200 python3"),
        ("CPU", "CPU 300 pt_autograd_0"),
        ("GPU 0 NVIDIA H200", "stream 7 annotations"),
        ("GPU 0 NVIDIA H200", "stream 7"),
        ("GPU 0 NVIDIA H200", "stream 7 sync"),
        ("GPU 0 NVIDIA H200", "stream 20"),
        ("GPU 0 NVIDIA H200", "device sync"),
        ("GPU 1", "stream 7"),
        ("memory", "CPU allocated"),
        ("profiler", "overhead"),
    ]
    roles = [Role.GPU_ANNOTATIONS, Role.STREAM, Role.SYNC, Role.STREAM, Role.SYNC, Role.STREAM]
    assert [lane.role for lane in made.lanes[2:8]] == roles
    assert [lane.device for lane in made.lanes] == [None, None, 0, 0, 0, 0, 0, 1, None, None]
    assert [lane.kind for lane in made.lanes] == [*["cpu"] * 2, *["gpu"] * 6, "counter", "profiler"]


def test_without_launches_the_thread_with_steps_comes_first() -> None:
    made = trace(*(cpu("op", k, 1, thread=1) for k in range(5)), step(1, 0, 9, thread=2))
    assert [lane.tid for lane in made.lanes] == ["2", "1"]


def test_without_steps_the_busiest_thread_comes_first_and_the_rest_by_number() -> None:
    made = trace(cpu("op", 0, 1, thread=10), cpu("op", 0, 1, thread=9), *(cpu("op", k, 1, thread=30) for k in range(3)))
    assert [lane.tid for lane in made.lanes] == ["30", "9", "10"]


def test_args_say_where_gpu_work_ran_not_pid_and_tid() -> None:
    """torch 1.9 wrote "stream 7"; stream -1 was shown as tid 1; one stream may appear under two tids."""
    made = trace(
        event("a", 0, 1, "Kernel", pid=0, tid="stream 7", args={"device": 0, "stream": 7}),
        event("b", 2, 1, "kernel", pid=0, tid=7, args={"device": 0, "stream": 7}),
        event("c", 4, 1, "kernel", pid="0", tid="7"),
        event("d", 6, 1, "cuda_sync", pid=0, tid=1, args={"stream": 4294967295, "device": 0}),
        event("e", 8, 1, "kernel", pid=0, tid=7, args={"device": 0}),
    )
    assert [(lane.label, len(lane)) for lane in made.lanes] == [("stream 7", 4), ("device sync", 1)]


def test_the_pid_says_the_device_where_args_say_only_the_stream() -> None:
    made = trace(
        event("a", 0, 1, "kernel", pid=0, tid="compute", args={"device": 0, "stream": 7}),
        event("b", 2, 1, "kernel", pid=0, tid="copy", args={"stream": 7}),
    )
    assert [(lane.device, lane.label, len(lane)) for lane in made.lanes] == [(0, "stream 7", 2)]


def test_gpu_work_of_no_known_device_is_assigned_by_track() -> None:
    made = trace(event("k", 0, 1, "kernel", pid=70000, tid="compute"), event("k", 0, 1, "kernel", pid=0, tid="copy"))
    assert [(lane.pid, lane.tid, lane.device, lane.label) for lane in made.lanes] == [
        ("0", "copy", None, "copy"),
        ("70000", "compute", None, "compute"),
    ]


def test_work_of_an_ascend_npu_is_gpu_work() -> None:
    made = trace(
        metadata("process_name", "Ascend Hardware", pid=900),
        metadata("process_labels", "NPU", pid=900),
        metadata("thread_name", "Stream 2", pid=900, tid=2),
        metadata("process_name", "Python", pid=100),
        {"ph": "X", "name": "MatMul", "pid": 900, "tid": 2, "ts": "5.250", "dur": 3, "args": {"Task Type": "AI_CORE"}},
        cpu("aten::mm", 0, 10),
    )
    assert labels(made) == [("CPU", "CPU 100"), ("Ascend Hardware 900", "Stream 2")]
    assert made.kind.tolist() == [Kind.OP, Kind.KERNEL]
    assert made.lanes[1].kind == "gpu"


def test_streams_do_not_nest_but_annotations_on_them_do() -> None:
    made = trace(
        kernel("long", 0, 10),
        kernel("short", 2, 1),
        gpu_annotation("outer", 0, 10),
        gpu_annotation("inner", 2, 5),
    )
    rows = {made.event(k).name: (made.event(k).row, int(made.parent[k])) for k in range(4)}
    assert rows == {"outer": (0, -1), "inner": (1, 0), "long": (0, -1), "short": (1, -1)}
    assert [lane.rows for lane in made.lanes] == [2, 2]


def test_other_programs_name_their_processes_and_threads() -> None:
    made = trace(
        event("a", 0, 1, "v8", pid=1, tid=11),
        event("b", 0, 1, "v8", pid=1, tid=12),
        event("c", 0, 1, "v8", pid=2, tid=11),
        counter("heap", 0, used=1),
        metadata("process_name", "Renderer", pid=1),
        metadata("thread_name", "CrRendererMain", pid=1, tid=11),
        metadata("thread_name", "Worker/12", pid=1, tid=12),
        metadata("process_sort_index", -5, pid=2),
        format="chrome",
    )
    assert labels(made) == [
        ("Renderer 1", "CrRendererMain 11"),
        ("Renderer 1", "Worker/12"),
        ("process 2", "thread 11"),
        ("process 100", "heap used"),
    ]


def test_threads_of_several_processes_name_their_process() -> None:
    made = trace(
        cpu("a", 0, 1),
        {**cpu("b", 0, 1), "pid": 101},
        event("frame of an unknown thread", 0, 1, "python_function", pid=0, tid=0),
        metadata("process_labels", "GPU 0", pid=0),
        metadata("process_name", "python", pid=101),
    )
    assert labels(made) == [("CPU process 100", "CPU 100"), ("CPU", "CPU 0"), ("CPU python 101", "CPU 100")]


def test_a_category_named_trace_is_the_profilers_only_on_its_own_processes() -> None:
    made = trace(event("mine", 0, 1, "trace"), event("span", 0, 1, "Trace", pid="Spans", tid="PyTorch Profiler"))
    assert [lane.kind for lane in made.lanes] == ["cpu", "profiler"]


def test_a_stream_of_every_number() -> None:
    numbers = [0, 7, 2**40, -5]
    made = trace(*(on_gpu("kernel", "k", k, 1, stream=number) for k, number in enumerate(numbers)))
    assert [lane.label for lane in made.lanes] == ["stream -5", "stream 0", "stream 7", f"stream {2**40}"]
