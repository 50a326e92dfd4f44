"""Measure communication the slow way, from a file's own JSON: one sweep over the edges of all kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.collective_reference import document, ns

_BYTES = {"Float": 4, "BFloat16": 2, "Half": 2, "Long": 8, "Char": 1, "Byte": 1}

Spans = list[tuple[int, int]]


def gpu_events(path: Path) -> list[dict[str, Any]]:
    entries = document(path)["traceEvents"]
    categories = ("kernel", "gpu_memset")
    return [entry for entry in entries if entry.get("ph") == "X" and entry.get("cat") in categories]


def span(entry: dict[str, Any]) -> tuple[int, int]:
    return ns(entry["ts"]), ns(entry["ts"]) + ns(entry["dur"])


def is_communication(entry: dict[str, Any]) -> bool:
    return entry["cat"] == "kernel" and str(entry["name"]).startswith("nccl")


def total_and_exposed(path: Path) -> tuple[int, int]:
    """Sum up (time in communication, time of it in which nothing computed) of a file of one device, ns."""
    events = gpu_events(path)
    communication = [span(entry) for entry in events if is_communication(entry)]
    compute = [span(entry) for entry in events if not is_communication(entry)]
    return sweep(communication, communication), sweep(communication, without=compute)


def counts_and_bytes(path: Path) -> dict[str, tuple[int, int]]:
    """Count the kernels by the word of their name, with the bytes that their args say: word -> (count, bytes)."""
    found: dict[str, tuple[int, int]] = {}
    for entry in gpu_events(path):
        if is_communication(entry):
            word, args = entry["name"].split("_")[1], entry["args"]
            elements = max(args.get("In msg nelems", 0), args.get("Out msg nelems", 0))
            count, size = found.get(word, (0, 0))
            found[word] = count + 1, size + elements * _BYTES.get(args.get("dtype", ""), 0)
    return found


def waiting(kernels: Spans, waits: Mapping[tuple[int, int], int]) -> int:
    """Sum up the time in which a kernel waits and none moves data. `waits`: span -> ns at its start; 0 by default."""
    moving = [(start + min(waits.get((start, end), 0), end - start), end) for start, end in kernels]
    return sweep(kernels, without=moving)


def sweep(inside: Spans, also: Spans | None = None, without: Spans | None = None) -> int:
    """Measure the time in any of `inside`, in any of `also` (if given), and in none of `without`."""
    groups = [inside, also or [], without or []]
    edges = sorted(
        (time, group, change)
        for group, spans in enumerate(groups)
        for start, end in spans
        for time, change in ((start, 1), (end, -1))
    )
    open_count: Counter[int] = Counter()
    total, last = 0, 0
    for time, group, change in edges:
        if open_count[0] and (also is None or open_count[1]) and not open_count[2]:
            total += time - last
        open_count[group] += change
        last = time
    return total
