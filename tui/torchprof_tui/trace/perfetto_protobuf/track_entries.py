"""Make the `M` entries that a JSON trace has for the processes, threads and GPU streams of a Perfetto trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchprof_tui.trace.perfetto_protobuf.packet_context import PacketContext
from torchprof_tui.trace.perfetto_protobuf.packet_entries import PROFILER_PID, Entry
from torchprof_tui.trace.perfetto_protobuf.render_stages import split_queue_name

_GPU_SORT_INDEX = 5_000_000
"""Sort index of device 0, as Kineto writes it."""


def build_track_entries(context: PacketContext, gpu_tracks: Iterable[tuple[str, str]]) -> list[Entry]:
    """Build the entries. `gpu_tracks`: pids and tids of GPU work."""
    resolved = context.resolved
    gpus = dict.fromkeys(pid for pid, _ in gpu_tracks)
    entries = []
    for pid, name in resolved.process_names.items():
        if pid not in gpus:
            label = "Overhead" if pid == PROFILER_PID else "CPU"
            entries += [_describe("process_name", pid, "0", name), _describe("process_labels", pid, "0", label)]
    for (pid, tid), name in resolved.thread_names.items():
        if pid not in gpus and name and not (name == tid and tid.isdecimal()):
            entries.append(_describe("thread_name", pid, tid, name))
    for pid in gpus:
        entries += [_describe("process_name", pid, "0", "python"), _describe("process_labels", pid, "0", f"GPU {pid}")]
        if pid.isdecimal():
            entries.append(_describe("process_sort_index", pid, "0", _GPU_SORT_INDEX + int(pid)))
    lanes = {
        split_queue_name(name) for table in context.tables for name in table.specifications.values() if name[:1] == "["
    }
    for pid, tid in gpu_tracks:
        entries += [_describe("thread_name", pid, tid, name) for number, name in sorted(lanes) if number == tid]
        if tid.isdecimal():
            entries.append(_describe("thread_sort_index", pid, tid, int(tid)))
    return entries


_VALUE_KEYS = {"process_labels": "labels", "process_sort_index": "sort_index", "thread_sort_index": "sort_index"}


def _describe(kind: str, pid: str, tid: str, value: Any) -> Entry:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {_VALUE_KEYS.get(kind, "name"): value}}
