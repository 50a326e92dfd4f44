"""Write the ranks of a job of any size as copies of one real rank, with faults whose place and size are known.

A fault moves events as it would: a collective ends on all ranks when the last has arrived and the transfer is over, the
kernels of a slow GPU take longer, the ops of a slow host as well. By hand, for a thousand ranks:

    python -m tests.helpers.fleet_runs rank0.pt.trace.json.gz OUT --ranks 1024
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

NOISE = 0.003
"""Relative standard deviation of every time between two collectives."""


@dataclass(frozen=True)
class Faults:
    """Known faults: factors by rank or host, µs of lateness in every step by rank, µs by (rank, index of the step)."""

    slow_gpus: Mapping[int, float] = field(default_factory=dict)
    slow_hosts: Mapping[int, float] = field(default_factory=dict)
    late_ranks: Mapping[int, float] = field(default_factory=dict)
    stalls: Mapping[tuple[int, int], float] = field(default_factory=dict)


def name_rank_file(rank: int, ranks_per_host: int) -> str:
    """Name a file as torch.profiler.tensorboard_trace_handler does: HOST_PID.TIME.pt.trace.json."""
    return f"node{rank // ranks_per_host:03d}_{4000 + rank}.1790857026000000000.pt.trace.json.gz"


class _Base:
    """The real rank: its steps, its collectives and its events as columns (µs)."""

    def __init__(self, path: str | Path, repeats: int = 1) -> None:
        data = Path(path).read_bytes()
        self.document: dict[str, Any] = orjson.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        events = [entry for entry in self.document["traceEvents"] if "ts" in entry]
        launched = _find_launches(events)
        # Collectives launched before the recording are matched by nothing.
        events = [entry for entry in events if not _is_collective(entry) or entry["args"]["correlation"] in launched]
        self.events = _repeat_events(events, repeats)
        launched = _find_launches(self.events)
        self.others = [entry for entry in self.document["traceEvents"] if "ts" not in entry]
        self.start = np.array([float(entry["ts"]) for entry in self.events])
        self.duration = np.array([float(entry.get("dur", 0)) for entry in self.events])
        category = np.array([str(entry.get("cat")) for entry in self.events])
        name = [str(entry["name"]) for entry in self.events]
        self.is_collective = np.array([_is_collective(entry) for entry in self.events])
        self.is_gpu = np.isin(category, ["kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync"])
        self.is_step = np.array([text.startswith("ProfilerStep#") for text in name]) & ~self.is_gpu
        self.steps = np.sort(self.start[self.is_step])
        rows = np.flatnonzero(self.is_collective)
        self.collectives = rows[np.argsort(self.start[rows])]
        issued = [launched[self.events[row]["args"]["correlation"]] for row in self.collectives.tolist()]
        self.begin = float(min(self.start.min(), self.steps[0]))
        self.launch_step = np.searchsorted(self.steps, issued, side="right") - 1
        self.finish = float((self.start + self.duration).max())


def _is_collective(entry: dict[str, Any]) -> bool:
    return entry.get("cat") == "kernel" and str(entry["name"]).startswith("nccl")


def _find_launches(events: list[dict[str, Any]]) -> dict[int, float]:
    """Find when (µs) each correlation was launched."""
    return {
        entry["args"]["correlation"]: float(entry["ts"])
        for entry in events
        if entry.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in entry["args"]
    }


_IDS = ("correlation", "External id", "Ev Idx", "Record function id", "Python id")


def _repeat_events(events: list[dict[str, Any]], repeats: int) -> list[dict[str, Any]]:
    """Repeat the recording, one after the other, with ids and numbers of steps of their own."""
    first = min(float(entry["ts"]) for entry in events)
    period = max(float(entry["ts"]) + float(entry.get("dur", 0)) for entry in events) - first
    numbers = {int(entry["name"].partition("#")[2]) for entry in events if entry["name"].startswith("ProfilerStep#")}
    found = list(events)
    for copy in range(1, repeats):
        for entry in events:
            made = entry | {"ts": float(entry["ts"]) + copy * period}
            args = {
                key: value + copy * 10_000_000 if key in _IDS and isinstance(value, int) else value
                for key, value in entry.get("args", {}).items()
            }
            if args:
                made["args"] = args
            if "id" in made and isinstance(made["id"], int):
                made["id"] += copy * 10_000_000
            if made["name"].startswith("ProfilerStep#"):
                number = int(made["name"].partition("#")[2]) + copy * len(numbers)
                made["name"] = f"ProfilerStep#{number}"
            found.append(made)
    return found


def write_fleet(
    base_path: str | Path,
    folder: Path,
    rank_count: int,
    ranks_per_host: int = 8,
    faults: Faults | None = None,
    seed: int = 1,
    only: Sequence[int] | None = None,
    repeats: int = 1,
) -> list[Path]:
    """Write one trace per rank (of `only` these) and return their paths, by rank.

    `repeats`: how often the steps of the real rank follow each other.
    """
    faults = faults or Faults()
    base = _Base(base_path, repeats)
    random = np.random.default_rng(seed)
    arrivals, ends, speed = _run_job(base, rank_count, ranks_per_host, faults, random)
    paths = []
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(rank_count):
        path = folder / name_rank_file(rank, ranks_per_host)
        paths.append(path)
        if only is None or rank in only:
            data = _build_rank(base, rank, rank_count, arrivals[rank], ends, speed[rank])
            path.write_bytes(gzip.compress(data, 1, mtime=0))
    return paths


def _run_job(
    base: _Base, rank_count: int, ranks_per_host: int, faults: Faults, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run the job: arrivals float64[r, c], common ends float64[c] (µs), and speeds [r, 2] of CPU and GPU."""
    host = np.arange(rank_count) // ranks_per_host
    cpu = np.array([faults.slow_hosts.get(int(number), 1.0) for number in host])
    gpu = np.array([faults.slow_gpus.get(rank, 1.0) for rank in range(rank_count)])
    starts = base.start[base.collectives]
    ends = starts + base.duration[base.collectives]
    step = base.launch_step
    clock = np.full(rank_count, base.begin)
    arrivals, common = np.zeros((rank_count, len(starts))), np.zeros(len(starts))
    previous, waited = base.begin, 0.0
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        gap = max(start - previous, 0.0)
        # A slow host is behind by its share of the transfer before as well: its launches follow its own clock.
        work = gap * np.maximum(cpu, gpu) + (cpu - 1) * waited
        work *= 1 + NOISE * random.standard_normal(rank_count)
        if index == 0 or step[index] != step[index - 1]:
            for rank, late in faults.late_ranks.items():
                work[rank] += late
            for (rank, number), late in faults.stalls.items():
                work[rank] += late if number == step[index] else 0.0
        arrivals[:, index] = clock + work
        common[index] = arrivals[:, index].max() + (end - start)
        clock[:] = common[index]
        previous, waited = end, end - start
    return arrivals, common, np.stack([cpu, gpu], axis=1)


