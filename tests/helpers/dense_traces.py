"""Draw traces on a grid of 5 µs: many times are equal, and every bound of a rule is met exactly somewhere.

Two threads run ops with calls inside; calls launch, copy, record events, wait, allocate and load modules. Some work has
no launch, some waits have no record. Only `random.random` is used: its values are the same in all versions of Python.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from tests.helpers.trace_builder import (
    TID,
    Entry,
    annotation,
    cpu,
    instant,
    kernel,
    memcpy,
    memory,
    memset,
    overhead,
    python,
    runtime,
    step,
    sync,
)

Item = TypeVar("Item")

AUTOGRAD = 200
GRID = 5
SYNC_CALLS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaCtxSynchronize")
OPS = ("aten::mm", "aten::add", "aten::empty", "aten::copy_", "aten::addmm", "nccl:all_reduce", "autograd::engine")
KERNELS = ("ampere_sgemm_128x64_nn", "elementwise", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "softmax_warp_forward")
COPIES = ("Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pageable -> Device)")


class DenseTrace:
    """Draws the entries of one trace. `unit`: µs of one step of the grid."""

    def __init__(self, seed: int, unit: int = GRID, instructions: int = 28) -> None:
        self.entries: list[Entry] = []
        self._random = Random(seed)
        self._unit = unit
        self._corr = 0
        self._now = {TID: 0, AUTOGRAD: 0}
        self._stream_end: dict[tuple[int, int], int] = {}
        self._live: list[tuple[int, int]] = []  # address and size
        self._total = 0
        self._has_sync_events = seed % 3 != 0
        self._longest = 14 if seed % 2 else 5  # of works: the GPU or the CPU is the busier one
        for _ in range(self._pick((0, 0, 1, 2))):  # launched before the recording
            self._work("kernel", self._pick(KERNELS), self._ticks(4), corr=-1)
        for number in range(3):
            begin = max(self._now.values()) if number else self._ticks(2)
            self._now = dict.fromkeys(self._now, begin)
            for _ in range(instructions // 3):
                thread = self._pick((TID, TID, AUTOGRAD))
                self._instruct(thread)
            end = max(begin + unit, self._now[TID])
            if seed % 4:
                self.entries.append(step(number + 1, begin, end - begin))
            self._now[TID] = end + self._ticks(2)

    def _pick(self, items: tuple[Item, ...]) -> Item:
        return items[int(self._random.random() * len(items))]

    def _ticks(self, most: int) -> int:
        return int(self._random.random() * (most + 1)) * self._unit

    def _instruct(self, thread: int) -> None:
        name = self._pick(("op", "op", "op", "call", "call", "idle", "loader", "frame", "overhead", "mark"))
        begin = self._now[thread]
        if name in ("op", "frame", "loader"):
            self._now[thread] += self._ticks(1)
            for _ in range(self._pick((0, 1, 1, 2))):
                self._call(thread)
            self._now[thread] += self._ticks(2)
            duration = self._now[thread] - begin
            if name == "op":
                op = self._pick(OPS)
                if self._pick((True, False)):
                    self.entries.append(cpu("aten::linear", begin, duration, thread))
                self.entries.append(cpu(op, begin, duration, thread))
            elif name == "frame":
                self.entries.append(python(self._pick(("nn.Module: Net_0", "a.py(3): f")), begin, duration, thread))
            else:
                loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
                self.entries.append(annotation(loader, begin, duration, thread))
        elif name == "call":
            self._call(thread)
        elif name == "overhead":
            self.entries.append(overhead("Buffer Flush", begin, self._ticks(3)))
        elif name == "mark":
            self.entries.append(instant("mark", begin, thread))
        else:
            self._now[thread] += self._ticks(3)

    def _call(self, thread: int) -> None:
        name = self._pick(("launch", "launch", "launch", "copy", "graph", "wait", "sync", "sync", "memory", "load"))
        if not self._has_sync_events and self._ticks(1):  # waits are found by the order of calls and by times
            name = self._pick(("launch", "wait"))
        begin, length = self._now[thread], self._ticks(4)
        self._corr += 1
        if name == "launch":
            self._add_call("cudaLaunchKernel", begin, length, thread)
            self._work("kernel", self._pick(KERNELS), begin + self._ticks(4))
        elif name == "graph":
            self._add_call("cudaGraphLaunch", begin, length, thread)
            for _ in range(3):
                self._work("kernel", self._pick(KERNELS), begin + self._ticks(6))
        elif name == "copy":
            call = self._pick(("cudaMemcpyAsync", "cudaMemcpy", "cudaMemsetAsync"))
            self._add_call(call, begin, length, thread)
            self._work("set" if "set" in call else "copy", self._pick(COPIES), begin + self._ticks(2))
        elif name == "wait":
            self._add_wait(begin, thread)
            length = 2 * self._unit
        elif name == "sync":
            call = self._pick(SYNC_CALLS)
            if self._stream_end and self._ticks(2):  # it waits
                length = max(max(self._stream_end.values()) + self._ticks(1) - begin, 0)
            self._add_call(call, begin, length, thread)
            if self._has_sync_events:
                where = {"stream": self._pick((7, 8, -1)), "device": 0}
                self.entries.append(sync("Context Sync", begin, length, self._corr, **where))
        elif name == "memory":
            self._add_memory(begin + length, thread)
        else:
            self._add_call(
                self._pick(("cudaMalloc", "cuModuleLoadData", "cudaFuncGetAttributes")), begin, length, thread
            )
        self._now[thread] = begin + length

    def _add_call(self, name: str, begin: int, length: int, thread: int) -> None:
        self.entries.append(runtime(name, begin, length, self._corr, thread))

    def _work(self, kind: str, name: str, begin: int, corr: int | None = None) -> None:
        device, stream = self._pick(((0, 7), (0, 7), (0, 8), (1, 7)))
        begin = max(begin, self._stream_end.get((device, stream), 0))
        length = self._ticks(self._longest)
        self._stream_end[device, stream] = begin + length
        where: dict[str, Any] = {"stream": stream, "device": device}
        make = {"kernel": kernel, "copy": memcpy, "set": memset}[kind]
        name = "Memset (Device)" if kind == "set" else name
        self.entries.append(make(name, begin, length, self._corr if corr is None else corr, **where))

    def _add_wait(self, begin: int, thread: int) -> None:
        waiting, source = self._pick(((7, 8), (8, 7)))
        self._add_call("cudaEventRecord", begin, self._unit, thread)
        recorded, self._corr = self._corr, self._corr + 1
        self._add_call("cudaStreamWaitEvent", begin + self._unit, self._unit, thread)
        if (0, source) in self._stream_end:
            end = self._stream_end[0, source] + self._ticks(2)
            self._stream_end[0, waiting] = max(end, self._stream_end.get((0, waiting), 0))
            if not self._has_sync_events and self._ticks(1):
                self._now[thread] += self._ticks(2)
        if self._has_sync_events:
            more = {"wait_on_stream": source, "wait_on_cuda_event_record_corr_id": recorded}
            start = begin + self._unit
            self.entries.append(sync("Stream Wait Event", start, self._unit, self._corr, stream=waiting, **more))

    def _add_memory(self, time: int, thread: int) -> None:
        if self._live and self._ticks(1):
            address, size = self._live.pop(int(self._random.random() * len(self._live)))
            size = -size
        else:
            address, size = 512 * (1 + self._ticks(8)), self._pick((512, 512, 1024, 4096))
            self._live.append((address, size))
        self._total += size
        total = max(self._total, 0)
        self.entries.append(memory(time, size, total, device=0, thread=thread, reserved=8192, address=address))


def draw_entries(seed: int, unit: int = GRID) -> list[Entry]:
    """Draw the entries of a trace; the same ones for a seed."""
    return DenseTrace(seed, unit).entries


ADDRESS_BYTES = 512
BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
PHASES = {
    "build": "torch/nn/modules/linear.py(96): __init__",
    "load": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "forward": "nn.Module: Net_0",
    "backward": BACKWARD,
    "step": "Optimizer.step#Adam.step",
    "zero": "Optimizer.zero_grad#Adam.zero_grad",
    "outside": "train.py(3): main",
}


def draw_training(seed: int, big: tuple[int, ...] = ()) -> list[Entry]:
    """Draw the memory of a training: what each phase allocates and frees, of few sizes. `big`: further sizes."""
    random, time, total, corr = Random(seed), 0, 65536, 0
    live: dict[int, int] = {}
    entries: list[Entry] = [python("train.py(3): main", 0, 4000)] if seed % 2 else []

    def pick(count: int) -> int:
        return int(random.random() * count)

    order = [*["build", "outside"][: pick(3)], *["load", "forward", "backward", "step", "zero"] * 2]
    if pick(2):
        order.remove("zero")
    for phase in order:
        begin = time
        for _ in range(1 + pick(5)):
            time += GRID * pick(3)
            name = ("aten::mm", "aten::zeros", "aten::empty", "aten::to", "aten::relu")[pick(5)]
            if name == "aten::to":
                corr += 1
                entries.append(runtime("cudaMemcpyAsync", time + 1, 1, corr))
                entries.append(memcpy(COPIES[0], time + 2, 2, corr))
            elif name == "aten::mm":
                corr += 1
                entries.append(runtime("cudaLaunchKernel", time + 1, 1, corr))
                entries.append(kernel(KERNELS[0], time + 2, 2, corr, stream=7 + pick(2)))
            entries.append(cpu(name, time, GRID))
            if live and pick(3) == 0:
                address = sorted(live)[pick(len(live))]
                size = -live.pop(address)
            elif pick(8) == 0:
                address, size = ADDRESS_BYTES * (100 + pick(40)), -ADDRESS_BYTES  # older than the recording
            else:
                sizes = (512, 512, 1024, 2048, *big)
                address, size = ADDRESS_BYTES * (1 + pick(30)), sizes[pick(len(sizes))]
                live[address] = size
            total = max(total + size, 0)
            entries.append(memory(time + pick(GRID + 1), size, total, device=0, address=address, reserved=1 << 17))
            time += GRID
        is_frame = phase in ("build", "forward", "outside")
        make = python if is_frame else cpu if phase == "backward" else annotation
        thread = AUTOGRAD if phase == "backward" and seed % 3 == 0 else TID
        entries.append(make(PHASES[phase], begin, time - begin, thread))
        time += GRID * pick(2)
    return entries
