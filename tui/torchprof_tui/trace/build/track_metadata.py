"""Read what the file's `M` entries declare about processes and threads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_KINETO_THREAD = re.compile(r"thread \S+ \((.*)\)", re.DOTALL)


@dataclass(slots=True)
class TrackMetadata:
    """Names, labels and sort indexes of processes (by pid) and threads (by pid and tid).

    Later entries replace earlier ones: Kineto names a thread twice, first by its process, then by itself.
    """

    process_names: dict[str, str] = field(default_factory=dict)
    process_labels: dict[str, str] = field(default_factory=dict)
    process_sort_index: dict[str, float] = field(default_factory=dict)
    thread_names: dict[tuple[str, str], str] = field(default_factory=dict)
    thread_sort_index: dict[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def from_entries(cls, metadata: Iterable[tuple[str, str, str, Any]]) -> TrackMetadata:
        """Collect `M` entries given as (name, pid, tid, value)."""
        tracks = cls()
        for name, pid, tid, value in metadata:
            if value is None:
                continue
            if name == "process_name":
                tracks.process_names[pid] = str(value).strip()
            elif name == "process_labels":
                tracks.process_labels[pid] = str(value).strip()
            elif name == "process_sort_index":
                tracks.process_sort_index[pid] = _parse_number(value)
            elif name == "thread_name":
                text = str(value).strip()
                match = _KINETO_THREAD.fullmatch(text)
                tracks.thread_names[pid, tid] = match[1] if match else text
            elif name == "thread_sort_index":
                tracks.thread_sort_index[pid, tid] = _parse_number(value)
        return tracks

    def is_accelerator(self, pid: str) -> bool:
        """Tell whether this is the process under which Ascend puts the work of its NPU, without categories."""
        return self.process_names.get(pid) == "Ascend Hardware"

    def is_runtime(self, pid: str) -> bool:
        """Tell whether this is the process under which Ascend puts the calls of its runtime, without categories."""
        return self.process_names.get(pid) == "CANN"

    def is_gpu(self, pid: str) -> bool:
        """Tell whether the process is a device: Kineto labels those "GPU 0", "XPU 0", … and the others "CPU"."""
        return re.fullmatch(r"[A-Z]PU [0-9]+", self.process_labels.get(pid, "")) is not None


def _parse_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
