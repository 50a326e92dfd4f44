"""Match collectives across ranks the slow way, from the files' own JSON: dictionaries, no arrays."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

Key = tuple[str, int, int]
"""Group, step, and the number within these in the order of launches."""


@lru_cache(maxsize=4)  # the ranks of a run, which a test reads several times
def document(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    parsed: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return parsed


def joined(paths: list[Path]) -> dict[Key, dict[int, tuple[int, int]]]:
    """Match the collectives that several of these files have: key -> rank -> (start, end) in ns since the epoch."""
    matched: dict[Key, dict[int, tuple[int, int]]] = defaultdict(dict)
    for path in paths:
        parsed = document(path)
        rank, base = parsed["distributedInfo"]["rank"], parsed.get("baseTimeNanoseconds", 0)
        complete = [entry for entry in parsed["traceEvents"] if entry.get("ph") == "X"]
        steps = _steps(complete)
        counts: dict[tuple[str, int], int] = defaultdict(int)
        for called, start, duration, args in sorted(_kernels(complete), key=lambda kernel: kernel[:2]):
            step = next((number for begin, end, number in steps if begin <= called < end), -1)
            group = str(args.get("Process Group Name", ""))
            key = (group, step, counts[group, step])
            counts[group, step] += 1
            matched[key][rank] = (base + start, base + start + duration)
    return {key: its for key, its in matched.items() if len(its) > 1}


def _steps(complete: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    """(start, end, number) of each step."""
    return [
        (ns(entry["ts"]), ns(entry["ts"]) + ns(entry["dur"]), int(entry["name"].partition("#")[2]))
        for entry in complete
        if entry["name"].startswith("ProfilerStep#") and entry["cat"] == "user_annotation"
    ]


def _kernels(complete: list[dict[str, Any]]) -> list[tuple[int, int, int, dict[str, Any]]]:
    """(time of the launch, start, duration, args) of each collective that was launched in the recording."""
    calls = {
        entry["args"]["correlation"]: ns(entry["ts"])
        for entry in complete
        if entry.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in entry["args"]
    }
    kernels = []
    for entry in complete:
        args = entry.get("args", {})
        if entry.get("cat") == "kernel" and entry["name"].startswith("nccl") and args["correlation"] in calls:
            kernels.append((calls[args["correlation"]], ns(entry["ts"]), ns(entry["dur"]), args))
    return kernels


def ns(us: Decimal | int) -> int:
    return round(us * 1000)
