"""Collectives joined over ranks the slow way, from the files' own JSON: dictionaries, no arrays."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

Key = tuple[str, int, int]
"""Group, step, and which of these in the order of their launches."""


def document(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    found: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return found


def joined(paths: list[Path]) -> dict[Key, dict[int, tuple[int, int]]]:
    """Key -> rank -> (start, end) in ns since the epoch."""
    meetings: dict[Key, dict[int, tuple[int, int]]] = defaultdict(dict)
    for path in paths:
        told = document(path)
        rank, base = told["distributedInfo"]["rank"], told.get("baseTimeNanoseconds", 0)
        complete = [entry for entry in told["traceEvents"] if entry.get("ph") == "X"]
        calls = {
            entry["args"]["correlation"]: ns(entry["ts"])
            for entry in complete
            if entry.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in entry["args"]
        }
        steps = [
            (ns(entry["ts"]), ns(entry["ts"]) + ns(entry["dur"]), int(entry["name"].partition("#")[2]))
            for entry in complete
            if entry["name"].startswith("ProfilerStep#") and entry["cat"] == "user_annotation"
        ]
        kernels = []
        for entry in complete:
            args = entry.get("args", {})
            if entry.get("cat") == "kernel" and entry["name"].startswith("nccl") and args["correlation"] in calls:
                kernels.append((calls[args["correlation"]], ns(entry["ts"]), ns(entry["dur"]), args))
        many: dict[tuple[str, int], int] = defaultdict(int)
        for called, start, duration, args in sorted(kernels, key=lambda each: each[:2]):
            step = next((number for begin, end, number in steps if begin <= called < end), -1)
            group = str(args.get("Process Group Name", ""))
            key = (group, step, many[group, step])
            many[group, step] += 1
            meetings[key][rank] = (base + start, base + start + duration)
    return dict(meetings)


def ns(us: Decimal | int) -> int:
    return round(us * 1000)
