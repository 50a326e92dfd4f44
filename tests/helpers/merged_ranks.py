"""Load the trace files of several ranks as one merged trace, without worker processes."""

from __future__ import annotations

from pathlib import Path

from torchprof_tui.trace.loading.load import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks.collective_records import read_collectives
from torchprof_tui.trace.ranks.merge import OpenedRank, merge_ranks


def load_merged_ranks(paths: list[Path]) -> Trace:
    """Load each file and merge them in the order of `paths`."""
    traces = [load_trace(str(path), cache=False) for path in paths]
    return merge_ranks(
        [OpenedRank(trace.rank or 0, trace.label, trace, read_collectives(trace)) for trace in traces], "ranks"
    )
