"""Read what the file's `M` entries declare about processes and threads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torchprof_tui.trace.build.event_phases import EntryAccounting
from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.core.problems import UNREADABLE_NAME, excerpt

_KNOWN_NAMES = frozenset(("process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"))

_MAX_NAME_LENGTH = 4096  # most characters of a name of a process or a thread: more than any lane, and any panel, shows
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
    def from_entries(
        cls, metadata: Iterable[tuple[str, str, str, Any]], accounting: EntryAccounting | None = None
    ) -> TrackMetadata:
        """Collect `M` entries given as (name, pid, tid, value). Values of the wrong type are reported and left out."""
        tracks = cls()
        unusable: list[str] = []
        for name, pid, tid, value in metadata:
            if value is None or name not in _KNOWN_NAMES:
                continue
            text = value[:_MAX_NAME_LENGTH].strip() if isinstance(value, str) else str(value)
            if not isinstance(value, (str, int, float)):
                unusable.append(f"{name}: {excerpt(dump_bounded(value))}")
            elif name == "process_name":
                tracks.process_names[pid] = text
            elif name == "process_labels":
                tracks.process_labels[pid] = text
            elif name == "process_sort_index":
                tracks.process_sort_index[pid] = _parse_number(value)
            elif name == "thread_name":
                match = _KINETO_THREAD.fullmatch(text)
                tracks.thread_names[pid, tid] = match[1] if match else text
            elif name == "thread_sort_index":
                tracks.thread_sort_index[pid, tid] = _parse_number(value)
        if unusable and accounting is not None:
            accounting.add(UNREADABLE_NAME, unusable[0], len(unusable))
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
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if math.isfinite(number) else 0.0
