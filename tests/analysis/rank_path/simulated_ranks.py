"""Simulate a step of several ranks as a slow, obvious loop: the reference for the path through collectives.

All ranks run the same list of instructions, each with its own durations. An event starts one microsecond after the
latest end among the events it depends on. The simulation stores that latest event for every start, and walks back over
these to find the path.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.rank_traces import Collective, Run

LATENCY = 1
BEGIN = 1000

Instruction = tuple[str, tuple[int, ...]]
"""("host" | "kernel" | "reduce", µs of each rank), ("sync", ()). A reduce takes the first number on all ranks."""


@dataclass
class SimulatedRun:
    """The result of a run. `path`: (rank, name) of its events in time order; `duration`: of the path, µs."""

    paths: list[Path]
    path: list[tuple[int, str]]
    duration: int
    tied: bool


class _Rank:
    def __init__(self, number: int) -> None:
        self.number, self.now, self.decided = number, BEGIN, f"{number} start"
        self.stream: tuple[int, str] | None = None
        self.entries: list[dict[str, Any]] = []
        self.correlation = 0

    def add(self, category: str, name: str, start: int, takes: int, **args: Any) -> None:
        where = (
            {"pid": 0, "tid": 20} if category == "kernel" else {"pid": 1000 + self.number, "tid": 1000 + self.number}
        )
        self.entries.append({"ph": "X", "cat": category, "name": name, "ts": start, "dur": takes, "args": args} | where)


def simulate_run(program: list[Instruction], ranks: int, folder: Path) -> SimulatedRun:
    """Run a program on all ranks and write their traces."""
    all_ranks = [_Rank(number) for number in range(ranks)]
    before: dict[str, str] = {}
    tied = False

    def choose(waits: list[tuple[int, str]]) -> tuple[int, str]:
        nonlocal tied
        latest = max(waits)
        tied |= len({name for time, name in waits if time == latest[0]}) > 1
        return latest

    for place, (kind, takes) in enumerate(program):
        arrivals: list[tuple[int, str]] = []
        for rank in all_ranks:
            name = f"{rank.number} {kind}{place}"
            if kind == "host":
                rank.add("cpu_op", f"{kind}{place}", rank.now, takes[rank.number])
                before[name], rank.decided, rank.now = rank.decided, name, rank.now + takes[rank.number]
            elif kind in ("kernel", "reduce"):
                rank.correlation += 1
                if kind == "reduce":
                    rank.add("cpu_op", "c10d::allreduce_", rank.now, 4, **{"External id": rank.correlation})
                rank.add("cuda_runtime", "cudaLaunchKernel", rank.now + 1, 2, correlation=rank.correlation)
                call = f"{rank.number} launch{place}"
                before[call], rank.decided = rank.decided, call
                waits = [(rank.now + 3, call), *([rank.stream] if rank.stream else [])]
                rank.now += 4
                latest = choose(waits)
                before[name] = latest[1]
                start = latest[0] + LATENCY
                if kind == "kernel":
                    args = {"device": 0, "stream": 20, "correlation": rank.correlation}
                    rank.add("kernel", f"{kind}{place}", start, takes[rank.number], **args)
                    rank.stream = start + takes[rank.number], name
                else:
                    arrivals.append((start, name))
            else:
                rank.correlation += 1
                latest = choose([(rank.now, rank.decided), *([rank.stream] if rank.stream else [])])
                end = latest[0] + LATENCY
                rank.add(
                    "cuda_runtime", "cudaDeviceSynchronize", rank.now, end - rank.now, correlation=rank.correlation
                )
                before[name], rank.decided, rank.now = latest[1], name, end
        if kind == "reduce":
            last = choose(arrivals)
            for rank, (start, name) in zip(all_ranks, arrivals, strict=True):
                if name != last[1]:
                    before[name] = last[1]  # its end depends on the last rank, not on its own start
                collective = Collective([start] * ranks, elements=1024 + place)
                args = Run(ranks, [])._kernel_args(collective, rank.correlation)
                end = last[0] + takes[0]
                rank.add("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL()", start, end - start, **args)
                rank.stream = end, name
    return _finish(all_ranks, before, choose, folder, lambda: tied)


def _finish(all_ranks: list[_Rank], before: dict[str, str], choose: Any, folder: Path, was_tied: Any) -> SimulatedRun:
    for rank in all_ranks:
        rank.add("user_annotation", "ProfilerStep#0", BEGIN, rank.now - BEGIN)
    ends = [each for rank in all_ranks for each in ((rank.now, rank.decided), rank.stream) if each is not None]
    end = choose(ends)
    path, node = [], end[1]
    while node in before:
        path.append(node)
        node = before[node]
    named = [(int(rank), name) for rank, name in (each.split() for each in path[::-1])]
    run = Run(len(all_ranks), [], more={rank.number: rank.entries for rank in all_ranks})
    return SimulatedRun(run.write(folder), named, end[0] - BEGIN, was_tied())


def write_late_run(folder: Path) -> list[Path]:
    """Write a run of 3 ranks: rank 1 comes 300 µs late, and rank 0 has the longest kernel afterwards."""
    program: list[Instruction] = [
        ("host", (50, 350, 50)),
        ("reduce", (40, 40, 40)),
        ("kernel", (200, 20, 20)),
        ("sync", ()),
    ]
    return simulate_run(program, 3, folder).paths
