"""Divide the steps of a trace file in a slow and obvious way, from its JSON: the oracle of the account.

Plain Python over the entries; nothing of the program is used. Only traces of one GPU whose kernels are listed in
`CLASSES` can be divided.
"""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

CLASSES = (
    ("flash", "gpu:attention"),
    ("nvjet", "gpu:gemm"),
    ("gemm", "gpu:gemm"),
    ("cutlass", "gpu:gemm"),
    ("triton", "gpu:triton fused"),
    ("softmax", "gpu:softmax"),
    ("elementwise", "gpu:elementwise"),
)
"""The class of a kernel by the first of these that its name contains."""

_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def divide_steps(path: Path, numbers: list[int]) -> tuple[Decimal, dict[str, Decimal]]:
    """Return the ns of these consecutive steps, and of it the ns of each part: classes, "copies" and "idle"."""
    with gzip.open(path, "rt") as file:
        entries = json.load(file, parse_float=Decimal)["traceEvents"]
    entries = [entry for entry in entries if entry.get("ph") == "X"]
    steps = sorted(
        (entry for entry in entries if entry["name"].startswith("ProfilerStep#") and entry["cat"] == "user_annotation"),
        key=lambda entry: entry["ts"],
    )
    launches = {
        entry["args"]["correlation"]: entry for entry in entries if entry["cat"] in ("cuda_runtime", "cuda_driver")
    }
    work = sorted((entry for entry in entries if entry["cat"] in _WORK), key=lambda entry: entry["ts"])

    def find_completion(step: dict[str, Any]) -> Decimal:
        """Return when a step and the work that it launched have ended."""
        time = Decimal(step["ts"] + step["dur"])
        for entry in work:
            launch = launches.get(entry["args"]["correlation"])
            if launch is not None and step["ts"] <= launch["ts"] < step["ts"] + step["dur"]:
                time = max(time, entry["ts"] + entry["dur"])
        return time

    chosen = [f"ProfilerStep#{number}" for number in numbers]
    before = [step for step in steps if step["name"] not in chosen and step["ts"] < _first(steps, chosen)]
    first_launched = min(entry["ts"] for entry in work if entry["args"]["correlation"] in launches)
    earlier = [entry["ts"] + entry["dur"] for entry in work if entry["ts"] < first_launched]
    begin = max((find_completion(step) for step in before), default=max(_first(steps, chosen), *earlier, 0))
    end = max(find_completion(step) for step in steps if step["name"] in chosen)

    cuts = sorted({begin, end, *(cut for entry in work for cut in (entry["ts"], entry["ts"] + entry["dur"]))})
    parts: dict[str, Decimal] = {}
    for t0, t1 in pairwise(cut for cut in cuts if begin <= cut <= end):
        running = [entry for entry in work if entry["ts"] <= t0 and entry["ts"] + entry["dur"] >= t1]
        computing = [entry for entry in running if entry["cat"] != "gpu_memcpy"]
        part = _name_part(computing[0]) if computing else "copies" if running else "idle"
        parts[part] = parts.get(part, Decimal(0)) + (t1 - t0) * 1000
    return (end - begin) * 1000, parts


def _first(steps: list[dict[str, Any]], names: list[str]) -> Decimal:
    return min(Decimal(step["ts"]) for step in steps if step["name"] in names)


def _name_part(entry: dict[str, Any]) -> str:
    if entry["cat"] == "gpu_memset":
        return "gpu:memory"
    return next(part for text, part in CLASSES if text in entry["name"].lower())
