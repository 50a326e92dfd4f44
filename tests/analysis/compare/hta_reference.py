"""Ask HolisticTraceAnalysis' TraceDiff for its table, and bring ours into its units.

HTA counts whole microseconds: of traces with nanoseconds it rounds each start up and each end down.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from torchprof_tui.analysis.compare.matched_rows import Device, select_named
from torchprof_tui.analysis.compare.op_tree import Side

Table = dict[str, list[int]]
"""By name: calls in A and B, total in A and B in whole microseconds."""


def run_trace_diff(first: Path, second: Path, folder: Path) -> dict[str, Table]:
    """Run TraceDiff on all steps of two files: {"cpu": table, "gpu": table}. HTA must be installed."""
    from hta.trace_diff import DeviceType, LabeledTrace, TraceDiff  # type: ignore[import-not-found]

    traces: list[Any] = []
    for label, path in (("a", first), ("b", second)):
        (folder / label).mkdir()
        shutil.copy(path, folder / label / "trace.json.gz")
        traces.append(LabeledTrace(label, trace_dir=str(folder / label)))
    answer: dict[str, Table] = {}
    for device, device_type in (("cpu", DeviceType.CPU), ("gpu", DeviceType.GPU)):
        compared = TraceDiff.compare_traces(
            *traces,
            control_iteration=traces[0].iterations(),
            test_iteration=traces[1].iterations(),
            device_type=device_type,
        )
        columns = ["a_counts", "b_counts", "a_total_duration", "b_total_duration"]
        answer[device] = {
            name: [int(value) for value in values]
            for name, values in zip(compared.index, compared[columns].values.tolist(), strict=True)
        }
    return answer


def round_totals(side: Side, device: Device) -> dict[str, int]:
    """Sum the times of each name as HTA rounds them: whole microseconds."""
    trace, events = side.trace, select_named(side, device)
    start = trace.start[events] + trace.origin
    rounded = (start + trace.duration[events]) // 1000 + (-start) // 1000
    totals = np.zeros(len(trace.names), np.int64)
    np.add.at(totals, trace.name[events], rounded)
    return {trace.names[name]: int(totals[name]) for name in np.unique(trace.name[events]).tolist()}
