"""Collect the names of all GPU work in a folder of traces, as the fixture of tests/analysis/kernel/test_names.py.

    python tools/harvest_kernel_names.py TRACES > tests/fixtures/kernel_names.tsv

Writes one line for each distinct name: its GPU time in µs in our own traces (those outside of `public/`) and in the
public ones, its number of events, the current result of the decoder, and the name. The results are recorded so that
changes fail the test and can be reviewed with `git diff`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import GPU_WORK

COLUMNS = ("own_us", "public_us", "count", "kernel_class", "dtype", "tensor_core", "tile", "name")
TRACE_SUFFIXES = (".json", ".json.gz", ".json.xz", ".json.zst")


def list_traces(folder: Path) -> list[Path]:
    """List the trace files below a folder, without recorded `key_averages` tables."""
    files = (path for path in folder.rglob("*") if path.name.endswith(TRACE_SUFFIXES))
    return sorted(path for path in files if ".key_averages." not in path.name)


def collect_names(paths: Iterable[Path], folder: Path) -> dict[str, list[float]]:
    """Collect [own µs, public µs, count] of each name of GPU work."""
    totals: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    work = [int(kind) for kind in GPU_WORK]
    for path in paths:
        try:
            trace = load_trace(str(path), cache=False)
        except TraceError as error:
            print(error, file=sys.stderr)
            continue
        rows = np.flatnonzero(np.isin(trace.kind, work))
        names, inverse = np.unique(trace.name[rows], return_inverse=True)
        times = np.bincount(inverse, weights=trace.duration[rows], minlength=len(names)) / 1000
        counts = np.bincount(inverse, minlength=len(names))
        public = int("public" in path.relative_to(folder).parts)
        for name, time, count in zip(names.tolist(), times.tolist(), counts.tolist(), strict=True):
            entry = totals[trace.names[name]]
            entry[public] += time
            entry[2] += count
    return totals


def format_decoded(name: str) -> tuple[str, str, str, str]:
    """Format the decoder's result: class, first data type, whether on tensor cores, tile."""
    decoded = decode_kernel_name(name)
    return (
        decoded.kernel_class.label if decoded.known else "UNKNOWN",
        decoded.dtypes[0] if decoded.dtypes else "",
        {True: "yes", False: "no", None: ""}[decoded.tensor_core],
        "x".join(map(str, decoded.tile or ())),
    )


def main() -> None:
    folder = Path(sys.argv[1])
    totals = collect_names(list_traces(folder), folder)
    print(*COLUMNS, sep="\t")
    for name, (own, public, count) in sorted(totals.items()):
        if "\t" not in name and "\n" not in name:
            print(f"{own:.1f}", f"{public:.1f}", int(count), *format_decoded(name), name, sep="\t")


if __name__ == "__main__":
    main()
