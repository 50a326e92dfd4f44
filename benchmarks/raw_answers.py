"""Answers to questions about traces, read from the raw JSON with plain loops: nothing of the program is used.

Times are ns. A raw trace is the list of its complete events ("ph": "X") and of its [memory] instants.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class RawTrace:
    """The parsed file. `tokens`: of its text, estimated."""

    entries: list[Entry]
    header: dict[str, Any]
    tokens: int

    def select(self, *categories: str) -> list[Entry]:
        return [each for each in self.entries if each.get("ph") == "X" and each.get("cat") in categories]

    def named(self, name: str, category: str = "cpu_op") -> list[Entry]:
        return sorted((each for each in self.select(category) if each["name"] == name), key=lambda each: each["ts"])


def read_raw(path: Path) -> RawTrace:
    text = gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace")
    document = json.loads(text)
    return RawTrace(document["traceEvents"], document, len(text) // CHARACTERS_PER_TOKEN)


def to_ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def list_steps(raw: RawTrace) -> list[Entry]:
    return [each for each in raw.select("user_annotation") if each["name"].startswith("ProfilerStep#")]


def sum_by_name(raw: RawTrace, *categories: str) -> dict[str, int]:
    """Sum durations by name, longest first."""
    sums: dict[str, int] = defaultdict(int)
    for each in raw.select(*categories):
        sums[each["name"]] += to_ns(each["dur"])
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def measure_busy(raw: RawTrace, first: float = float("-inf"), last: float = float("inf")) -> int:
    """Measure the time between two times (µs) in which any GPU work runs: the union of its intervals, in ns."""
    busy, end = 0.0, first
    for each in sorted(raw.select(*GPU_WORK), key=lambda each: each["ts"]):
        stop = min(each["ts"] + each["dur"], last)
        busy += max(0.0, stop - max(each["ts"], end))
        end = max(end, stop)
    return to_ns(busy)


def find_launched(raw: RawTrace, op: Entry) -> list[tuple[Entry, Entry]]:
    """Find (launch, GPU work) of the launches inside an op, on its thread."""
    work = {each["args"].get("correlation"): each for each in raw.select(*GPU_WORK)}
    return [
        (each, work[each["args"]["correlation"]])
        for each in raw.select(*LAUNCHES)
        if each["tid"] == op["tid"]
        and op["ts"] <= each["ts"] <= op["ts"] + op["dur"]
        and each.get("args", {}).get("correlation") in work
    ]


def find_single_launch(raw: RawTrace, name: str) -> tuple[int, Entry, Entry]:
    """Find the first op of a name that launches one piece of GPU work: (nth, launch, work)."""
    for nth, op in enumerate(raw.named(name)):
        found = find_launched(raw, op)
        if len(found) == 1:
            return nth, *found[0]
    raise LookupError(f"no {name} with one launch")


def list_memory(raw: RawTrace, device_type: int) -> list[dict[str, Any]]:
    """List the args of [memory] instants of CPUs (0) or GPUs (1)."""
    return [each["args"] for each in list_memory_entries(raw, device_type)]


def list_memory_entries(raw: RawTrace, device_type: int) -> list[Entry]:
    """List the [memory] instants of CPUs (0) or GPUs (1) by time."""
    instants = [each for each in raw.entries if each.get("name") == "[memory]"]
    chosen = [each for each in instants if each["args"].get("Device Type") == device_type]
    return sorted(chosen, key=lambda each: float(each["ts"]))


def find_first_start(raw: RawTrace) -> float:
    """Find the start of the first event on a lane in microseconds; the span of the whole recording is none."""
    return float(min(each["ts"] for each in raw.entries if each.get("ph") == "X" and each.get("cat") != "Trace"))
