"""Write trace files of a run of several ranks: the steps of each, and when it enters the collectives.

Times are µs of one true clock; each rank's file has times of its own clock.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

BASE = 1_790_857_026_000_000_000
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass
class Collective:
    """One all-reduce: when each rank enters (None: it does not), and how long it takes once all have entered."""

    arrive: Sequence[float | None]
    takes: float = 50.0
    elements: int = 1024
    group: str = "0"
    operation: str = "allreduce"
    jitter: Sequence[float] = ()  # by which it ends later on each rank

    @property
    def end(self) -> float:
        return max(time for time in self.arrive if time is not None) + self.takes


@dataclass
class Run:
    """`steps`: the collectives of each. `shifts`: µs that each rank's clock is ahead; `bases`: the base times, ns."""

    ranks: int
    steps: list[list[Collective]]
    shifts: Sequence[float] = ()
    bases: Sequence[int] = ()
    first_step: Sequence[int] = ()  # the first step that each rank recorded
    more: dict[int, list[Entry]] = field(default_factory=dict)  # further entries of a rank, on the true clock
    says_group: bool = True

    def document(self, rank: int) -> dict[str, Any]:
        shift = self.shifts[rank] if self.shifts else 0.0
        entries = [{**entry, "ts": entry["ts"] + shift} if "ts" in entry else entry for entry in self.entries(rank)]
        return {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": self.ranks},
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
            "baseTimeNanoseconds": self.bases[rank] if self.bases else BASE,
            "traceEvents": entries,
        }

    def entries(self, rank: int) -> list[Entry]:
        """The entries of a rank as Kineto writes them, on the true clock."""
        pid, correlation = 1000 + rank, 0
        entries = [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python"}}]
        skipped = self.first_step[rank] if self.first_step else 0
        for number, collectives in enumerate(self.steps):
            if number < skipped:
                continue
            arrivals = [collective.arrive[rank] for collective in collectives]
            begin = min((time for time in arrivals if time is not None), default=number * 10_000.0) - 100
            last = max((collective.end for collective in collectives), default=begin + 500) + 50
            thread = {"pid": pid, "tid": pid}
            step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": begin, **thread}
            entries.append({**step, "dur": last - begin, "args": {}})
            for index, (collective, arrive) in enumerate(zip(collectives, arrivals, strict=True)):
                if arrive is None:
                    continue
                correlation += 1
                called = begin + 1 + 2 * index
                op = {"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "ts": called, "dur": 1.5, **thread}
                entries.append({**op, "args": {"External id": correlation}})
                call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", **thread}
                entries.append({**call, "ts": called + 0.25, "dur": 1, "args": {"correlation": correlation}})
                jitter = collective.jitter[rank] if collective.jitter else 0.0
                kernel = {"ph": "X", "cat": "kernel", "name": KERNEL, "pid": 0, "tid": 20, "ts": arrive}
                args = self._kernel_args(collective, correlation)
                entries.append({**kernel, "dur": collective.end + jitter - arrive, "args": args})
        return entries + self.more.get(rank, [])

    def _kernel_args(self, collective: Collective, correlation: int) -> dict[str, Any]:
        args: dict[str, Any] = {"device": 0, "stream": 20, "correlation": correlation, "External id": correlation}
        if self.says_group:
            args |= {
                "Collective name": collective.operation,
                "In msg nelems": collective.elements,
                "Out msg nelems": collective.elements,
                "dtype": "Float",
                "Process Group Name": collective.group,
                "Process Group Ranks": str(list(range(self.ranks))),
                "Group size": self.ranks,
            }
        return args

    def write(self, folder: Path, name: str = "rank{}.json", packed: bool = False) -> list[Path]:
        """Write one file a rank; returns the paths."""
        paths = []
        for rank in range(self.ranks):
            text = json.dumps(self.document(rank)).encode()
            path = folder / (name.format(rank) + (".gz" if packed else ""))
            path.write_bytes(gzip.compress(text) if packed else text)
            paths.append(path)
        return paths


def late_rank(ranks: int = 3, late: int = 1, by: float = 3000.0, steps: int = 3, each: int = 2) -> Run:
    """Create a run in which all ranks enter within some µs, except one that is late to the first collective of each
    step."""
    all_steps = []
    for number in range(steps):
        begin = 1000.0 + number * 10_000
        first = Collective([begin + 3 * rank + (by if rank == late else 0) for rank in range(ranks)])
        rest = [
            Collective([first.end + 100 + 200 * k + rank for rank in range(ranks)], elements=2048 + k)
            for k in range(each - 1)
        ]
        all_steps.append([first, *rest])
    return Run(ranks, all_steps)
