"""Entries of programs on an Ascend NPU: ops on the program's thread, calls of CANN on another. Times in µs."""

from __future__ import annotations

import itertools

from tests.helpers.trace_builder import PID, TID, Entry, cpu, event, flow, metadata, step

NPU, CANN = 800, 900
STREAM, LAUNCHER = 3, 2

_numbers = itertools.count(1)


def cann(name: str, start: float, duration: float, thread: int = LAUNCHER) -> Entry:
    """A call of the runtime, on the process that Ascend draws it under; `thread` is that of the program."""
    return event(f"AscendCL@{name}", start, duration, cat="", pid=CANN, tid=thread)


def task(name: str, start: float, duration: float) -> Entry:
    return event(name, start, duration, cat="", pid=NPU, tid=STREAM)


def npu_op(
    at: float, npu_at: float, name: str = "aclnnAdd_AddAiCore_Add", npu_for: float = 50, *, op: str = "aten::add"
) -> list[Entry]:
    """An op of 5 µs; 10 µs after it began another thread calls CANN for 20 µs, for one task of the NPU."""
    return [cpu(op, at, 5), *_launch(at, npu_at, name, npu_for, "aclnnAdd", at + 10, 20)]


def compiled_op(at: float, call_for: float, *, compiling: float = 10) -> list[Entry]:
    """A convolution of 5 µs, whose call of CANN begins 10 µs later and compiles; the task begins 580 µs into it."""
    call_at = at + 10
    return [
        cpu("aten::conv2d", at, 5),
        *_launch(at, call_at + 580, "Conv2D1", 50, "aclopCompileAndExecute", call_at, call_for),
        cann("opCompile", call_at + 1, compiling),
    ]


def npu_program(*parts: list[Entry], length: float = 1000) -> list[Entry]:
    """One step with these ops."""
    return [
        metadata("process_name", "Python", pid=PID),
        metadata("process_name", "Ascend Hardware", pid=NPU),
        metadata("process_name", "CANN", pid=CANN),
        step(1, 0, length),
        *itertools.chain.from_iterable(parts),
    ]


def _launch(
    at: float, npu_at: float, name: str, npu_for: float, call: str, call_at: float, call_for: float
) -> list[Entry]:
    number = next(_numbers)
    return [
        cpu(name.split("_")[0].rstrip("1"), at + 1, 3),
        cann(call, call_at, call_for),
        task(name, npu_at, npu_for),
        flow("s", "async_npu", number, at + 2, thread=TID),
        flow("f", "async_npu", number, npu_at, thread=STREAM, pid=NPU),
        flow("s", "HostToDevice", number, call_at + call_for / 2, thread=LAUNCHER, pid=CANN),
        flow("f", "HostToDevice", number, npu_at, thread=STREAM, pid=NPU),
    ]
