"""In which order lanes stand, and what they are called: from what the file's `M` entries declare."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torchprof_tui.trace.build.lane_assignment import DEVICE_WIDE, SPANS, Place
from torchprof_tui.trace.model.lanes import Role

_KINETO_THREAD = re.compile(r"thread \S+ \((.*)\)", re.DOTALL)
_AROUND_STREAM = {Role.GPU_ANNOTATIONS: 0, Role.STREAM: 1, Role.SYNC: 2}

_TOGETHER = {
    Role.THREAD: "threads",
    Role.STREAM: "streams",
    Role.SYNC: "sync lanes",
    Role.GPU_ANNOTATIONS: "annotation lanes",
    Role.ASYNC: "async lanes",
    Role.PROFILER: "overhead lanes",
}


@dataclass(slots=True)
class Declared:
    """What the file says about processes (by pid) and threads (by pid and tid). Later entries replace earlier ones:
    Kineto names a thread twice, first by its process, then by itself."""

    process: dict[str, str] = field(default_factory=dict)
    label: dict[str, str] = field(default_factory=dict)
    process_order: dict[str, float] = field(default_factory=dict)
    thread: dict[tuple[str, str], str] = field(default_factory=dict)
    thread_order: dict[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def read(cls, metadata: Iterable[tuple[str, str, str, Any]]) -> Declared:
        found = cls()
        for name, pid, tid, value in metadata:
            if value is None:
                continue
            if name == "process_name":
                found.process[pid] = str(value).strip()
            elif name == "process_labels":
                found.label[pid] = str(value).strip()
            elif name == "process_sort_index":
                found.process_order[pid] = _number(value)
            elif name == "thread_name":
                text = str(value).strip()
                match = _KINETO_THREAD.fullmatch(text)
                found.thread[pid, tid] = match[1] if match else text
            elif name == "thread_sort_index":
                found.thread_order[pid, tid] = _number(value)
        return found

    def is_accelerator(self, pid: str) -> bool:
        """Ascend puts what its NPU did under a process of this name, without categories."""
        return self.process.get(pid) == "Ascend Hardware"

    def is_gpu(self, pid: str) -> bool:
        """Kineto labels the processes that stand for devices "GPU 0", "XPU 0", … and the others "CPU"."""
        return re.fullmatch(r"[A-Z]PU [0-9]+", self.label.get(pid, "")) is not None


def section(role: Role) -> int:
    """Lanes stand in four sections: threads, streams and what is around them, async events, the profiler's own."""
    if role is Role.THREAD:
        return 0
    return 1 if role in _AROUND_STREAM else 2 if role is Role.ASYNC else 3


def arrange(places: list[Place], declared: Declared) -> list[Place]:
    """The launching thread first, other threads by process, streams by device, async, the profiler last.

    The launching thread is one that launches GPU work and runs the steps: in training, the autograd thread launches
    more. Else the one with most launches, else one with steps, else with most events.
    """
    threads = [place for place in places if place.role is Role.THREAD]
    lead = max(threads, key=_leading, default=None)

    def key(place: Place) -> tuple[Any, ...]:
        if place.role is Role.THREAD:
            track = (place.pid, place.tid)
            return (
                0,
                place is not lead,
                lead is not None and place.pid != lead.pid,
                declared.process_order.get(place.pid, 0.0),
                _natural(place.pid),
                -place.launches,
                declared.thread_order.get(track, 0.0),
                _natural(place.tid),
            )
        if place.role in _AROUND_STREAM:
            return (
                1,
                place.device is None,
                _natural(place.pid),
                place.stream == DEVICE_WIDE,
                _natural(place.tid),
                _AROUND_STREAM[place.role],
            )
        if place.role is Role.ASYNC:
            return (2, place.pid != (lead.pid if lead else ""), _natural(place.pid), place.tid)
        return (3, place.tid == SPANS, place.pid == "profiler", _natural(place.pid), _natural(place.tid))

    return sorted(places, key=key)


def _leading(place: Place) -> tuple[bool, int, bool, int]:
    return (place.has_step and place.launches > 0, place.launches, place.has_step, place.events)


def together(place: Place) -> str:
    """What a lane is called on which several are drawn: how many."""
    of = "" if place.device is None else f" of GPU {place.device}"
    return f"{place.further:,} further {_TOGETHER[place.role]}{of}"


def describe(
    place: Place, declared: Declared, kineto: bool, several: bool, device_names: dict[int, str]
) -> tuple[str, str]:
    """Label and group heading. `several`: there are threads of more than one process."""
    pid, tid = place.pid, place.tid
    process = declared.process.get(pid, "")
    thread = declared.thread.get((pid, tid), "")
    if place.further:
        return together(place), "further lanes"
    whose = " ".join(filter(None, [process or "process", pid]))
    if place.role in _AROUND_STREAM:
        suffix = {Role.STREAM: "", Role.SYNC: " sync", Role.GPU_ANNOTATIONS: " annotations"}[place.role]
        if place.device is None:
            return (thread or (f"stream {tid}" if tid.isdecimal() else tid or "stream")) + suffix, whose
        group = " ".join(filter(None, ["GPU", str(place.device), device_names.get(place.device, "")]))
        return ("device" if place.stream == DEVICE_WIDE else f"stream {place.stream}") + suffix, group
    if place.role is Role.PROFILER:
        return (tid if pid == "profiler" else "overhead" if pid.startswith("-") else f"overhead {tid}"), "profiler"
    if place.role is Role.ASYNC:
        return tid or "async", f"async {whose}" if several else "async"
    if kineto:
        # A Python frame of a thread that Kineto does not know has pid 0 and tid 0: not a thread of "GPU 0".
        label = " ".join(filter(None, ["CPU", tid, thread]))
        return label, f"CPU {whose}" if several and not declared.is_gpu(pid) else "CPU"
    if thread:
        return (thread if tid in thread else f"{thread} {tid}"), whose
    return (f"thread {tid}" if tid else "thread"), whose


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _natural(text: str) -> tuple[int, int, str]:
    """Numbers by value and before words."""
    return (0, int(text), "") if re.fullmatch(r"-?[0-9]{1,30}", text) else (1, 0, text)