def _build_rank(
    base: _Base, rank: int, rank_count: int, arrivals: np.ndarray, ends: np.ndarray, speed: np.ndarray
) -> bytes:
    cpu, gpu = speed.tolist()
    starts = base.start[base.collectives]
    knots = np.concatenate([[base.begin], np.stack([starts, starts + base.duration[base.collectives]], 1).reshape(-1)])
    moved = np.concatenate([[base.begin], np.stack([arrivals, ends], 1).reshape(-1)])
    knots, moved = np.append(knots, base.finish), np.append(moved, moved[-1] + (base.finish - knots[-1]) * cpu)

    def move(times: np.ndarray) -> np.ndarray:
        return np.asarray(np.interp(times, knots, moved))

    start, duration = base.start.copy(), base.duration.copy()
    step = np.maximum(np.searchsorted(base.steps, start, side="right") - 1, 0)
    is_gpu, is_step = base.is_gpu, base.is_step
    new_steps = move(base.steps)
    start[~is_gpu] = (new_steps[step] + (base.start - base.steps[step]) * cpu)[~is_gpu]
    duration[~is_gpu] *= cpu
    start[is_gpu] = move(base.start)[is_gpu]
    duration[is_gpu & ~base.is_collective] *= gpu
    duration[is_step] = (move(base.start + base.duration) - move(base.start))[is_step]
    start[base.collectives], duration[base.collectives] = arrivals, ends - arrivals
    for entry, ts, dur in zip(base.events, np.round(start, 3).tolist(), np.round(duration, 3).tolist(), strict=True):
        entry["ts"] = ts
        if "dur" in entry:
            entry["dur"] = dur
    _set_group(base, rank_count)
    info = base.document["distributedInfo"] | {"rank": rank, "world_size": rank_count}
    info["pg_config"] = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": rank_count, "ranks": list(range(rank_count))}
    ]
    document = base.document | {"distributedInfo": info, "traceEvents": base.others + base.events}
    return orjson.dumps(document)


def _set_group(base: _Base, rank_count: int) -> None:
    listed = [str(rank) for rank in range(min(rank_count, 30))] + (["..."] if rank_count > 30 else [])
    for row in base.collectives.tolist():
        args = base.events[row]["args"]
        args["Group size"], args["Process Group Ranks"] = rank_count, f"[{', '.join(listed)}]"


def measure_step(base_path: str | Path) -> float:
    """Measure the mean µs from step to step of the real rank."""
    return float(np.diff(_Base(base_path).steps).mean())


def choose_faults(rank_count: int, ranks_per_host: int, step_time: float) -> Faults:
    """Choose one fault of each kind, in different hosts, of a job whose steps take `step_time` µs."""
    host_count = rank_count // ranks_per_host
    return Faults(
        slow_gpus={rank_count // 3: 1.3},
        slow_hosts={host_count // 2: 1.4},
        late_ranks={rank_count - 3: 0.25 * step_time},
        stalls={(1, 1): 1.5 * step_time},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the ranks of a job with known faults.")
    parser.add_argument("base")
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--healthy", action="store_true")
    options = parser.parse_args()
    faults = Faults() if options.healthy else choose_faults(options.ranks, 8, measure_step(options.base))
    write_fleet(options.base, options.out, options.ranks, faults=faults)
    print(json.dumps({"faults": str(faults), "ranks": options.ranks}))


if __name__ == "__main__":
    main()
