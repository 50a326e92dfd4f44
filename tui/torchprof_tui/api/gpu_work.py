"""Measure the GPU work of each rank: the five tables that users of Holistic Trace Analysis begin with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.answers import html
from torchprof_tui.api.events import Events
from torchprof_tui.trace.core.arrays import F64, I64, Bool
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.extensions import import_extra
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

COMPUTATION, COMMUNICATION, MEMORY = "computation", "communication", "memory"
_KINDS = {
    COMPUTATION: (Kind.KERNEL,),
    COMMUNICATION: (Kind.COLLECTIVE,),
    MEMORY: (Kind.COPY, Kind.MEMSET),
}


class Rows:
    """Rows of one table, each a dict of the same keys; times in µs."""

    def __init__(self, title: str, rows: list[dict[str, Any]]) -> None:
        self.title, self._rows = title, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._rows[index]

    def __repr__(self) -> str:
        return f"<{self.title}: {len(self)} rows>"

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas.DataFrame. Raises MissingExtraError without pandas."""
        frame: pd.DataFrame = import_extra("pandas").DataFrame(self._rows)
        return frame

    def _repr_html_(self) -> str:
        columns = list(self._rows[0]) if self._rows else []
        return html.build_block(self.title, (), html.build_table(columns, (row.values() for row in self._rows)))  # type: ignore[misc]


class _RankWork:
    """The GPU work of one rank: arrays over its events."""

    def __init__(self, trace: Trace, number: int | None) -> None:
        self.trace, self.number = trace, number
        kind = np.asarray(trace.kind)
        self.rows = np.flatnonzero(np.isin(kind, [int(each) for each in GPU_WORK]))
        self.kind = kind[self.rows]
        self.start = np.asarray(trace.start)[self.rows].astype(np.int64)
        self.duration = np.asarray(trace.duration)[self.rows].astype(np.int64)
        self.end: I64 = self.start + self.duration

    def mask_of(self, work: str) -> Bool:
        """Return which of the work is of this type: bool[k]."""
        mask: Bool = np.isin(self.kind, [int(each) for each in _KINDS[work]])
        return mask

    def measure(self, work: str) -> Intervals:
        """Return when any work of this type ran, on any device and stream."""
        mask = self.mask_of(work)
        return union(self.start[mask], self.end[mask])

    def launches(self) -> tuple[I64, I64]:
        """Return (indexes into the work, rows of their launches) of the work whose launch was recorded."""
        launch = np.asarray(self.trace.links.launch_of)[self.rows].astype(np.int64)
        known = np.flatnonzero(launch >= 0).astype(np.int64)
        return known, launch[known]


def _list_ranks(trace: Trace) -> list[_RankWork]:
    ranks = [_RankWork(rank.trace, rank.number if trace.merged_ranks else trace.rank) for rank in trace.all_ranks]
    ranks = [rank for rank in ranks if len(rank.rows)]
    if not ranks:
        raise TraceError(f"{trace.label}: no GPU work was recorded in this trace")
    return ranks


def measure_temporal_breakdown(trace: Trace) -> Rows:
    """Divide the time from the first GPU work to the last into idle, computation, and only other work."""
    rows = []
    for rank in _list_ranks(trace):
        span = int(rank.end.max() - rank.start.min())
        idle, compute = span - union(rank.start, rank.end).total, rank.measure(COMPUTATION).total
        parts = {"idle": idle, "compute": compute, "non_compute": span - idle - compute}
        shares = {f"{name}_share": time / span if span else 0.0 for name, time in parts.items()}
        times = {f"{name}_us": time / 1000 for name, time in parts.items()}
        rows.append({"rank": rank.number, **times, "kernel_us": span / 1000, **shares})
    return Rows("temporal breakdown", rows)


def measure_kernel_breakdown(trace: Trace) -> Rows:
    """Sum up the work of each name and type: longest first within a rank."""
    rows = []
    for rank in _list_ranks(trace):
        names = np.asarray(rank.trace.name)[rank.rows]
        of_rank = []
        for work in _KINDS:
            mask = rank.mask_of(work)
            for name in np.unique(names[mask]).tolist():
                time = rank.duration[mask & (names == name)] / 1000
                of_rank.append(
                    {
                        "rank": rank.number,
                        "type": work,
                        "name": rank.trace.names[name],
                        "count": len(time),
                        "sum_us": float(time.sum()),
                        "mean_us": float(time.mean()),
                        "max_us": float(time.max()),
                        "min_us": float(time.min()),
                        "std_us": float(time.std(ddof=1)) if len(time) > 1 else None,
                    }
                )
        rows += sorted(of_rank, key=lambda row: -row["sum_us"])
    return Rows("kernels", rows)


def measure_queue_length(trace: Trace) -> Rows:
    """Describe how much launched work waits on each stream, at each launch (+1) and each start on the GPU (-1)."""
    rows = []
    for rank in _list_ranks(trace):
        known, launch = rank.launches()
        events = Events(rank.trace)
        place = np.stack([np.asarray(events.device)[rank.rows[known]], np.asarray(events.stream)[rank.rows[known]]], 1)
        begin = np.asarray(rank.trace.start)[launch].astype(np.int64)
        for device, stream in np.unique(place, axis=0).tolist():
            chosen = (place == (device, stream)).all(axis=1)
            times = np.concatenate([begin[chosen], rank.start[known][chosen]])
            change = np.repeat([1, -1], int(chosen.sum()))
            # A launch comes before the start that it causes, also at the same ns.
            length: F64 = np.cumsum(change[np.lexsort((-change, times))]).astype(np.float64)
            quarters = np.quantile(length, [0.25, 0.5, 0.75]).tolist()
            rows.append(
                {
                    "rank": rank.number,
                    "device": device,
                    "stream": stream,
                    "count": len(length),
                    "mean": float(length.mean()),
                    "std": float(length.std(ddof=1)) if len(length) > 1 else None,
                    "min": int(length.min()),
                    **dict(zip(("p25", "p50", "p75"), quarters, strict=True)),
                    "max": int(length.max()),
                }
            )
    return Rows("queue length", rows)


def list_launch_statistics(trace: Trace) -> Rows:
    """List each launch with its work: time of the call, of the work, and from the end of the call to the work."""
    rows = []
    for rank in _list_ranks(trace):
        known, launch = rank.launches()
        begin = np.asarray(rank.trace.start)[launch].astype(np.int64)
        call = np.asarray(rank.trace.duration)[launch].astype(np.int64)
        delay = np.maximum(rank.start[known] - begin - call, 0)
        columns = (launch, rank.rows[known], call / 1000, rank.duration[known] / 1000, delay / 1000)
        for values in zip(*(column.tolist() for column in columns), strict=True):
            names = ("launch", "work", "cpu_us", "gpu_us", "launch_delay_us")
            rows.append({"rank": rank.number, **dict(zip(names, values, strict=True))})
    return Rows("launch statistics", rows)


def measure_overlap(trace: Trace) -> Rows:
    """Measure the part of the communication during which computation ran; share None without communication."""
    rows = []
    for rank in _list_ranks(trace):
        communication = rank.measure(COMMUNICATION)
        both = (communication & rank.measure(COMPUTATION)).total
        rows.append(
            {
                "rank": rank.number,
                "communication_us": communication.total / 1000,
                "overlapped_us": both / 1000,
                "share": both / communication.total if communication.total else None,
            }
        )
    return Rows("overlap of communication and computation", rows)
