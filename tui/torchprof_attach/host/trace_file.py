"""Look into a recorded file without decoding it, and write into it which rank it is of.

The file is scanned once as bytes, in blocks: on the host of a job nothing may take much memory or time.
"""

from __future__ import annotations

import json
import os
import re
import statistics
from typing import Any, NamedTuple

BLOCK_BYTES, OVERLAP_BYTES = 4 << 20, 1024
TAIL_BYTES = 4096

_STEP = re.compile(
    rb'"cat": ?"user_annotation",\s*"name": ?"(ProfilerStep#[0-9]+|Optimizer\.step#[^"]{0,200})"[^{}]{0,200}?'
    rb'"ts": ?([0-9.]+),\s*"dur": ?([0-9.]+)'
)
_BASE = re.compile(rb'"baseTimeNanoseconds": ?([0-9]{1,20})')
_TRACE_NAME = re.compile(rb'"traceName": ?"')

EVIDENCE = {
    "shapes": b'"Input Dims"',
    "stacks": b'"python_function"',
    "memory": b'"[memory]"',
    "flops": b'"flops"',
    "modules": b"nn.Module: ",
}
"""Text that is in a trace for which an option was in force."""


LAUNCHES = (b"cudaLaunchKernel", b"cudaGraphLaunch")


class Content(NamedTuple):
    """What a file holds. `steps`: ns since the epoch of the end of each iteration; `first_step`: its number or None.

    `launches`: of kernels and of graphs, by CUDA.
    """

    size: int
    operations: int
    kernels: int
    steps: list[int]
    first_step: int | None
    step_seconds: float | None
    found: list[str]
    launches: list[int]

    @property
    def is_empty(self) -> bool:
        return not self.operations and not self.kernels


def scan(path: str) -> Content:
    """Scan a trace. Raises OSError."""
    steps: dict[bytes, list[tuple[float, float]]] = {}
    counts = dict.fromkeys((b'"cat": "cpu_op"', b'"cat": "kernel"', *EVIDENCE.values(), *LAUNCHES), 0)
    base, carry = 0, b""
    with open(path, "rb") as file:
        while True:
            block = file.read(BLOCK_BYTES)
            text = carry + block
            if not base:
                found = _BASE.search(text)
                base = int(found[1]) if found else 0
            end = len(text) - (OVERLAP_BYTES if block else 0)  # what begins behind it is found with the next block
            for match in _STEP.finditer(text):
                if match.start() < end:
                    kind = match[1] if match[1].startswith(b"O") else b"ProfilerStep"
                    number = float(match[1][13:]) if kind == b"ProfilerStep" else -1.0
                    steps.setdefault(kind, []).append((float(match[2]) + float(match[3]), number))
            for word in counts:
                counts[word] += text.count(word, 0, max(end, 0) + len(word) - 1)
            if not block:
                break
            carry = text[max(end, 0) :]
    ends = steps.get(b"ProfilerStep") or max(steps.values(), key=len, default=[])
    ends.sort()
    times = [base + round(end * 1000) for end, _ in ends]
    gaps = [later - earlier for earlier, later in zip(times, times[1:])]  # noqa: B905, RUF007 (Python 3.8)
    number = ends[0][1] if ends else -1.0
    return Content(
        os.stat(path).st_size,
        counts[b'"cat": "cpu_op"'],
        counts[b'"cat": "kernel"'],
        times,
        int(number) if number >= 0 else None,
        statistics.median(gaps) / 1e9 if gaps else None,
        [name for name, word in EVIDENCE.items() if counts[word]],
        [counts[word] for word in LAUNCHES],
    )


def add_origin(path: str, origin: dict[str, Any]) -> bool:
    """Write into the end of a trace where it comes from, and its rank. Returns False where the end is not Kineto's."""
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(size - TAIL_BYTES, 0)
        file.seek(start)
        tail = file.read()
        found = list(_TRACE_NAME.finditer(tail))
        if not found:
            return False
        added: dict[str, Any] = {"torchprof_attach": origin}
        if origin.get("rank") is not None and origin.get("world_size") is not None:
            added["distributedInfo"] = {"rank": origin["rank"], "world_size": origin["world_size"]}
        text = json.dumps(added)[1:-1].encode() + b", "
        file.seek(start + found[-1].start())
        file.write(text + tail[found[-1].start() :])
    return True
